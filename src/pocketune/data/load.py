"""From a path that the user gives to data sets, with every file looked at once."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pocketune.data.check import (
    check_any,
    check_attributes,
    check_classes,
    check_complete,
    check_exists,
    check_kind,
    check_singles,
    check_trainable,
)
from pocketune.data.dataset import ImageDataset
from pocketune.data.images import open_image
from pocketune.data.layouts.folders import VALIDATION, Example, read_folders, wrapper
from pocketune.data.layouts.tables import Table, is_table, read_table
from pocketune.data.sources import FolderSource, Source, ZipSource, is_archive
from pocketune.data.splits import Splits, stratify
from pocketune.data.unreadable import UnreadableImage, reading_image
from pocketune.errors import PocketuneError
from pocketune.files import Skipped, printable, reading, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pocketune.data.dataset import Labels


def load_splits(
    path: str | Path,
    *,
    val_fraction: float = 0.2,
    seed: int = 0,
    classes: Sequence[str] | None = None,
    attributes: bool | None = None,
) -> Splits:
    """Find labeled images and divide them into training and validation.

    Every file's header is read, so what is no image is known now; a file that is damaged further
    on shows when it is decoded.

    Args:
        path: a folder of class folders (also under ``train/`` and ``val/``, ``valid/``,
            ``validation/`` or ``test/``), a CSV (see ``read_table``), or a .zip of either. A folder
            or archive with fewer than two class folders and one CSV is read by its CSV.
        val_fraction: share that validates, of each class where images have one, where the data
            is not divided; with 1 all of it does, with 0 none.
        seed: of the division.
        classes: the classes, in the order of a trained network's outputs. By default those that
            are found, in alphabetical (or, all being integers, numerical) order. Or the
            attributes; by default all, in the order of their columns.
        attributes: whether images must have attributes, or must have a class; by default either.

    Raises:
        PocketuneError: if the path or its content cannot be used, in a sentence that says why.
    """
    found = _find(Path(path))
    source, where = found.source, shown(str(Path(path)))
    check_kind(found.attributes, attributes, where)
    known, skipped = _readable(source, found.examples)
    check_any(known, skipped, where)
    if found.attributes:
        dataset = _of_attributes(found, known, classes, where)
    else:
        dataset = _of_classes(found, known, classes, where)
    train, val = _divide(dataset, known, val_fraction, seed)
    check_trainable(train, val, where)
    loose, _ = _readable(source, found.outside)
    parts = " and ".join(sorted({example.part for example in known if example.part}))
    folders = f"the class folders of {parts}" if parts else "the class folders"
    skipped += [Skipped(image.name, f"it lies outside {folders}") for image in loose]
    return Splits(train, val, tuple(sorted(skipped)))


def training_images(photos: ImageDataset | str | os.PathLike[str]) -> ImageDataset:
    """A dataset as it is; of a path the images that train, as ``load_splits`` divides them.

    Raises:
        PocketuneError: as ``load_splits``.
    """
    return photos if isinstance(photos, ImageDataset) else load_splits(Path(photos)).train


def open_images(paths: Iterable[str | Path]) -> list[str]:
    """Paths of the images to predict: files as they are given, folders and .zips with all in them.

    Files are not opened; what is no image shows when it is decoded.

    Raises:
        PocketuneError: for a path that does not exist, or if there is no file at all.
    """
    found: list[str] = []
    for path in map(Path, paths):
        check_exists(path)
        if path.is_dir() or is_archive(path):
            found.extend(str(path / name) for name in _source(path).names())
        else:
            found.append(str(path))
    if not found:
        raise PocketuneError("there are no images to predict; name image files or their folder")
    return list(dict.fromkeys(found))


class _Found(NamedTuple):
    """Labeled files, what their attributes are called, and files outside the class folders."""

    source: Source
    examples: list[Example]
    attributes: tuple[str, ...] = ()
    outside: Sequence[Example] = ()


def _find(path: Path) -> _Found:
    """What there is at the user's path, by its layout alone."""
    check_exists(path)
    if path.is_file() and is_table(path.name):
        source: Source = FolderSource(path.parent)
        return _Found(source, *_from_table(source, path.name))
    if not path.is_dir() and not is_archive(path):
        raise PocketuneError(f"{shown(str(path))} is neither a folder nor a .csv or .zip file")
    source = _source(path)
    names, where = source.names(), shown(str(path))
    if not names:
        raise PocketuneError(f"{where} is empty; put a folder of images for each class there")
    examples, outside = read_folders(names)
    prefix = wrapper(names)
    tables = [name for name in names if "/" not in name[len(prefix) :] and is_table(name)]
    if len({example.label for example in examples}) < 2 and len(tables) == 1:
        return _Found(source, *_from_table(source, tables[0]))
    if not examples:
        raise PocketuneError(
            f"{where} has no class folders; put each class's images into a folder of its name"
        )
    return _Found(source, examples, outside=outside)


def _source(path: Path) -> Source:
    return ZipSource(path) if is_archive(path) else FolderSource(path)


def _from_table(source: Source, name: str) -> Table:
    with reading(shown(name)), source.open(name) as file:
        table = read_table(file.read(), name)
    folder = posixpath.dirname(name)
    examples = [
        example._replace(name=posixpath.normpath(posixpath.join(folder, example.name)))
        for example in table.examples
    ]
    return Table(examples, table.attributes)


def _readable(source: Source, examples: Sequence[Example]) -> tuple[list[Example], list[Skipped]]:
    """Examples whose file has an image's header, sorted, and the others with the reason."""
    known: list[Example] = []
    skipped: list[Skipped] = []
    for example in sorted(examples):
        try:
            with reading_image(example.name), source.open(example.name) as file, open_image(file):
                known.append(example)
        except UnreadableImage as error:
            skipped.append(Skipped(printable(example.name), error.reason))
    return known, skipped


def _ordered(labels: Iterable[str]) -> tuple[str, ...]:
    unique = sorted(set(labels))
    if all(label.isdecimal() for label in unique):
        unique.sort(key=int)
    return tuple(unique)


def _of_classes(
    found: _Found, known: list[Example], classes: Sequence[str] | None, where: str
) -> ImageDataset:
    if classes is None:
        check_complete(found.examples, known, where)
    names = tuple(classes) if classes is not None else _ordered(example.label for example in known)
    check_classes(known, names, where)
    index = {name: label for label, name in enumerate(names)}
    labels = np.array([index[example.label] for example in known], dtype=np.int64)
    return _dataset(found.source, names, known, labels)


def _of_attributes(
    found: _Found, known: list[Example], attributes: Sequence[str] | None, where: str
) -> ImageDataset:
    names = tuple(attributes) if attributes is not None else found.attributes
    check_attributes(found.attributes, names, where)
    rows = np.frombuffer(b"".join(example.attributes for example in known), np.uint8)
    columns = [found.attributes.index(name) for name in names]
    labels = rows.reshape(len(known), -1)[:, columns]
    return _dataset(found.source, names, known, labels)


def _dataset(
    source: Source, classes: tuple[str, ...], examples: list[Example], labels: Labels
) -> ImageDataset:
    labels.setflags(write=False)
    return ImageDataset(source, classes, tuple(example.name for example in examples), labels)


def _divide(
    dataset: ImageDataset, examples: list[Example], val_fraction: float, seed: int
) -> tuple[ImageDataset, ImageDataset]:
    """As the user divided the images, or else by ``stratify``: one class, with attributes."""
    parts = np.array([example.part or "" for example in examples])
    validates = np.isin(parts, VALIDATION)
    if validates.any():
        train, val = np.flatnonzero(~validates), np.flatnonzero(validates)
    else:
        kinds = np.zeros(len(dataset), np.int64) if dataset.has_attributes else dataset.labels
        train, val = stratify(kinds, val_fraction=val_fraction, seed=seed)
        if len(train) and len(val) and not dataset.has_attributes:
            check_singles(dataset)
    return dataset.subset(train), dataset.subset(val)
