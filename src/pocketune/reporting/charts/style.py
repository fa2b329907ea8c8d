"""One style for all charts, and the way from a figure of matplotlib to a picture in a page."""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pocketune.tasks.results import Table

# Each color that is drawn stands for a variable of the page's style sheet, which has other values
# in the dark and in print.
INK, MUTED, GRID = "#010101", "#020202", "#030303"
FIRST, SECOND, THIRD, FOURTH = "#040404", "#050505", "#060606", "#070707"
FIFTH, SIXTH, SEVENTH, EIGHTH, NINTH = "#080808", "#090909", "#0a0a0a", "#0d0d0d", "#0e0e0e"
LIMIT, PAPER = "#0b0b0b", "#0c0c0c"
SERIES = (FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH, NINTH)
_VARIABLES = {
    INK: "ink", MUTED: "muted", GRID: "grid", LIMIT: "limit", PAPER: "card",
    **{color: f"series-{number}" for number, color in enumerate(SERIES, 1)},
}  # fmt: skip

_NUMBER = re.compile(r"-?\d+\.\d{3,}")

WIDTH, WIDE = 5.4, 11.2
"""Inches of a chart, of which two are side by side, and of one across the page."""

_RULES: Any = {
    "svg.fonttype": "none",  # letters stay text: sharp, searchable and in the page's font
    "svg.hashsalt": "pocketune",  # the same names each time
    "text.parse_math": False,  # a dollar in a class name is a dollar
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "patch.linewidth": 0,
}


@dataclass(frozen=True)
class Chart:
    """A picture, and the same in words and numbers.

    Attributes:
        title: What it shows, in a few words.
        text: What there is to see, in one or two sentences; also read to those who do not see it.
        svg: The picture.
        table: The numbers behind it; None if the page shows them elsewhere.
        wide: Whether it takes the width of the page.
    """

    title: str
    text: str
    svg: str
    table: Table | None = None
    wide: bool = False


class Drawing:
    """A figure with one pair of axes.

    Attributes:
        figure: The figure of matplotlib.
        axes: Its axes.
        svg: The picture, once the drawing is finished.
    """

    def __init__(self, figure: Any) -> None:
        self.figure = figure
        self.axes: Any = figure.add_subplot()
        self.svg = ""


@contextmanager
def drawing(*, width: float = WIDTH, height: float = 2.9) -> Iterator[Drawing]:
    """A drawing in the style of the report; it has its `svg` when the block ends.

    Args:
        width: Inches.
        height: Inches.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_RULES), warnings.catch_warnings():
        # The page's font has letters that matplotlib's own has not.
        warnings.filterwarnings("ignore", message="Glyph")
        made = Drawing(Figure(figsize=(width, height), layout="constrained"))
        yield made
        stream = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        made.figure.savefig(stream, format="svg", transparent=True, metadata=nothing)
        made.svg = _in_page(stream.getvalue())


def tick(value: float, style: str) -> str:
    """A value at an axis, for a metric of this format specification.

    >>> tick(0.875, ".1%"), tick(0.8, ".1%"), tick(1.5, ".3f")
    ('87.5%', '80%', '1.5')
    """
    return f"{round(100 * value, 1):g}%" if style.endswith("%") else f"{value:g}"


def _in_page(svg: str) -> str:
    """The `<svg>` element of a file of matplotlib, for use inside of HTML.

    It has no address of another document, no style sheet of its own and no size in points. Its
    colors are variables of the page, and its names are like those of no other picture.
    """
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in [each for each in parent if _local(each.tag) in ("metadata", "style")]:
            parent.remove(child)
    prefix = "c" + hashlib.sha256(svg.encode()).hexdigest()[:8]
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = dict(_attributes(element, prefix))
        if element.tag != "text":
            element.text = None
        element.tail = None
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _attributes(element: ElementTree.Element, prefix: str) -> Iterator[tuple[str, str]]:
    """The attributes that a page needs."""
    is_root = element.tag == "svg"
    for key, value in element.attrib.items():
        name = _local(key)
        if name == "id" and element.tag != "g":  # groups have names that nothing refers to
            yield name, f"{prefix}-{value}"
        elif name == "href":
            yield name, f"#{prefix}-{value[1:]}"
        elif name == "style":
            yield name, _styled(value)
        elif name == "d":
            yield name, _shortened(value)
        elif name == "clip-path":
            yield name, value.replace("(#", f"(#{prefix}-")
        elif name not in ("id", "version") and not (is_root and name in ("width", "height")):
            yield name, value


def _styled(style: str) -> str:
    """A style without fonts, and with the page's colors."""
    rules = (rule.strip() for rule in style.split(";"))
    kept = "; ".join(rule for rule in rules if rule and not rule.startswith("font-family"))
    for color, name in _VARIABLES.items():
        kept = kept.replace(color, f"var(--{name})")
    return kept


def _shortened(path: str) -> str:
    """A path with hundredths of a point, which nobody can see."""
    return " ".join(_NUMBER.sub(lambda found: f"{float(found[0]):.2f}", path).split())
