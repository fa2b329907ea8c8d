"""The two forms of a kit on disk, a folder and a .zip of it, read through one interface."""

import contextlib
import mmap
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from safetensors import SafetensorError

from pocketune import files
from pocketune.files import ARCHIVE_DAMAGE, shown
from pocketune.kit.bundled import list_kits
from pocketune.kit.manifest import KitError
from pocketune.kit.names import MANIFEST
from pocketune.kit.packed import Packed, RunFile

_DAMAGE = (*ARCHIVE_DAMAGE, SafetensorError, KeyError)
"""Errors that the readers of archives and tensors raise for a damaged file."""


class Storage(Protocol):
    """Reads the files of a kit by name.

    Attributes:
        path: The kit's folder or .zip.
        folder: The folder of the files; None in a .zip.
    """

    path: Path
    folder: Path | None

    def open(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
        """The file as a stream of bytes; raises `FileNotFoundError` if it does not exist."""
        ...

    def size(self, name: str) -> int:
        """Bytes of the file, unpacked; raises `FileNotFoundError` if it does not exist."""
        ...

    def find(self, name: str) -> RunFile | None:
        """The file, not opened yet; None if it does not exist."""
        ...


class FolderStorage:
    """A kit in a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder: Path | None = path

    def open(self, name: str) -> BinaryIO:
        """The file as a stream of bytes."""
        return files.regular(self.path / name).open("rb")

    def size(self, name: str) -> int:
        """Bytes of the file."""
        return (self.path / name).stat().st_size

    def find(self, name: str) -> Path | None:
        """The path of the file; None if it does not exist."""
        path = self.path / name
        with reading(self.path, name):
            return path if files.regular(path).is_file() else None


class ZipStorage:
    """A kit in a .zip; its files are at the top, or in one folder as most tools pack them.

    Raises:
        KitError: The .zip holds several kits beside one another.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder: Path | None = None
        with zipfile.ZipFile(path) as archive:
            self._names = frozenset(archive.namelist())
        manifests = [name for name in self._names if name.split("/")[-1] == MANIFEST]
        folders = sorted(name[: -len(MANIFEST)] for name in manifests) or [""]
        self._prefix = min(folders, key=len)
        beside = [folder for folder in folders if not folder.startswith(self._prefix)]
        if beside:
            names = [shown(folder.rstrip("/")) for folder in (self._prefix, beside[0])]
            raise KitError(
                f"{path} holds several kits or runs, such as {' and '.join(names)}: pack each in a "
                ".zip of its own"
            )

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """The file as a stream of bytes, unpacked while it is read."""
        packed = self.find(name)
        if packed is None:
            raise FileNotFoundError(name)
        with packed.open() as stream:
            yield stream

    def size(self, name: str) -> int:
        """Bytes of the file when it is unpacked. No more are read, whatever it holds."""
        with zipfile.ZipFile(self.path) as archive:
            try:
                return archive.getinfo(self._prefix + name).file_size
            except KeyError:
                raise FileNotFoundError(name) from None

    def find(self, name: str) -> Packed | None:
        """The file in the .zip; None if it does not exist."""
        name = self._prefix + name
        return Packed(self.path, name) if name in self._names else None


def open_storage(path: Path) -> Storage:
    """The storage at a path.

    Raises:
        KitError: Nothing exists at the path, or it is neither a folder nor a .zip, or a .zip of
            several kits.
    """
    with reading(path):
        if path.is_dir():
            return FolderStorage(path)
        if not path.exists():
            raise KitError(
                f"there is no kit or run at {path}: check the path, or name a bundled kit, "
                f"{' or '.join(list_kits())}"
            )
        if not zipfile.is_zipfile(files.regular(path)):
            if path.suffix.lower() == ".zip":
                raise KitError(f"{path} is damaged: it is not a whole .zip; copy it again")
            raise KitError(f"{path} is not a kit: it is neither a folder nor a .zip")
        return ZipStorage(path)


def run_file(path: Path, name: str) -> RunFile | None:
    """A file of the run at a path, a folder or a .zip of it; None if it does not exist.

    Raises:
        KitError: The .zip is damaged, or holds several runs.
    """
    with reading(path):
        if not path.is_dir() and zipfile.is_zipfile(files.regular(path)):
            return ZipStorage(path).find(name)
    return FolderStorage(path).find(name)


@contextlib.contextmanager
def reading(path: Path, name: str | None = None) -> Iterator[None]:
    """Turn any error while a file of a kit is read into a `KitError`.

    Raises:
        KitError: The file is missing, damaged or cannot be read.
    """
    where = f"{name} of the kit {path}" if name else f"the kit {path}"
    with files.reading(where, *_DAMAGE, remedy="copy the kit again", raises=KitError):
        try:
            yield
        except FileNotFoundError as error:
            raise KitError(f"{where} is missing; copy the kit again") from error


@contextlib.contextmanager
def mapped(source: Path | bytes) -> Iterator[memoryview]:
    """The bytes of a file; those that are not looked at take no memory."""
    if isinstance(source, bytes):
        yield memoryview(source)
        return
    with files.regular(source).open("rb") as file:
        if not source.stat().st_size:  # cannot be mapped
            yield memoryview(b"")
            return
        yield memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
