"""What a layout on disk says about one file, before it is opened."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

TRAIN = "train"
VALIDATION = ("val", "valid", "validation", "test")  # the first that is there validates
PARTS = (TRAIN, *VALIDATION)


class Example(NamedTuple):
    """A file, what is on it, and where it belongs.

    Attributes:
        name: the file.
        label: its class; empty where it has attributes instead.
        part: which of ``PARTS`` it is in; ``None`` leaves that to the split.
        attributes: a byte for each attribute, 1 where the file has it and 0 where not.
    """

    name: str
    label: str
    part: str | None = None
    attributes: bytes = b""


def as_label(text: str) -> str:
    """A class name; accents are composed, since file systems differ in how they spell them."""
    return unicodedata.normalize("NFC", text)


def one_validation(examples: Iterable[Example]) -> list[Example]:
    """Leave out ``test`` where there is a ``val``: it is held back for another day."""
    examples = list(examples)
    present = {example.part for example in examples}
    unused = [part for part in VALIDATION if part in present][1:]
    return [example for example in examples if example.part not in unused]
