"""Find the labeled files, and the images to predict, at the path that a user gives."""

from __future__ import annotations

import os
import posixpath
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from pocketune.data.examples import Examples
from pocketune.data.labels.layouts import (
    TestUse,
    are_of_photos,
    has_folder,
    in_class_folders,
    in_use,
    is_annotations,
    wrapper,
)
from pocketune.data.labels.listings import choose_tables, read_tables
from pocketune.data.labels.lists import content, read_list
from pocketune.data.labels.rows import is_table
from pocketune.data.labels.tables import has_titles
from pocketune.data.masks.coco import SUFFIX, read_annotations
from pocketune.data.masks.colored import LABEL_MAP, ColoredSource, parse_label_map
from pocketune.data.masks.drawn import Drawn
from pocketune.data.masks.labelme import is_labelme, read_labelme
from pocketune.data.masks.pairs import FOLDERS, VOC_FOLDERS, read_pairs
from pocketune.data.masks.values import NAMES_FILES
from pocketune.data.masks.yolo import FOLDERS as LABEL_FOLDERS
from pocketune.data.masks.yolo import YoloSource, read_yolo
from pocketune.data.names import Names
from pocketune.data.sources import FolderSource, Source, ZipSource, is_archive, is_inside
from pocketune.errors import PocketuneError, Remedy, printable
from pocketune.files import reading, shown
from pocketune.tasks import TASKS, Task
from pocketune.tasks.segmentation import Mask

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class Found(NamedTuple):
    """Labeled files and what is known of their labels.

    Attributes:
        source: The folder or archive that holds the files.
        examples: The labeled files.
        task: The task that reads the labels.
        titles: Titles of its columns; or the class of each value of masks.
        outside: Files outside the class folders.
        unlabeled: Files among the images that have no label.
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
    unlabeled: Names = Names()


def find(path: Path, tasks: Sequence[type[Task]], test: TestUse) -> Found:
    """The labeled files at the user's path; none is opened but a CSV."""
    _check_exists(path)
    if path.is_file() and is_table(path.name):
        return _tables(FolderSource(path.parent), [path.name], tasks, test)
    if path.is_file() and path.suffix.lower() == SUFFIX:
        beside = FolderSource(path.parent)
        drawn = read_annotations([path.name], beside.names(), beside, test)
        return _of_drawn(drawn, path.name, tasks, shown(str(path)))
    if not path.is_dir() and not is_archive(path):
        raise PocketuneError(
            f"{shown(str(path))} is neither a folder nor a .csv, .tsv, .json, .jsonl or .zip file"
        )
    source = _source(path)
    names, where = source.names(), shown(str(path))
    if not names:
        raise PocketuneError(f"{where} is empty; put a folder of images for each class there")
    prefix = wrapper(names)
    tables = choose_tables(source, names, prefix)
    dense = [task for task in tasks if task.dense]
    if tables and dense and _has_titles(source, tables[0], dense):
        return _tables(source, tables, dense, test, names)
    paired = has_folder(names, (*FOLDERS, *VOC_FOLDERS))
    if paired and (pairs := read_pairs(names, source, where, test)) is not None:
        return _paired(source, names, pairs.sorted(), _of_masks(tasks, where), prefix)
    examples, outside = in_class_folders(names)
    classes = in_use(examples).labels.distinct()
    divided = (
        len(classes) > 1
        and not (tables and are_of_photos(classes))
        and {str(each).casefold() for each in classes} != set(LABEL_FOLDERS)
    )
    try:
        outlined = _drawn(source, names, tasks, test, where) if dense or not divided else None
    except PocketuneError:  # beside class folders, a file may have the name of annotations
        if not divided or len(dense) == len(tasks):
            raise
        outlined = None
    if outlined is not None:
        return outlined
    if tables and not divided:
        return _tables(source, tables, tasks, test, names)
    if not examples:
        raise PocketuneError(
            f"{where} has no class folders; put each class's images into a folder of its name"
        )
    used = in_use(examples, test)
    task, empty = _of_folders(tasks, where), map(printable, source.empty_folders())
    return Found(source, used.sorted(), task, outside=outside, empty=tuple(empty))


def has_test(path: str | os.PathLike[str]) -> bool:
    """Whether labeled images have a part `test`; no image is opened.

    Raises:
        PocketuneError: The path or its content cannot be used; the message says why.
    """
    return bool(find(Path(path), tuple(TASKS.values()), "only").examples)


def task_of(path: str | os.PathLike[str]) -> type[Task]:
    """The task of labeled images; no image is opened.

    Raises:
        PocketuneError: The path or its content cannot be used; the message says why.
    """
    return find(Path(path), tuple(TASKS.values()), "hold out").task


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


def labeled_files(path: str | Path) -> tuple[Source, list[str], frozenset[str]]:
    """The files that labeled photos consist of, and those of them that are masks.

    Returns:
        The folder or archive; its files, and of a CSV only those that it names and itself; and the
        names of masks.

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


def open_images(paths: Iterable[str | Path], *, once: bool = True) -> list[str]:
    """Paths of the images to predict: the files themselves, and all files in folders and .zips.

    Files are not opened. A file that is not an image is found when it is decoded. Images that
    several paths name are there as often, unless `once`.

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
    return list(dict.fromkeys(found)) if once else found


def _source(path: Path) -> Source:
    return ZipSource(path) if is_archive(path) else FolderSource(path)


def _check_exists(path: Path) -> None:
    """Check that something exists at the user's path."""
    with reading(shown(str(path)), remedy="check the path and its permissions"):
        found = path.exists()
    if not found:
        raise PocketuneError(f"{shown(str(path))} does not exist; check the path")


def _paired(source: Source, names: Names, pairs: Examples, task: type[Task], prefix: str) -> Found:
    """Images and masks in folders, with the names of classes beside these."""
    label_map = f"{prefix}{LABEL_MAP}"
    if names.find(label_map) is None:
        listed = _listed(source, prefix, f"{prefix}{FOLDERS[1]}")
        return Found(source, pairs, task, listed=listed)
    colors, titles = parse_label_map(read_list(source, label_map), label_map)
    masks = Names(sorted(mask.name for mask in cast("Sequence[Mask]", pairs.labels)))
    return Found(ColoredSource(source, masks, colors), pairs, task, listed=(label_map, titles))


def _tables(
    source: Source,
    tables: Sequence[str],
    tasks: Sequence[type[Task]],
    test: TestUse,
    names: Names | None = None,
) -> Found:
    """The labeled files that tables list."""
    found = read_tables(source, tables, tasks, test, names)
    listed = _listed(source, posixpath.dirname(tables[0])) if found.task.dense else None
    return Found(source, found.examples, found.task, found.titles, listed=listed)


def _has_titles(source: Source, name: str, tasks: Sequence[type[Task]]) -> bool:
    """Whether a table has the columns of one of these tasks."""
    return has_titles(read_list(source, name), name, tasks)


def _drawn(
    source: Source, names: Names, tasks: Sequence[type[Task]], test: TestUse, where: str
) -> Found | None:
    """The images whose masks are drawn from outlines; None if there are no files of these."""
    files = [name for name in names if name.lower().endswith(SUFFIX)]
    if annotations := [name for name in files if is_annotations(name)]:
        found = read_annotations(annotations, names, source, test)
        return _of_drawn(found, annotations[0], tasks, where)
    labels = all(has_folder(names, [each]) for each in LABEL_FOLDERS)
    if labels and (folders := read_yolo(names, source, where, test)) is not None:
        return _of_drawn(folders, where, tasks, where)
    if files and is_labelme(files, source):
        return _of_drawn(read_labelme(files, names, source, test), files[0], tasks, where)
    return None


def _of_drawn(found: Drawn, file: str, tasks: Sequence[type[Task]], where: str) -> Found:
    """What is found, with the classes of the values of the masks that are drawn."""
    task = _of_masks(tasks, where)
    return Found(
        found.source,
        found.examples.sorted(),
        task,
        listed=(file, found.names),
        unlabeled=found.unlabeled,
    )


def _of_folders(tasks: Sequence[type[Task]], where: str) -> type[Task]:
    """The task whose labels are the names of folders."""
    for task in tasks:
        if task.has_folders:
            return task
    wanted = "masks" if tasks[0].dense else tasks[0].noun
    raise PocketuneError(
        f"{where} gives each image a class by its folder, but {wanted} are needed: give a CSV of "
        f"{tasks[0].table}",
        remedy=Remedy("classes", "use a kit for classes"),
    )


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


def _listed(source: Source, *folders: str) -> tuple[str, bytes] | None:
    """The file of the names of classes in one of these folders, and its bytes; None without."""
    for folder, name in product(folders, NAMES_FILES):
        with suppress(OSError), source.open(posixpath.join(folder, name)) as file:
            return name, content(file, name)
    return None
