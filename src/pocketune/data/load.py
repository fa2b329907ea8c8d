"""From a path that the user gives to data sets, with every file looked at once."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pocketune.data.archive import ZipSource
from pocketune.data.check import (
    check_any,
    check_classes,
    check_complete,
    check_exists,
    check_singles,
    check_trainable,
)
from pocketune.data.dataset import ImageDataset
from pocketune.data.example import VALIDATION, Example
from pocketune.data.folder import read_folders, wrapper
from pocketune.data.images import open_image
from pocketune.data.skipped import Skipped, printable, shown
from pocketune.data.sources import FolderSource, Source
from pocketune.data.splits import Splits, stratify
from pocketune.data.table import read_table
from pocketune.data.unreadable import UnreadableImage, reading
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def load_splits(
    path: str | Path,
    *,
    val_fraction: float = 0.2,
    seed: int = 0,
    classes: Sequence[str] | None = None,
) -> Splits:
    """Find labelled images and divide them into training and validation.

    Every file's header is read, so what is no image is known now; a file that is damaged further
    on shows when it is decoded.

    Args:
        path: a folder of class folders (also under ``train/`` and ``val/``, ``valid/``,
            ``validation/`` or ``test/``), a CSV of file and label, or a .zip of either. A folder or
            archive with fewer than two class folders and one CSV is read by its CSV.
        val_fraction: share of each class that validates, where the data is not divided; with 1
            all of it does, with 0 none.
        seed: of the division.
        classes: the classes, in the order of a trained network's outputs. By default those that
            are found, in alphabetical (or, all being integers, numerical) order.

    Raises:
        PocketuneError: if the path or its content cannot be used, in a sentence that says why.
    """
    source, examples, outside = _examples(Path(path))
    known, skipped = _readable(source, examples)
    where = shown(str(source.root))
    check_any(known, skipped, where)
    if classes is None:
        check_complete(examples, known, where)
    names = tuple(classes) if classes is not None else _ordered(example.label for example in known)
    check_classes(known, names, where)
    train, val = _divide(_dataset(source, known, names), known, val_fraction, seed)
    check_trainable(train, val, where)
    loose, _ = _readable(source, outside)
    skipped += [Skipped(image.name, "it lies outside the class folders") for image in loose]
    return Splits(train, val, tuple(sorted(skipped)))


def open_images(paths: Iterable[str | Path]) -> list[str]:
    """Paths of the images to predict: files as they are given, folders with all they contain.

    Files are not opened; what is no image shows when it is decoded.

    Raises:
        PocketuneError: for a path that does not exist, or if there is no file at all.
    """
    found: list[str] = []
    for path in map(Path, paths):
        check_exists(path)
        if path.is_dir():
            found.extend(str(path / name) for name in FolderSource(path).names())
        else:
            found.append(str(path))
    if not found:
        raise PocketuneError("there are no images to predict; name image files or their folder")
    return list(dict.fromkeys(found))


def _examples(path: Path) -> tuple[Source, list[Example], list[Example]]:
    """The source, its labelled files, and the files that lie beside its class folders."""
    check_exists(path)
    if path.suffix.lower() == ".csv":
        source: Source = FolderSource(path.parent)
        return source, _from_table(source, path.name), []
    if path.is_dir():
        source = FolderSource(path)
    elif path.suffix.lower() == ".zip":
        source = ZipSource(path)
    else:
        raise PocketuneError(f"{shown(str(path))} is neither a folder nor a .csv or .zip file")
    names, where = source.names(), shown(str(path))
    if not names:
        raise PocketuneError(f"{where} is empty; put a folder of images for each class there")
    prefix = wrapper(names)
    beside = [name for name in names if "/" not in name[len(prefix) :]]
    examples = read_folders(names)
    tables = [name for name in beside if name.lower().endswith(".csv")]
    if len({example.label for example in examples}) < 2 and len(tables) == 1:
        return source, _from_table(source, tables[0]), []
    if not examples:
        raise PocketuneError(
            f"{where} has no class folders; put each class's images into a folder of its name"
        )
    return source, examples, [Example(name, "") for name in beside]


def _from_table(source: Source, name: str) -> list[Example]:
    try:
        with source.open(name) as file:
            examples = read_table(file.read(), name)
    except OSError as error:
        raise PocketuneError(f"{shown(name)} cannot be read: {error.strerror or error}") from error
    folder = posixpath.dirname(name)
    return [
        example._replace(name=posixpath.normpath(posixpath.join(folder, example.name)))
        for example in examples
    ]


def _readable(source: Source, examples: list[Example]) -> tuple[list[Example], list[Skipped]]:
    """Examples whose file has an image's header, sorted, and the others with the reason."""
    known: list[Example] = []
    skipped: list[Skipped] = []
    for example in sorted(examples):
        try:
            with reading(example.name), source.open(example.name) as file, open_image(file):
                known.append(example)
        except UnreadableImage as error:
            skipped.append(Skipped(printable(example.name), error.reason))
    return known, skipped


def _ordered(labels: Iterable[str]) -> tuple[str, ...]:
    unique = sorted(set(labels))
    if all(label.isdecimal() for label in unique):
        unique.sort(key=int)
    return tuple(unique)


def _dataset(source: Source, examples: list[Example], classes: tuple[str, ...]) -> ImageDataset:
    index = {name: label for label, name in enumerate(classes)}
    labels = np.array([index[example.label] for example in examples], dtype=np.int64)
    labels.setflags(write=False)
    return ImageDataset(source, classes, tuple(example.name for example in examples), labels)


def _divide(
    dataset: ImageDataset, examples: list[Example], val_fraction: float, seed: int
) -> tuple[ImageDataset, ImageDataset]:
    """As the user divided the images, or else by ``stratify``."""
    parts = np.array([example.part or "" for example in examples])
    validates = np.isin(parts, VALIDATION)
    if validates.any():
        train, val = np.flatnonzero(~validates), np.flatnonzero(validates)
    else:
        train, val = stratify(dataset.labels, val_fraction=val_fraction, seed=seed)
        if len(train) and len(val):
            check_singles(dataset)
    return dataset.subset(train), dataset.subset(val)
