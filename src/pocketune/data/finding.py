"""Find the labeled files at the path that a user gives."""

from __future__ import annotations

import os
import posixpath
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
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
    wrapper,
)
from pocketune.data.labels.listings import choose_tables, read_tables, tables_of_files
from pocketune.data.labels.lists import content, read_list
from pocketune.data.labels.rows import is_table
from pocketune.data.labels.tables import has_titles
from pocketune.data.masks.coco import (
    ANNOTATIONS,
    SUFFIX,
    annotations_among,
    is_annotations,
    read_annotations,
)
from pocketune.data.masks.colored import LABEL_MAP, ColoredSource, parse_label_map
from pocketune.data.masks.drawn import Drawn
from pocketune.data.masks.labelme import is_labelme, read_labelme
from pocketune.data.masks.misnamed import misnamed_masks
from pocketune.data.masks.no_masks import NoMasks
from pocketune.data.masks.pairs import FOLDERS, VOC_FOLDERS, read_pairs
from pocketune.data.masks.values import NAMES_FILES
from pocketune.data.masks.yolo import FOLDERS as LABEL_FOLDERS
from pocketune.data.masks.yolo import read_yolo
from pocketune.data.names import Names
from pocketune.data.sources import FolderSource, Source, check_exists, is_archive, source_at
from pocketune.errors import PocketuneError, Remedy, printable
from pocketune.files import shown
from pocketune.tasks import TASKS, Task
from pocketune.tasks.segmentation import Mask

if TYPE_CHECKING:
    from collections.abc import Sequence

_WITH_MASKS = (FOLDERS, VOC_FOLDERS, LABEL_FOLDERS, ("annotations",))
"""Folders of images with what belongs to them, or of the latter alone, which are no classes."""


class NoClasses(PocketuneError):  # noqa: N818 - the name says what is missing
    """A folder or archive of files without labels."""


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
    """The labeled files at the user's path; none is opened but lists, and labels of outlines."""
    check_exists(path)
    if path.is_dir() or is_archive(path):
        return _Folder(source_at(path), shown(str(path)), tasks, test).find()
    beside = FolderSource(path.parent)
    if path.is_file() and is_table(path.name):
        return _of_tables(beside, [path.name], tasks, test)
    if path.is_file() and path.suffix.lower() == SUFFIX:
        file, folder = path.name, path.absolute().parent
        if folder.name.casefold() == ANNOTATIONS:  # beside that of the images
            file, beside = f"{folder.name}/{file}", FolderSource(folder.parent)
        drawn = read_annotations([file], beside.names(), beside, test)
        return _of_drawn(drawn, file, tasks, shown(str(path)))
    raise PocketuneError(
        f"{shown(str(path))} is neither a folder nor a .csv, .tsv, .json, .jsonl or .zip file"
    )


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


@dataclass(frozen=True)
class _Folder:
    """A folder or archive, whose labels may be kept in several ways.

    Attributes:
        source: Its files.
        where: Its path, for messages.
        tasks: The tasks that are looked for.
        test: What the photos of `test` are for.
    """

    source: Source
    where: str
    tasks: Sequence[type[Task]]
    test: TestUse

    def find(self) -> Found:
        """The labeled files by the first layout that the content has."""
        if not self.names:
            raise PocketuneError(
                f"{self.where} is empty; put a folder of images for each class there"
            )
        found = self._table_of_masks() or self._likely() or self._class_folders()
        if found is None:
            remedy = "put each class's images into a folder of its name"
            if isinstance(self.source, FolderSource) and _is_class(self.source.root, self.names):
                root = self.source.root
                named = root.parent.name and root.name != ".."
                parent = root.parent if named else root.resolve().parent
                remedy = (
                    f"folders beside it look like classes too: did you mean {shown(str(parent))}?"
                )
            raise NoClasses(f"{self.where} has no class folders; {remedy}")
        return found

    def _likely(self) -> Found | None:
        """The labeled files by masks, or else by a table or several class folders; None without.

        Files beside other labels may look like masks and be none. Masks that are damaged or missing
        are refused, or else a run would silently train on the others.
        """
        try:
            found = self._masks()
        except PocketuneError as error:
            if isinstance(error, NoMasks) or not self.dense:
                with suppress(PocketuneError):
                    if found := self._of_whole_images():
                        return found
            raise
        return found or self._of_whole_images()

    @cached_property
    def names(self) -> Names:
        return self.source.names()

    @cached_property
    def prefix(self) -> str:
        """The folder around everything, with its slash."""
        return wrapper(self.names)

    @cached_property
    def tables(self) -> list[str]:
        return choose_tables(self.source, self.names, self.prefix)

    @cached_property
    def dense(self) -> list[type[Task]]:
        """The tasks that read masks."""
        return [task for task in self.tasks if task.dense]

    @cached_property
    def in_classes(self) -> tuple[Examples, Names]:
        """The files in class folders, and those outside."""
        return in_class_folders(self.names)

    @cached_property
    def divided(self) -> bool:
        """Whether class folders, not a list of labels beside them, tell the classes."""
        classes = in_use(self.in_classes[0]).labels.distinct()
        folders = {str(each).casefold() for each in classes}
        return (
            len(classes) > 1
            and not (self.tables and are_of_photos(classes))
            and not any(folders.issuperset(each) for each in _WITH_MASKS)
        )

    def _table_of_masks(self) -> Found | None:
        if not self.tables or not self.dense:
            return None
        titles = read_list(self.source, self.tables[0])
        if not has_titles(titles, self.tables[0], self.dense):
            return None
        return _of_tables(self.source, self.tables, self.dense, self.test, self.names)

    def _pairs(self) -> Found | None:
        """Images and masks in folders, with the names of classes beside these."""
        if not has_folder(self.names, (*FOLDERS, *VOC_FOLDERS)):
            return None
        pairs = read_pairs(self.names, self.source, self.where, self.test)
        if pairs is None:
            return None
        pairs, task = pairs.sorted(), _of_masks(self.tasks, self.where)
        label_map = f"{self.prefix}{LABEL_MAP}"
        if self.names.find(label_map) is None:
            listed = _listed(self.source, self.prefix, f"{self.prefix}{FOLDERS[1]}")
            return Found(self.source, pairs, task, listed=listed)
        colors, titles = parse_label_map(read_list(self.source, label_map), label_map)
        masks = Names(sorted(mask.name for mask in cast("Sequence[Mask]", pairs.labels)))
        colored = ColoredSource(self.source, masks, colors)
        return Found(colored, pairs, task, listed=(label_map, titles))

    def _masks(self) -> Found | None:
        """Images with masks, or with outlines that these are drawn from."""
        return self._pairs() or self._outlines()

    def _of_whole_images(self) -> Found | None:
        """Images with labels of their own, in several class folders or else in a table."""
        if self.divided:
            return self._class_folders()
        if not self.tables:
            self._check_certain()
            return None
        return _of_tables(self.source, self.tables, self.tasks, self.test, self.names)

    def _check_certain(self) -> None:
        """Refuse several tables, none of which is chosen, where folders tell no classes either.

        Photos to evaluate or to calibrate on may lie beside tables of any kind.
        """
        if self.test != "hold out" or len(self.in_classes[0].labels.distinct()) > 1:
            return
        listing = tables_of_files(self.source, self.names, self.prefix)
        if len(listing) > 1:
            one, other = map(shown, listing[:2])
            raise NoClasses(
                f"{self.where} has {one} and {other}, and either may list its photos; call the one "
                "that is meant labels.csv, or give it in place of the folder"
            )

    def _outlines(self) -> Found | None:
        """Images whose masks are drawn from outlines."""
        if self.divided and not self.dense:
            return None
        files = [name for name in self.names if name.lower().endswith(SUFFIX)]
        if annotations := [name for name in files if is_annotations(name)]:
            found = read_annotations(annotations, self.names, self.source, self.test)
            return _of_drawn(found, annotations[0], self.tasks, self.where)
        if all(has_folder(self.names, [each]) for each in LABEL_FOLDERS):
            folders = read_yolo(self.names, self.source, self.where, self.test)
            if folders is not None:
                return _of_drawn(folders, self.where, self.tasks, self.where)
        if files and is_labelme(files, self.source):
            found = read_labelme(files, self.names, self.source, self.test)
            return _of_drawn(found, files[0], self.tasks, self.where)
        if self.tables or self.divided:  # these tell more than records in a file of any name
            return None
        if files and (known := annotations_among(files, self.source)):
            found = read_annotations(known, self.names, self.source, self.test)
            return _of_drawn(found, known[0], self.tasks, self.where)
        return None

    def _class_folders(self) -> Found | None:
        examples, outside = self.in_classes
        if not examples:
            return None
        pair = len(examples.labels.distinct()) == 2
        if pair and self.dense and (found := misnamed_masks(examples)):
            images, masks = map(shown, found)
            raise PocketuneError(
                f"{self.where} has folders {images} and {masks} with files of the same names, as "
                "photos and their masks have; call them images and masks to train on masks",
                remedy=Remedy("no masks", "or give a kit for classes if they are two classes"),
            )
        return Found(
            self.source,
            in_use(examples, self.test).sorted(),
            _of_folders(self.tasks, self.where),
            outside=outside,
            empty=tuple(map(printable, self.source.empty_folders())),
        )


def _is_class(folder: Path, names: Names) -> bool:
    """Whether a folder of files has a sibling with files of the same kind."""
    kinds = {posixpath.splitext(name)[1].lower() for name in names if "/" not in name} - {""}
    own = folder.resolve()
    with suppress(OSError):
        siblings = [each for each in own.parent.iterdir() if each != own and each.is_dir()]
        return any(file.suffix.lower() in kinds for each in siblings for file in each.iterdir())
    return False


def _of_tables(
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
    for folder, file in product(folders, NAMES_FILES):
        name = posixpath.join(folder, file)
        with suppress(OSError), source.open(name) as opened:
            return name, content(opened, name)
    return None
