"""Images inside a .zip, read in place: nothing is ever extracted to disk."""

from __future__ import annotations

import posixpath
import threading
import zipfile
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, TYPE_CHECKING

from pocketune.data.skipped import shown
from pocketune.data.sources import FolderSource, users_own
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Iterator

ENCRYPTED = 0x1  # bit of a member's flags


class ZipSource:
    """The files of a .zip archive.

    Raises:
        PocketuneError: if the file is no zip archive, is encrypted, or holds a path that leads out
            of it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            self._archive = zipfile.ZipFile(root)
        except (zipfile.BadZipFile, OSError) as error:
            raise PocketuneError(
                f"{shown(str(root))} cannot be opened as a zip archive ({error}); pack it again"
            ) from error
        # ZipFile counts its open members without a lock, so opening and closing take turns here.
        self._turn = threading.Lock()
        self._members: dict[str, zipfile.ZipInfo] = {}
        for member in self._archive.infolist():
            self._check(member)
            name = member.filename.replace("\\", "/")  # some packers write these
            if not name.endswith("/"):
                self._members[posixpath.normpath(name)] = member

    def names(self) -> list[str]:
        """The user's own files of the archive, sorted."""
        return users_own(self._members)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """The member ``name``, decompressed as it is read."""
        with self._turn:
            try:
                file = self._archive.open(self._members[name])
            except KeyError as error:
                raise FileNotFoundError(name) from error
        try:
            yield file
        finally:
            with self._turn:
                file.close()

    def _check(self, member: zipfile.ZipInfo) -> None:
        archive, name = shown(str(self.root)), shown(member.filename)
        if not is_inside(member.filename):
            raise PocketuneError(
                f"{archive} holds {name!r}, a path that leads out of the archive; pack it again "
                "from inside the folder"
            )
        if member.flag_bits & ENCRYPTED:
            raise PocketuneError(f"{archive} is encrypted; pack it again without a password")


class PathSource(FolderSource):
    """Files by their own paths, where an archive counts as a folder: ``photos.zip/cats/1.jpg``."""

    def __init__(self) -> None:
        super().__init__(Path())
        self._archives: dict[Path, ZipSource] = {}

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """The file ``name``, on disk or in an archive."""
        archive = next(filter(is_archive, Path(name).parents), None)
        if archive is None:
            with super().open(name) as file:
                yield file
            return
        if archive not in self._archives:
            self._archives[archive] = ZipSource(archive)
        with self._archives[archive].open(Path(name).relative_to(archive).as_posix()) as file:
            yield file


def is_archive(path: Path) -> bool:
    """Whether a path is that of a .zip file."""
    return path.suffix.lower() == ".zip" and path.is_file()


def is_inside(name: str) -> bool:
    """Whether an archive member's name stays below the archive, on every operating system."""
    windows = PureWindowsPath(name)
    rooted = bool(windows.drive or windows.root) or PurePosixPath(name).is_absolute()
    return not rooted and ".." not in windows.parts
