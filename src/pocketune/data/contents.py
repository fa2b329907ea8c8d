"""The files that labeled photos consist of; no image is opened."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.data.finding import find
from pocketune.data.labels.layouts import TestUse
from pocketune.data.masks.colored import ColoredSource
from pocketune.data.masks.yolo import YoloSource
from pocketune.data.sources import FolderSource, Source, ZipSource, is_archive
from pocketune.errors import PocketuneError
from pocketune.files import shown
from pocketune.tasks import TASKS
from pocketune.tasks.segmentation import Mask

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pocketune.data.examples import Example


def listed_files(path: str | Path) -> Iterator[tuple[str, Source]]:
    """The photos and masks that a table or annotations list, and where they are to be read.

    Raises:
        PocketuneError: The path or its content cannot be used; the message says why.
    """
    tests: tuple[TestUse, ...] = ("hold out", "only")
    for test in tests:
        found = find(Path(path), tuple(TASKS.values()), test)
        for example in found.examples:
            masks = [example.label.name] if isinstance(example.label, Mask) else []
            yield from ((name, found.source) for name in (example.name, *masks))


def labeled_files(path: str | Path) -> tuple[Source, list[str], dict[str, str]]:
    """The files that labeled photos consist of, and which of them are masks.

    Returns:
        The folder or archive; its files, and of a CSV only itself, those that it names and that of
        the names of classes; and the mask of each photo that has one.

    Raises:
        PocketuneError: There are no labeled photos, or their labels are positions in the originals.
    """
    tasks, place, where = tuple(TASKS.values()), Path(path), shown(str(path))
    parts = [find(place, tasks, test) for test in ("hold out", "only")]
    source = parts[0].source
    if isinstance(source, (ColoredSource, YoloSource)):
        source = source.files
    if not isinstance(source, (FolderSource, ZipSource)):
        raise PocketuneError(
            f"{where} has outlines in pixels of the photos, which copies of another size would not "
            "match; use the photos themselves"
        )
    examples = [each for part in parts for each in part.examples]
    masks = {each.name: each.label.name for each in examples if isinstance(each.label, Mask)}
    _check_inside(source, examples, masks, where)
    if place.is_dir() or is_archive(place):
        return source, list(source.names()), masks
    listed = [parts[0].listed[0]] if parts[0].listed else []  # the names of the masks' classes
    names = sorted({place.name, *listed, *masks.values(), *(each.name for each in examples)})
    return source, names, masks


def _check_inside(
    source: Source, examples: Iterable[Example], masks: Mapping[str, str], where: str
) -> None:
    """Check that a table names only files of its folder, and no copy leads back to an original.

    Raises:
        PocketuneError: It names one outside, or one by its absolute path.
    """
    for name in chain((each.name for each in examples), masks.values()):
        place = Path(name)
        if not place.is_absolute() and ".." not in place.parts:
            continue
        if place.is_absolute() and place.resolve().is_relative_to(source.root.resolve()):
            raise PocketuneError(
                f"{where} lists {shown(name)} by its absolute path, which leads from a copy of "
                "the table to the original: write paths that are relative to the table's folder"
            )
        raise PocketuneError(
            f"{where} lists {shown(name)}, which is outside its folder: copies keep their "
            "names, so move the table into a folder that has all photos"
        )
