"""A page: what it says as data, and the one HTML file that shows it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pocketune.errors import PocketuneError
from pocketune.files import make_folder_of, replacing

if TYPE_CHECKING:
    from pocketune.reporting.charts.style import Chart
    from pocketune.tasks.results import Table

_NUMBER = 16
"""Letters of the longest number in a table; anything longer is text."""
_TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True)
class Tile:
    """A figure that should be seen first."""

    label: str
    value: str
    detail: str = ""


class Picture(NamedTuple):
    """What a picture shows, and its address with the picture inside."""

    what: str
    address: str


@dataclass(frozen=True)
class Photo:
    """A photo with what its label and the model say.

    Attributes:
        picture: Its address, with the picture inside; None if it cannot be read.
        name: Its file.
        truth: What its label says.
        guess: What the model says.
        note: Another fact.
        masks: The photo and its masks, side by side instead of the picture alone.
    """

    picture: str | None
    name: str
    truth: str
    guess: str
    note: str = ""
    masks: tuple[Picture, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a page with a title of its own.

    Attributes:
        title: Its title.
        text: Its paragraphs.
        charts: Its charts.
        photos: Its photos.
        facts: Names and values.
        tables: Tables with their titles.
        unfolded: Whether the tables are shown before somebody unfolds them.
        code: Commands to copy.
    """

    title: str
    text: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    photos: tuple[Photo, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    tables: tuple[tuple[str, Table], ...] = ()
    unfolded: bool = False
    code: str = ""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A whole report.

    Attributes:
        title: Its title.
        subtitle: A line below the title.
        summary: The answers to the first questions, in plain words.
        tiles: The main figures.
        sections: Everything else.
        version: The pocketune that wrote it.
    """

    title: str
    subtitle: str
    summary: tuple[str, ...]
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]
    version: str


def require_packages() -> None:
    """Check that the packages of the extra `report` are installed, before work begins.

    Raises:
        PocketuneError: One of them is not installed.
    """
    for package in ("jinja2", "matplotlib"):
        if find_spec(package) is None:
            raise PocketuneError(
                f'a report needs {package}; install it with: pip install "pocketune[report]"'
            )


def render(page: Page) -> str:
    """The HTML of a page, which refers to nothing outside of itself.

    Names of files and classes are text, never markup.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["columns_of_words"] = _columns_of_words
    style = (_TEMPLATES / "style.css").read_text(encoding="utf-8")
    return environment.get_template("page.html").render(page=page, style=style)


def _columns_of_words(table: Table) -> list[bool]:
    """Whether each column holds text, which starts at the left."""
    columns = zip(*table.rows, strict=True) if table.rows else ([] for _ in table.titles)
    cells = [[str(cell) for cell in column] for column in columns]
    return [
        any(len(cell) > _NUMBER for cell in column) or not any(map(_is_number, column))
        for column in cells
    ]


def _is_number(cell: str) -> bool:
    """Whether a cell is a number with its unit, or stands for one that is not known."""
    return cell[:1].isdigit() or cell[:1] == "-"


def write(page: Page, path: Path) -> None:
    """Write a page, atomically, and the folder that it is in.

    Raises:
        PocketuneError: The file cannot be written.
    """
    text = render(page).encode("utf-8", "replace").decode()  # names of files may hold surrogates
    make_folder_of(path)
    with replacing(path) as file:
        file.write_text(text, encoding="utf-8")
