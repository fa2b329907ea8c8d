"""Files on disk: naming them in messages, reading them, and replacing them atomically."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import shutil
import stat
import sys
import threading
import time
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pocketune.errors import PocketuneError, printable

if sys.platform == "darwin":
    import fcntl
if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import RawIOBase
    from typing import IO

    from pocketune.arrays import StrPath

ARCHIVE_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, UnicodeDecodeError)
"""Errors that the standard library raises for an archive that is damaged, encrypted (RuntimeError)
or of a version that it does not know."""


_CHUNK = 1 << 16
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))  # Windows has no quota
_NOT_FOR_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)
"""What flushing a folder raises on servers' and virtual machines' shares, which have no such call.
"""
_LONGEST = 200
"""Bytes of a name that are repeated in that of a temporary file; file systems allow 255."""
_OWNER = os.urandom(6).hex()
"""Names this process: another machine or container may write to the same folder."""
_PARTIAL = re.compile(r"\.(.+)\.[0-9a-f]+-[0-9]+\.partial", re.DOTALL)
_ABANDONED = 3600
"""Seconds without a change after which nobody is writing a temporary file any more."""


class Skipped(NamedTuple):
    """A file that is not used, and the reason in a few words."""

    name: str
    reason: str


def shown(name: str, limit: int = 80) -> str:
    """`name` for a message: printable, and shortened in the middle to `limit` characters."""
    name = printable(name)
    if len(name) <= limit:
        return name
    half = (limit - 3) // 2
    return f"{name[:half]}...{name[-half:]}"


@contextlib.contextmanager
def reading(
    what: object,
    *damage: type[Exception],
    remedy: str = "",
    raises: type[PocketuneError] = PocketuneError,
) -> Iterator[None]:
    """Turn an error while a file is read into one sentence.

    Args:
        what: The file, as the sentence names it: a path, or words such as `the kit photos.zip`.
        damage: Errors other than `OSError` that the reader raises for a damaged file.
        remedy: What the user can do; it follows the reason.
        raises: Class of the error to raise.

    Raises:
        PocketuneError: The file cannot be read or is damaged, and why.
    """
    try:
        yield
    except OSError as error:
        raise raises(f"{what} cannot be read: {_why(error, remedy)}") from error
    except damage as error:
        raise raises(f"{what} is damaged: {_why(error, remedy)}") from error


def stem_of(photos: StrPath) -> str:
    """The name of photos or a kit: that of the folder, or of the file without its suffix."""
    with reading(photos):
        path = Path(photos).resolve()  # ".." stands for a folder with a name
        return (path.name if path.is_dir() else path.stem) or "photos"


@contextlib.contextmanager
def writing(
    what: object,
    *failure: type[Exception],
    remedy: str = "",
    raises: type[PocketuneError] = PocketuneError,
) -> Iterator[None]:
    """Turn an error while a file is written into one sentence.

    Args:
        what: The file, as the sentence names it.
        failure: Errors other than `OSError` that the writer raises.
        remedy: What the user can do; it follows the reason.
        raises: Class of the error to raise.

    Raises:
        PocketuneError: The file cannot be written, and why.
    """
    expected: tuple[type[Exception], ...] = (OSError, *failure)
    try:
        yield
    except expected as error:
        raise raises(f"{what} cannot be written: {_why(error, remedy)}") from error


def make_folder_of(path: Path) -> None:
    """Create the folder that a file or folder is about to be written to, if there is none.

    Raises:
        PocketuneError: It cannot be created.
    """
    with writing(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error


def write_all(file: RawIOBase, content: bytes) -> None:
    """Write to an unbuffered file, which may take only a part when the disk is nearly full."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def sha256(stream: IO[bytes]) -> str:
    """SHA-256 of a stream in hexadecimal, which is read in pieces."""
    digest = hashlib.sha256()
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


@contextlib.contextmanager
def replacing(path: Path, *failure: type[Exception]) -> Iterator[Path]:
    """A temporary path; the file written there replaces `path`, atomically and durably.

    When the block ends, the file is flushed to the disk and renamed to `path`: after a crash or
    a power cut, `path` is the old file or the new one. If the block fails, the temporary file is
    removed. A file that is replaced passes its permissions on.

    Args:
        path: The file to write or replace; of a symbolic link, the file that it leads to.
        failure: Errors other than `OSError` that the writer raises.

    Raises:
        PocketuneError: The file cannot be written, or `path` is a device, a pipe or a socket;
            what was at `path` is unchanged, unless the message says that the new file is there.

    Example:
        >>> with replacing(Path("notes.txt")) as file:  # doctest: +SKIP
        ...     file.write_text("all of it, or nothing")
    """
    _refuse_special(path)
    if os.path.islink(path):  # what it leads to is replaced  # noqa: PTH114 - never fails
        path = Path(os.path.realpath(path))
    file, is_placed = partial(path), False
    _remove_abandoned(path.parent)
    try:
        yield file
        sync(file)
        if path.exists():
            shutil.copymode(path, file)  # after `sync`, which has to open it for writing
        file.replace(path)
        is_placed = True
        sync(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
        if not isinstance(error, (OSError, *failure)):
            raise
        if is_placed:
            raise PocketuneError(
                f"{path} is written, but may not survive a power cut: {_why(error, '')}"
            ) from error
        before = "; the file that was there is unchanged" if os.path.isfile(path) else ""  # noqa: PTH113 - never fails
        raise PocketuneError(f"{path} cannot be written: {_why(error, '')}{before}") from error


def _refuse_special(path: Path) -> None:
    """Refuse to replace a device, a pipe or a socket by a file."""
    with contextlib.suppress(OSError):  # which writing reports
        if _is_special(path):
            raise PocketuneError(f"{path} is not a regular file: choose another file to write")


def regular(path: Path) -> Path:
    """The path itself, for a file to read: a pipe may never be opened, and a device never end.

    Raises:
        OSError: There is neither a regular file nor a folder; or it cannot be told.
    """
    if _is_special(path):
        raise OSError("it is not a regular file")
    return path


def _is_special(path: Path) -> bool:
    """Whether a path is a device, a pipe or a socket, and neither a file nor a folder."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def refuse_undecodable(path: Path) -> None:
    """Refuse a path that the runtime cannot open.

    Raises:
        PocketuneError: It is not valid UTF-8.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise PocketuneError(
            f"{path} is not valid UTF-8, which the runtime needs: choose another name, or rename it"
        ) from error


def undecodable() -> str:
    """Why a name cannot be decoded, and the remedy."""
    encoding = sys.getfilesystemencoding()
    if encoding != "utf-8":
        return f"its name has letters that {encoding}, of the locale, lacks; set PYTHONUTF8=1"
    return "its name is not valid UTF-8; rename it"


def partial(path: Path) -> Path:
    """The temporary path of `replacing` in this thread: two may write to the same `path`."""
    owner = f"{_OWNER}-{threading.get_native_id()}"
    return path.with_name(f".{_shortened(path.name)}.{owner}.partial")


def is_partial(name: str, of: str) -> bool:
    """Whether `name` is that of a temporary file of the file `of`, of any process."""
    found = _PARTIAL.fullmatch(name)
    return found is not None and found[1] == _shortened(of)


def _shortened(name: str) -> str:
    """The name itself; of a long one the beginning and a checksum, so that more fits behind it."""
    data = os.fsencode(name)
    if len(data) <= _LONGEST:
        return name
    beginning = name[: _LONGEST // 4]  # of at most four bytes a character
    return f"{beginning}-{zlib.crc32(data):08x}"


@functools.cache  # once is enough, and a folder may get thousands of files
def _remove_abandoned(folder: Path) -> None:
    """Remove the temporary files that killed processes left."""
    with contextlib.suppress(OSError):
        for entry in list(folder.iterdir()):
            if _PARTIAL.fullmatch(entry.name) and time.time() - entry.stat().st_mtime > _ABANDONED:
                entry.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk, so that they survive a power cut."""
    if path.is_dir() and sys.platform == "win32":
        return  # Windows has no such call for folders and does not need it
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        _flush(descriptor)
    except OSError as error:
        if not path.is_dir() or error.errno not in _NOT_FOR_FOLDERS:
            raise
    finally:
        os.close(descriptor)


def _flush(descriptor: int) -> None:
    if sys.platform == "darwin":  # there, fsync leaves data in the memory of the drive
        with contextlib.suppress(OSError):  # of servers and others that know no such call
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def _why(error: BaseException, remedy: str) -> str:
    if not remedy and isinstance(error, OSError) and error.errno in _FULL:
        remedy = "make room"
    found = getattr(error, "strerror", None) or str(error) or type(error).__name__
    reason = shown(found.splitlines()[0], 300)  # other libraries write pages, with what they read
    return f"{reason}; {remedy}" if remedy else reason
