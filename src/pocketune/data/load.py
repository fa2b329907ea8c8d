"""Load labeled images from the path that a user gives."""

from __future__ import annotations

import os
import posixpath
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, cast

import numpy as np

from pocketune.data.coco import SUFFIX, annotation_files, read_annotations
from pocketune.data.dataset import VAL_FRACTION, ImageDataset, Splits, stratify
from pocketune.data.decoding import (
    MAX_WORKING_BYTES,
    Dearest,
    Decoding,
    check_size,
    limited_bytes,
)
from pocketune.data.examples import Example, Examples
from pocketune.data.headers import Header, read_header
from pocketune.data.images import (
    UnreadableImage,
    header_of,
    open_image,
    reading_image,
)
from pocketune.data.layouts import (
    TEST,
    VALIDATION,
    TestUse,
    has_titles,
    in_class_folders,
    is_table,
    one_validation,
    read_table,
    wrapper,
)
from pocketune.data.masks import (
    NAMES_FILES,
    AfterMask,
    MaskOptions,
    Masks,
    scan,
    value_names,
)
from pocketune.data.names import Indices, Names
from pocketune.data.pairs import FOLDERS, read_pairs
from pocketune.data.sources import FolderSource, Source, ZipSource, is_archive, is_inside
from pocketune.errors import PocketuneError, Remedy, counted, printable
from pocketune.files import ARCHIVE_DAMAGE, Skipped, reading, shown
from pocketune.tasks import TASKS, Task, task_named
from pocketune.tasks.segmentation import Mask, class_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LARGEST_LIST = 128 << 20
"""Most bytes of a file that lists photos or classes: a line for each of a million photos has 60."""


def load_splits(
    path: str | Path,
    *,
    val_fraction: float | None = VAL_FRACTION,
    seed: int = 0,
    classes: Sequence[str] | None = None,
    task: Task | str | None = None,
    test: TestUse = "validate",
    masks: MaskOptions | None = None,
    after_mask: AfterMask = lambda _done, _all: None,
    size: int | None = None,
    max_pixels: int | None = None,
) -> Splits:
    """Find labeled images and divide them into training and validation.

    The header of every file is read, so a file that is not an image is found now. A file that is
    damaged behind its header is found when it is decoded. Masks are decoded once, one by one: which
    values they have, and whether they fit their images, is known before training.

    Args:
        path: A folder of class folders (also under ``train/`` and ``val/``, ``valid/``,
            ``validation/`` or ``test/``), folders of images and masks (see ``read_pairs``), a CSV
            (see ``read_table``), annotations in COCO's format (see ``read_annotations``), or a .zip
            of any of these. In a folder or archive with fewer than two
            class folders and one CSV, or with a CSV of images and masks, the CSV is used.
        val_fraction: Fraction for validation if the data is not divided. Where images have classes,
            it is the fraction of each class. None is a fifth of each class of ten or more photos.
        seed: Seed of the division.
        classes: Names of the classes, in the order of a trained network's outputs; by default the
            classes that are found, in the task's order.
        task: The task whose labels are read, or its name; by default the first task that recognizes
            the labels.
        test: What the photos of ``test`` are for: to validate if there are no others, held out, or
            the only ones to load, as validation photos.
        masks: How the values of masks are read; None for the defaults of ``MaskOptions``.
        after_mask: Called after each mask with the number of masks that were read and of all.
        size: Height and width of the squares that the images will be cut to, to know what decoding
            them takes.
        max_pixels: Leave out images of more pixels that would be decoded in full; see
            ``check_size``.

    Raises:
        PocketuneError: The path or its content cannot be used; the message says why.
    """
    tasks = tuple(TASKS.values()) if task is None else (_kind(task),)
    found, where = _find(Path(path), tasks, test), shown(str(Path(path)))
    if test == "only" and not found.examples:
        raise PocketuneError(f"{where} has no test photos: they belong into a folder named {TEST}")
    dearest = None if size is None else Dearest(size, found.task.dense)
    readable, skipped = _readable(found.source, found.examples.names, dearest, max_pixels)
    usable = found.examples.take(readable)
    if found.task.dense:
        usable, damaged = scan(found.source, usable, after_mask)
        skipped += damaged
    _check_any(usable, skipped, where)
    if found.task.dense:
        found = _with_values(found, usable, masks or MaskOptions(), where, classes)
    dataset = _dataset(found, usable, classes, where)
    if isinstance(task, Task):
        dataset = replace(dataset, task=replace(task, classes=dataset.classes))
    train, val = _divide(dataset, usable, val_fraction, seed)
    if len(train):  # empty in an evaluation
        dataset.labeled.check_training(train.labels, val.labels, where)
    loose, _ = _readable(found.source, found.outside)
    parts = " and ".join(sorted(str(part) for part in usable.parts.distinct() if part))
    folders = f"the class folders of {parts}" if parts else "the class folders"
    outside = found.outside.take(loose)
    skipped += [Skipped(name, f"it is outside {folders}") for name in outside]
    skipped += [Skipped(name, "an empty folder") for name in found.empty]
    decoding = None if dearest is None else dearest.decoding
    return Splits(train, val, tuple(sorted(skipped)), decoding)


class Checked(NamedTuple):
    """Images whose headers were read.

    Attributes:
        images: Those that can be decoded, as far as their headers tell.
        skipped: The others, with the reason.
        decoding: What decoding the first takes; None if there are none.
    """

    images: ImageDataset
    skipped: tuple[Skipped, ...]
    decoding: Decoding | None


def checked(images: ImageDataset, size: int, max_pixels: int | None = None) -> Checked:
    """Read the headers of images.

    Args:
        images: The images.
        size: Height and width of the squares that they will be cut to.
        max_pixels: Leave out images of more pixels that would be decoded in full; see
            ``check_size``.
    """
    dearest = Dearest(size)
    known, skipped = _readable(images.source, images.names, dearest, max_pixels)
    return Checked(images.subset(known), tuple(skipped), dearest.decoding)


def training_images(photos: ImageDataset | str | os.PathLike[str]) -> ImageDataset:
    """The dataset itself; for a path, its training images, as a run divides them by default.

    Raises:
        PocketuneError: See ``load_splits``.
    """
    return (
        photos
        if isinstance(photos, ImageDataset)
        else load_splits(Path(photos), val_fraction=None).train
    )


def has_test(path: str | os.PathLike[str]) -> bool:
    """Whether labeled images have a part ``test``; no image is opened.

    Raises:
        PocketuneError: The path or its content cannot be used; the message says why.
    """
    return bool(_find(Path(path), tuple(TASKS.values()), "only").examples)


def open_images(paths: Iterable[str | Path]) -> list[str]:
    """Paths of the images to predict: the files themselves, and all files in folders and .zips.

    Files are not opened. A file that is not an image is found when it is decoded.

    Raises:
        PocketuneError: A path does not exist, or there are no files.
    """
    found: list[str] = []
    for path in map(Path, paths):
        _check_exists(path)
        if path.is_dir() or is_archive(path):
            found.extend(str(path / name) for name in _source(path).names())
        else:
            found.append(str(path))
    if not found:
        raise PocketuneError("there are no images to predict; name image files or their folder")
    return list(dict.fromkeys(found))


def labeled_files(path: str | Path) -> tuple[Source, list[str], frozenset[str]]:
    """The files that labeled photos consist of, and those of them that are masks.

    Returns:
        The folder or archive; its files, and of a CSV only those that it names and itself; and the
        names of masks.

    Raises:
        PocketuneError: There are no labeled photos, or their labels are positions in the originals.
    """
    tasks, place, where = tuple(TASKS.values()), Path(path), shown(str(path))
    parts = [_find(place, tasks, test) for test in ("validate", "only")]
    source = parts[0].source
    if not isinstance(source, (FolderSource, ZipSource)):
        raise PocketuneError(
            f"{where} has outlines in pixels of the photos, which copies of another size would not "
            "match; use the photos themselves"
        )
    examples = [each for part in parts for each in part.examples]
    masks = frozenset(each.label.name for each in examples if isinstance(each.label, Mask))
    if place.is_dir() or is_archive(place):
        return source, list(source.names()), masks
    names = sorted({place.name, *masks, *(each.name for each in examples)})
    for name in names:
        if not is_inside(name):
            raise PocketuneError(
                f"{where} lists {shown(name)}, which is outside its folder: copies keep their "
                "names, so move the table into a folder that has all photos"
            )
    return source, names, masks


class _Found(NamedTuple):
    """Labeled files and what is known of their labels.

    Attributes:
        source: The folder or archive that holds the files.
        examples: The labeled files.
        task: The task that reads the labels.
        titles: Titles of its columns; or the class of each value of masks.
        outside: Files outside the class folders.
        listed: The file of the names of classes, and its bytes.
        empty: Folders without any.
    """

    source: Source
    examples: Examples
    task: type[Task]
    titles: tuple[str, ...] = ()
    outside: Names = Names()
    listed: tuple[str, bytes] | None = None
    empty: Sequence[str] = ()


def _find(path: Path, tasks: Sequence[type[Task]], test: TestUse) -> _Found:
    """The labeled files at the user's path; none is opened but a CSV."""
    _check_exists(path)
    if path.is_file() and is_table(path.name):
        return _table(FolderSource(path.parent), path.name, tasks, test)
    if path.is_file() and path.suffix.lower() == SUFFIX:
        return _annotated([path.name], FolderSource(path.parent), tasks, test, shown(str(path)))
    if not path.is_dir() and not is_archive(path):
        raise PocketuneError(
            f"{shown(str(path))} is neither a folder nor a .csv, .json or .zip file"
        )
    source = _source(path)
    names, where = source.names(), shown(str(path))
    if not names:
        raise PocketuneError(f"{where} is empty; put a folder of images for each class there")
    prefix = wrapper(names)
    tables = [name for name in names if is_table(name) and "/" not in name[len(prefix) :]]
    dense = [task for task in tasks if task.dense]
    if len(tables) == 1 and dense and _has_titles(source, tables[0], dense):
        return _table(source, tables[0], dense, test)
    pairs = read_pairs(names, source, where, test)
    if pairs is not None:
        listed = _listed(source, prefix, f"{prefix}{FOLDERS[1]}")
        return _Found(source, pairs.sorted(), _of_masks(tasks, where), listed=listed)
    examples, outside = in_class_folders(names)
    classes, annotations = one_validation(examples).labels.distinct(), annotation_files(names)
    if annotations and (dense or len(classes) < 2):
        return _annotated(annotations, source, tasks, test, where)
    if len(classes) < 2 and len(tables) == 1:
        return _table(source, tables[0], tasks, test)
    if not examples:
        raise PocketuneError(
            f"{where} has no class folders; put each class's images into a folder of its name"
        )
    used = one_validation(examples, test)
    task, empty = _of_folders(tasks, where), map(printable, source.empty_folders())
    return _Found(source, used.sorted(), task, outside=outside, empty=tuple(empty))


def _annotated(
    files: Sequence[str], source: Source, tasks: Sequence[type[Task]], test: TestUse, where: str
) -> _Found:
    """The images that files of annotations list, with the masks that are drawn from these."""
    task = _of_masks(tasks, where)
    found = read_annotations(files, source.names(), source, test)
    listed = (files[0], found.names)
    return _Found(found.source, found.examples.sorted(), task, listed=listed)


def _of_masks(tasks: Sequence[type[Task]], where: str) -> type[Task]:
    """The task whose labels are masks."""
    for task in tasks:
        if task.dense:
            return task
    raise PocketuneError(
        f"{where} has masks, which give each pixel a class, but {tasks[0].noun} of whole images "
        "are needed",
        remedy=Remedy("masks", "use a kit for masks"),
    )


def _with_values(
    found: _Found,
    usable: Examples,
    options: MaskOptions,
    where: str,
    classes: Sequence[str] | None,
) -> _Found:
    """With the class of each value of the masks as titles."""
    labels = cast("Sequence[Mask]", usable.labels)
    return found._replace(titles=value_names(labels, options, where, found.listed, classes))


def _listed(source: Source, *folders: str) -> tuple[str, bytes] | None:
    """The file of the names of classes in one of these folders, and its bytes; None without."""
    for folder, name in product(folders, NAMES_FILES):
        with suppress(OSError), source.open(posixpath.join(folder, name)) as file:
            return name, _content(file, name)
    return None


def _kind(task: Task | str) -> type[Task]:
    return task_named(task) if isinstance(task, str) else type(task)


def _of_folders(tasks: Sequence[type[Task]], where: str) -> type[Task]:
    """The task whose labels are the names of folders."""
    for task in tasks:
        if task.has_folders:
            return task
    wanted = "masks" if tasks[0].dense else tasks[0].noun
    raise PocketuneError(
        f"{where} gives each image a class by its folder, but {wanted} are needed: give a CSV of "
        f"{tasks[0].table}",
        remedy=Remedy("other task", "use a kit for these labels"),
    )


def _source(path: Path) -> Source:
    return ZipSource(path) if is_archive(path) else FolderSource(path)


def _table(source: Source, name: str, tasks: Sequence[type[Task]], test: TestUse) -> _Found:
    """The labeled files that a table lists; their names are relative to its folder."""
    table, folder = read_table(_read(source, name), name, tasks, test), posixpath.dirname(name)
    examples = Examples(_within(folder, example) for example in table.examples)
    listed = _listed(source, folder) if table.task.dense else None
    return _Found(source, examples.sorted(), table.task, table.titles, listed=listed)


def _has_titles(source: Source, name: str, tasks: Sequence[type[Task]]) -> bool:
    """Whether a table has the columns of one of these tasks."""
    return has_titles(_read(source, name), name, tasks)


def _read(source: Source, name: str) -> bytes:
    with reading(shown(name), *ARCHIVE_DAMAGE), source.open(name) as file:
        return _content(file, name)


def _content(file: IO[bytes], name: str) -> bytes:
    content = file.read(_LARGEST_LIST + 1)
    if len(content) > _LARGEST_LIST:
        raise PocketuneError(
            f"{shown(name)} is larger than the {_LARGEST_LIST >> 20} MB that a list of photos may "
            "have; check that it is one"
        )
    return content


def _within(folder: str, example: Example) -> Example:
    """An example whose files are relative to a folder."""
    label = example.label
    if isinstance(label, Mask):
        label = label._replace(name=_joined(folder, label.name))
    return example._replace(name=_joined(folder, example.name), label=label)


def _joined(folder: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(folder, name))


def _readable(
    source: Source,
    names: Names,
    dearest: Dearest | None = None,
    max_pixels: int | None = None,
) -> tuple[Indices, list[Skipped]]:
    """The positions of the names whose header can be read, and the other files with the reason."""
    known = np.ones(len(names), bool)
    skipped: list[Skipped] = []
    for index, name in enumerate(names):
        try:
            header = _read_header(source, name)
            with reading_image(name):
                check_size(header, max_pixels)
            if dearest is not None:
                dearest.add(name, header)
        except UnreadableImage as error:
            known[index] = False
            skipped.append(Skipped(printable(name), error.reason))
    return np.flatnonzero(known), skipped


def _read_header(source: Source, name: str) -> Header:
    """The header of an image; Pillow reads it where it is not a usual one.

    Raises:
        UnreadableImage: The file is missing, too large or not an image.
    """
    with suppress(Exception):  # as Pillow does, which then says why
        header = read_header(partial(source.beginning, name))
        if header is not None and limited_bytes(header) <= MAX_WORKING_BYTES:
            return header
    with reading_image(name), source.open(name) as file, open_image(file) as image:
        return header_of(image)


def _dataset(
    found: _Found, usable: Examples, classes: Sequence[str] | None, where: str
) -> ImageDataset:
    """The usable images, with labels encoded by the task."""
    names = classes or found.task.find_classes(found.examples.labels.distinct(), found.titles)
    task = found.task(tuple(names))
    labels = task.encode(usable.labels, found.titles, where, complete=classes is None)
    labels.setflags(write=False)
    masks = Masks(found.source, class_numbers(found.titles, task.classes)) if task.dense else None
    return ImageDataset(found.source, usable.names, labels, task, masks)


def _divide(
    dataset: ImageDataset, examples: Examples, val_fraction: float | None, seed: int
) -> tuple[ImageDataset, ImageDataset]:
    """The division that the user made, or else that of ``stratify`` over the task's groups."""
    task = dataset.labeled
    validation = [number for number, part in enumerate(examples.parts.values) if part in VALIDATION]
    validates = np.isin(examples.parts.numbers, validation)
    if validates.any():
        train, val = np.flatnonzero(~validates), np.flatnonzero(validates)
    else:
        train, val = stratify(dataset.groups, val_fraction=val_fraction, seed=seed)
        if val_fraction is not None and len(train) and len(val):
            task.check_division(dataset.labels, dataset.names)
    return dataset.subset(train), dataset.subset(val)


def _check_exists(path: Path) -> None:
    """Check that something exists at the user's path."""
    with reading(shown(str(path)), remedy="check the path and its permissions"):
        found = path.exists()
    if not found:
        raise PocketuneError(f"{shown(str(path))} does not exist; check the path")


def _check_any(known: Examples, skipped: Sequence[Skipped], where: str) -> None:
    """Check that at least one file is an image."""
    if known:
        return
    first = f"; the first, {shown(skipped[0].name)}: {skipped[0].reason}" if skipped else ""
    raise PocketuneError(
        f"{where} has no readable image among its {counted(len(skipped), 'file')}{first}"
    )
