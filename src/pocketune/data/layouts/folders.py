"""Labels from class folders: ``cats/1.jpg``, or ``train/cats/1.jpg`` and ``val/cats/2.jpg``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pocketune.tasks.base import as_label

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

TRAIN = "train"
VALIDATION = ("val", "valid", "validation", "test")  # the first that is there validates
PARTS = (TRAIN, *VALIDATION)


class Example(NamedTuple):
    """A file, what is on it, and where it belongs.

    Attributes:
        name: the file.
        label: as a task's reader has read it, or the name of the class folder.
        part: which of ``PARTS`` it is in; ``None`` leaves that to the split.
    """

    name: str
    label: Hashable
    part: str | None = None


def one_validation(examples: Iterable[Example]) -> list[Example]:
    """Leave out ``test`` where there is a ``val``: it is held back for another day."""
    examples = list(examples)
    present = {example.part for example in examples}
    unused = [part for part in VALIDATION if part in present][1:]
    return [example for example in examples if example.part not in unused]


def read_folders(names: Sequence[str]) -> tuple[list[Example], list[Example]]:
    """The examples among ``names``: every file in a class folder, at any depth.

    ``train`` is a part where it holds class folders or another part lies beside it, and ``val``,
    ``valid``, ``validation`` and ``test`` are parts beside a ``train``: there may well be a class
    "train" or "valid".

    Args:
        names: files with forward slashes, relative to the root.

    Returns:
        The examples, and the files that lie in no class folder or in none of the parts.
    """
    prefix = wrapper(names)
    paths = [name[len(prefix) :].split("/") for name in names]
    tops = {path[0].casefold() for path in paths if len(path) > 1}
    nested = any(path[0].casefold() == TRAIN and len(path) > 2 for path in paths)
    divided = nested or (TRAIN in tops and not tops.isdisjoint(VALIDATION))
    examples, outside = [], []
    for name, path in zip(names, paths, strict=True):
        part = path.pop(0).casefold() if divided else None
        if len(path) > 1 and (part is None or part in PARTS):
            examples.append(Example(name, as_label(path[0]), part))
        else:
            outside.append(Example(name, ""))
    return one_validation(examples), outside


def wrapper(names: Sequence[str]) -> str:
    """The path of the folder around everything, as archives often have one, with its slash.

    Empty where the root holds more than that folder, or the folder itself is the only class.
    """
    tops = {name.partition("/")[0] for name in names}
    if len(tops) != 1 or not any(name.count("/") > 1 for name in names):
        return ""
    top = tops.pop() + "/"
    return top + wrapper([name[len(top) :] for name in names])
