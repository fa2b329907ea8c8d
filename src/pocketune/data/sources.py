"""Sources of image files: a folder, or a .zip that is read in place and never extracted."""

from __future__ import annotations

import os
import stat
import threading
import zipfile
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, TYPE_CHECKING, NoReturn, Protocol

import numpy as np

from pocketune.data.directory import Bare, Directory
from pocketune.data.names import Names
from pocketune.errors import PocketuneError
from pocketune.files import ARCHIVE_DAMAGE, reading, shown, undecodable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OURS = (
    frozenset({"manifest.json", "step.onnx"}),
    frozenset({"metrics.jsonl"}),
    frozenset({"plan.json"}),
    frozenset({"compare.json"}),
)
"""Files by which the folder of a kit or run, a run without its kit, a plan and a comparison are
known. Users may keep them next to their photos."""
ENCRYPTED = 0x1  # bit in the flags of an archive member
_SYSTEM = frozenset({"__macosx", "thumbs.db", "desktop.ini", "@eadir"})
"""What macOS, Windows and storage servers add to folders and archives, in lower case."""
LONGEST_NAME = 4096
"""Most characters of a path, which is what Linux allows in a folder."""
_READING = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags with which opening a pipe does not wait for somebody to write into it."""


class Source(Protocol):
    """A tree of files that can be listed and read, by many threads at once."""

    @property
    def root(self) -> Path:
        """The folder or archive, for messages."""
        ...

    def names(self) -> Names:
        """The user's own files, relative to the root, with forward slashes, sorted."""
        ...

    def empty_folders(self) -> list[str]:
        """The user's own folders without files or folders, sorted."""
        ...

    def beginning(self, name: str, size: int) -> bytes:
        """The first `size` bytes of a file, or all if it has fewer; nothing of a device or a pipe.

        Raises:
            OSError, ValueError and others: The file cannot be read.
        """
        ...

    def open(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """A seekable binary file, closed on leaving the `with` block.

        Raises:
            OSError: The file is missing or may not be read.
        """
        ...

    def stamp(self, name: str) -> tuple[int, ...]:
        """The file's size, and numbers that differ once its content has changed.

        They are found without reading it.

        Raises:
            OSError: The file is missing.
        """
        ...


class FolderSource:
    """The files in a folder and its subfolders; links are followed, but no folder is read twice."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self) -> Names:
        """The user's own files under the root, sorted.

        Raises:
            PocketuneError: A folder may not be listed.
        """
        tops = [""]
        names = Names(self._walk(tops))
        return names if len(tops) == 1 else Names(sorted(names))

    def _walk(self, tops: list[str]) -> Iterator[str]:
        """The files in and below each of `tops`, sorted; links to folders are appended to it.

        So a folder is read before the links to it.
        """
        known = set(self.root.resolve().parents)
        for top in tops:
            levels = [iter([top])]
            while levels:
                name = next(levels[-1], None)
                if name is None:
                    levels.pop()
                elif name and not name.endswith("/"):
                    yield name
                elif (folder := (self.root / name).resolve()) not in known:
                    known.add(folder)
                    levels.append(iter(self._inside(name, tops)))

    def _inside(self, folder: str, links: list[str]) -> list[str]:
        """The user's own files in a folder and, with a slash, its folders; sorted."""
        found, linked = [], []
        try:
            with os.scandir(self.root / folder) as entries:
                for entry in entries:
                    if is_hidden(entry.name):
                        continue
                    if not _is_folder(entry):
                        found.append(folder + entry.name)
                    elif entry.is_symlink():
                        linked.append(f"{folder}{entry.name}/")
                    else:
                        found.append(f"{folder}{entry.name}/")
        except OSError as error:
            _refuse(error)
        if folder and _is_ours(set(found), folder):
            return []
        links += sorted(linked)
        return sorted(found)

    def empty_folders(self) -> list[str]:
        """See `Source`; links are not followed."""
        empty = [
            Path(folder)
            for folder, *inside in os.walk(self.root)
            if all(map(is_hidden, chain.from_iterable(inside)))
        ]
        return _not_hidden(folder.relative_to(self.root).as_posix() for folder in empty)

    def beginning(self, name: str, size: int) -> bytes:
        """See `Source`."""
        if not _is_text(name):
            return b""
        descriptor = os.open(os.path.join(self.root, name), _READING)  # noqa: PTH118 - is faster
        try:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return os.read(descriptor, size) if regular else b""
        finally:
            os.close(descriptor)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """The file `name`; an absolute name, which a CSV may hold, is used unchanged."""
        if not _is_text(name):
            raise OSError(undecodable())
        path = self.root / name
        if path.exists() and not path.is_file():  # opening a pipe would wait forever
            raise OSError("not a regular file")
        with path.open("rb") as file:
            yield file

    def stamp(self, name: str) -> tuple[int, ...]:
        """Size, and the times of the last change of content and of anything else.

        A program may restore the first time after it has changed a photo, but not the second.
        """
        found = os.stat(os.path.join(self.root, name))  # noqa: PTH116, PTH118 - for each photo of a step
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns


class ZipSource:
    """The files of a .zip archive.

    Raises:
        PocketuneError: The file is not a zip archive, is encrypted, or holds a path that leads out
            of it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        with reading(shown(str(root)), *ARCHIVE_DAMAGE, remedy="pack it again"):
            self._directory = Directory(root, self._check)
            self._archive = zipfile.ZipFile(Bare(root))
        # ZipFile counts its open members without a lock, and the directory moves in its file.
        self._turn = threading.Lock()

    def names(self) -> Names:
        """The user's own files of the archive, sorted."""
        return _users_own(self._directory.names)

    def empty_folders(self) -> list[str]:
        """See `Source`."""
        folders = _not_hidden(self._directory.folders)
        names = self._directory.names
        full = {name.rpartition("/")[0] for name in names if not is_hidden(name)}
        full |= {str(each) for name in (*full, *folders) for each in PurePosixPath(name).parents}
        return [name for name in folders if name not in full]

    def beginning(self, name: str, size: int) -> bytes:
        """See `Source`."""
        with self._turn:
            return self._directory.beginning(name, size)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """The member `name`, decompressed as it is read."""
        with self._turn:
            file = self._archive.open(self._directory.member(name))
        try:
            yield file
        finally:
            with self._turn:
                file.close()

    def stamp(self, name: str) -> tuple[int, ...]:
        """Size and checksum, from the archive's list of members."""
        with self._turn:
            member = self._directory.member(name)
        return member.file_size, member.CRC

    def _check(self, member: zipfile.ZipInfo) -> None:
        archive, name = shown(str(self.root)), shown(member.filename)
        if not is_inside(member.filename):
            raise PocketuneError(
                f"{archive} holds {name!r}, a path that leads out of the archive; pack it again "
                "from inside the folder"
            )
        if len(member.filename) > LONGEST_NAME:
            raise PocketuneError(
                f"{archive} holds {name!r}, a path of {len(member.filename):,} characters; pack it "
                f"again with paths of at most {LONGEST_NAME:,}"
            )
        if member.flag_bits & ENCRYPTED:
            raise PocketuneError(f"{archive} is encrypted; pack it again without a password")


class PathSource(FolderSource):
    """Files by path, with archives treated as folders: `photos.zip/cats/1.jpg`.

    No header is read before the image is.
    """

    def __init__(self) -> None:
        super().__init__(Path())
        self._archives: dict[Path, ZipSource] = {}

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """The file `name`, on disk or in an archive."""
        archive = self._archive_of(name)
        if archive is None:
            with super().open(name) as file:
                yield file
            return
        with self._opened(archive).open(Path(name).relative_to(archive).as_posix()) as file:
            yield file

    def stamp(self, name: str) -> tuple[int, ...]:
        """See `Source`."""
        archive = self._archive_of(name)
        if archive is None:
            return super().stamp(name)
        return self._opened(archive).stamp(Path(name).relative_to(archive).as_posix())

    def _archive_of(self, name: str) -> Path | None:
        return next(filter(is_archive, Path(name).parents), None)

    def _opened(self, archive: Path) -> ZipSource:
        if archive not in self._archives:
            self._archives[archive] = ZipSource(archive)
        return self._archives[archive]


def check_exists(path: Path) -> None:
    """Check that something exists at the user's path.

    Raises:
        PocketuneError: Nothing does, or a folder on the way may not be read.
    """
    with reading(shown(str(path)), remedy="check the path and its permissions"):
        found = path.exists()
    if not found:
        raise PocketuneError(f"{shown(str(path))} does not exist; check the path")


def source_at(path: Path) -> Source:
    """The files of a folder or archive."""
    return ZipSource(path) if is_archive(path) else FolderSource(path)


def is_archive(path: Path) -> bool:
    """Whether there is a .zip file at a path."""
    return path.suffix.lower() == ".zip" and path.is_file()


def is_inside(name: str) -> bool:
    """Whether an archive member's name stays below the archive, on every operating system."""
    windows = PureWindowsPath(name)
    rooted = bool(windows.drive or windows.root) or PurePosixPath(name).is_absolute()
    return not rooted and ".." not in windows.parts


def _users_own(names: Names) -> Names:
    """Sorted names without the system's files and without the folders of runs, kits and plans."""
    places, numbers = names.folders()
    marks = tuple(f"/{file}" for file in frozenset().union(*_OURS))
    held: dict[str, set[str]] = {}
    for name in names:
        if name.endswith(marks):
            place, _, file = name.rpartition("/")
            held.setdefault(place, set()).add(file)
    ours = tuple(f"{place}/" for place, files in held.items() if _is_ours(files))
    seen = [not (is_hidden(place) or f"{place}/".startswith(ours)) for place in places]
    files = (is_hidden(name.rpartition("/")[2]) for name in names)
    return names.take(
        np.flatnonzero(np.array(seen, bool)[numbers] & ~np.fromiter(files, bool, len(names)))
    )


def _is_ours(files: set[str], folder: str = "") -> bool:
    """Whether the folder of these files, whose names begin with it, was written by Pocketune."""
    return any(all(f"{folder}{mark}" in files for mark in marks) for marks in _OURS)


def _not_hidden(names: Iterable[str]) -> list[str]:
    """The sorted names without the system's files."""
    return sorted({name for name in names if not is_hidden(name)})


def is_hidden(name: str) -> bool:
    """Whether a file belongs to the system: dot files, and what is in `_SYSTEM`."""
    return any(part.startswith(".") or part.lower() in _SYSTEM for part in name.split("/"))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_text(name: str) -> bool:
    """Whether a file name is valid Unicode; other names could be neither printed nor saved."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _refuse(error: OSError) -> NoReturn:
    where = f"the folder {shown(str(error.filename))}"
    with reading(where, remedy="change its permissions"):
        raise error
