"""What the values of masks mean: names of classes, and values that do not count."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pocketune.errors import PocketuneError, Remedy
from pocketune.files import reading, regular, shown
from pocketune.tasks.maps import IGNORED
from pocketune.tasks.segmentation import Mask

VALUES = 256
NAMES_FILES = ("classes.txt", "labels.txt")
MOST_UNNAMED = 64
"""Values that may occur without names. More are those of a photo, or of smoothed edges."""
_SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class MaskOptions:
    """How the values of masks are read.

    Attributes:
        ignore: Values or names of classes that do not count, separated by commas; or `none`. 255
            does not count either, except with `none`. None is 255.
        class_names: A text file, or names separated by commas; see `value_names`. None is the
            file `classes.txt` or `labels.txt` of the photos, if there is one.
        inherited: The classes of an earlier run, if `ignore` is of it: there is nothing to ignore
            for a name that these masks do not have. Masks that were predicted by that run have no
            ignored values, and its classes as theirs.
    """

    ignore: str | None = None
    class_names: str | None = None
    inherited: tuple[str, ...] | None = None

    def with_names(self) -> MaskOptions:
        """The same with the names in place of a file of them, which may move or change.

        The file stays if a name has a comma.

        Raises:
            PocketuneError: The file cannot be read, or is no list of names.
        """
        names = _named(self, None)
        if names is None:
            return self
        if any("," in name for name in names.values()):
            return replace(self, class_names=str(Path(str(self.class_names)).absolute()))
        listed = ",".join(f"{value}={name}" for value, name in names.items())
        # without a comma, it would be taken for a path
        return replace(self, class_names=listed if "," in listed else f"{listed},")

    def check_unused(self, task: str) -> None:
        """Refuse options where no masks are read.

        Raises:
            PocketuneError: An option is set.
        """
        for name, value in (("ignore", self.ignore), ("class_names", self.class_names)):
            if value is not None:
                raise PocketuneError(
                    f"{name}={value!r} has no effect: it is for masks, and the photos are read for "
                    f"the task {task}; leave it out"
                )


def value_names(
    masks: Sequence[Mask],
    options: MaskOptions,
    where: str,
    listed: tuple[str, bytes] | None = None,
    classes: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """The class of each pixel value; empty for values that do not count.

    The names are those of `options`, or else of the file `listed`: a line for each value from 0
    on, or `VALUE=NAME`. Otherwise a model's `classes` name the values that count, in order; and
    without a model, each value that occurs is its own name.

    Args:
        masks: All masks, with their pixels.
        options: How they are read.
        where: The place of the photos, for messages.
        listed: A file of names, and its bytes.
        classes: Names of a model's classes.

    Raises:
        PocketuneError: The names or the ignored values are invalid, or a value has no name.
    """
    found = Counter[int]()
    for mask in masks:
        found.update(dict(mask.pixels))
    if listed and options.inherited and _are_predicted(found, listed, options.inherited):
        options = MaskOptions()
    names = _named(options, listed)
    ignored = _ignored(options, names or {}, where)
    if not found.keys() - ignored:
        raise PocketuneError(
            f"every pixel of the masks of {where} is ignored: they have the values "
            f"{shares(found)}; check the masks, and which of their values are ignored"
        )
    if options.ignore is None and not classes:
        _refuse_binary(found, where)
    if names is None and classes and not all(name.isdecimal() for name in classes):
        counted = (value for value in range(VALUES) if value not in ignored)
        names = dict(zip(counted, classes, strict=False))
    if names is None:
        names = {value: str(value) for value in found if value not in ignored}
        if len(names) > MOST_UNNAMED:
            raise PocketuneError(
                f"the masks of {where} have {len(names)} different values, as photos or smoothed "
                "edges have; name the classes in classes.txt if they are classes"
            )
    _refuse_unnamed(masks, names, ignored, where)
    return tuple("" if v in ignored else names.get(v, "") for v in range(VALUES))


def _are_predicted(
    found: Counter[int], listed: tuple[str, bytes], classes: tuple[str, ...]
) -> bool:
    """Whether masks may be those that a model of these classes has written, perhaps corrected.

    A list of names that lacks the first value, such as the background, has fewer than there are
    values.
    """
    names: dict[int, str] = {}
    with suppress(PocketuneError):  # names that were given may stand in for a damaged file
        names = parse_names(listed[1], listed[0])
    return names == dict(enumerate(classes)) and found.keys() <= {*names, IGNORED}


def _named(options: MaskOptions, listed: tuple[str, bytes] | None) -> dict[int, str] | None:
    """The names that the user gives, by value."""
    given = options.class_names
    if given is None:
        return None if listed is None else parse_names(listed[1], listed[0])
    path = Path(given)
    if "," in given and not os.path.exists(path):  # noqa: PTH110 - it never fails
        return parse_names(given.replace(",", "\n").encode(), "the option class_names")
    with reading(shown(given), remedy="give a text file, or names separated by commas"):
        return parse_names(regular(path).read_bytes(), given)


def parse_names(text: bytes, where: str) -> dict[int, str]:
    """Names of classes by pixel value: a line for each from 0 on, or `VALUE=NAME`.

    Raises:
        PocketuneError: The text is not UTF-8, or a value or name is invalid or occurs twice.
    """
    try:
        lines = text.decode("utf-8-sig").rstrip().splitlines()
    except UnicodeDecodeError as error:
        raise PocketuneError(
            f"{shown(where)} is not a list of names in UTF-8; save it as one"
        ) from error
    names: dict[int, str] = {}
    for number, line in enumerate(lines):
        value, name = number, line.strip()
        if explicit := re.fullmatch(r"(\d{1,9})\s*=\s*(.*)", name):
            value, name = int(explicit[1]), explicit[2]
        if not name or value >= VALUES:
            raise PocketuneError(
                f"{shown(where)} has no name of a value of 0 to {VALUES - 1} in line {number + 1}: "
                f"{shown(line)!r}; write a name on each line"
            )
        if value in names or name in names.values():
            raise PocketuneError(
                f"{shown(where)} has {shown(name)!r} or its value {value} twice; keep one line"
            )
        names[value] = name
    if not names:
        raise PocketuneError(f"{shown(where)} is empty; write the name of a class on each line")
    return names


def _ignored(options: MaskOptions, names: dict[int, str], where: str) -> set[int]:
    """The values that do not count."""
    if options.ignore == "none":
        return set()
    values = {name: value for value, name in names.items()}
    ignored = {IGNORED}
    for token in options.ignore.split(",") if options.ignore is not None else ():
        each = token.strip()
        value = values.get(each, int(each) if re.fullmatch(r"\d{1,9}", each) else VALUES)
        if value >= VALUES and options.inherited is not None:
            continue
        if value >= VALUES:
            known = f"the classes are {shown(', '.join(values), 200)}" if values else "give a value"
            raise PocketuneError(
                f"ignore={shown(each)!r} is neither a value of 0 to {VALUES - 1} nor a class of "
                f"{where}; {known}"
            )
        ignored.add(value)
    return ignored


def _refuse_binary(found: Counter[int], where: str) -> None:
    """Refuse masks of which nothing but one value would count: is 255 the object or ignored?"""
    if found[IGNORED] and len(found) == 2:
        raise PocketuneError(
            f"the masks of {where} have only the values {shares(found)}, and {IGNORED} means "
            "ignored by default",
            remedy=Remedy(
                "binary masks",
                'give ignore="none" if it is a class, or ignore="255" if it is to be ignored',
            ),
        )


def _refuse_unnamed(
    masks: Sequence[Mask], names: dict[int, str], ignored: set[int], where: str
) -> None:
    """Refuse a value that is neither named nor ignored."""
    for mask in masks:
        for value, pixels in mask.pixels:
            if value not in names and value not in ignored:
                share = pixels / sum(count for _, count in mask.pixels)
                raise PocketuneError(
                    f"the mask {shown(mask.name)} in {where} has the value {value} "
                    f"({share:.1%} of its pixels), but the {len(names)} classes are the values "
                    f"{_range(names)}; name it, or ignore {value}"
                )


def shares(found: Counter[int]) -> str:
    """Values with their share of the pixels, in words."""
    total = sum(found.values())
    parts = [f"{value} ({found[value] / total:.1%})" for value in sorted(found)]
    return ", ".join(parts[:_SHOWN]) + ", ..." * (len(parts) > _SHOWN)


def _range(names: Iterable[int]) -> str:
    values = sorted(names)
    if values == list(range(len(values))):
        return f"0 to {len(values) - 1}"
    return shown(", ".join(map(str, values)), 60)
