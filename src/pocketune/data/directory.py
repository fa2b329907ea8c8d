"""The directory of a .zip without an object for each member, which would take 600 bytes."""

from __future__ import annotations

import io
import os
import posixpath
import struct
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from pocketune.data.names import Names

_AT_ONCE = 1000  # members that are read at once
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_MEMBER = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_LONG_EXTRA = 128  # bytes: what stands before a member is read with it
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
_LONGEST_COMMENT = 0xFFFF
_IN_EXTRA, _EXTRA64 = 0xFFFFFFFF, 1
_UTF8 = 0x800


class Directory:
    """The members of an archive by name, sorted.

    Which members there are, and their names, is found by the standard library, some of them at a
    time. Only the place of each one's entry is kept, which is read again to open it.

    Args:
        path: The archive.
        check: Called with each member.

    Raises:
        OSError: It cannot be read.
        zipfile.BadZipFile: It is not an archive.

    Attributes:
        names: The files, with forward slashes and normalized.
        folders: The folders that have an entry.
    """

    def __init__(self, path: Path, check: Callable[[zipfile.ZipInfo], None]) -> None:
        self._file, self._next = path.open("rb"), 0
        self._start, self._size, self._shift = _find(self._file)
        self.folders: list[str] = []
        places = array("Q")

        def names() -> Iterator[str]:
            for place, member in self._members():
                member.filename = _named(member)
                check(member)
                name = member.filename.replace("\\", "/")  # some packers write these
                if name.endswith("/"):
                    self.folders.append(posixpath.normpath(name))
                else:
                    places.append(place)
                    yield posixpath.normpath(name)

        packed = Names(names())
        order = _order(packed)
        small = np.min_scalar_type(self._start + self._size)
        self._places = np.array(places, np.uint64).astype(small)
        if order is not None:
            packed, self._places = Names(packed[i] for i in order), self._places[order]
        self.names = packed

    def member(self, name: str) -> zipfile.ZipInfo:
        """What is needed to open a member.

        Raises:
            FileNotFoundError: There is none of this name.
        """
        return self._parsed(self._bytes(self._place(name)))

    def beginning(self, name: str, size: int) -> bytes:
        """The first bytes of a member, if it is stored or deflated as most are; else nothing.

        Raises:
            FileNotFoundError: There is none of this name.
        """
        entry = self._bytes(self._place(name))
        member, length = self._parsed(entry), _MEMBER.unpack_from(entry)[10]
        self._file.seek(member.header_offset)
        data = self._file.read(_LOCAL.size + 2 * length + _LONG_EXTRA + size)
        if len(data) < _LOCAL.size or member.compress_type not in (STORED, DEFLATED):
            return b""
        *_, named, extra = _LOCAL.unpack_from(data)
        start = _LOCAL.size + named + extra
        if data[_LOCAL.size :][:named] != entry[_MEMBER.size :][:length]:
            return b""
        found = data[start : start + member.compress_size]
        if member.compress_type == DEFLATED:
            found = zlib.decompressobj(-zlib.MAX_WBITS).decompress(found, size)
        return found[:size]

    def _place(self, name: str) -> int:
        index = self._next  # members are often asked for in order
        if index == len(self.names) or self.names[index] != name:
            found = self.names.find(name)
            if found is None:
                raise FileNotFoundError(name)
            index = found
        self._next = index + 1
        return int(self._places[index])

    def _members(self) -> Iterator[tuple[int, zipfile.ZipInfo]]:
        """Each member with the place of its entry."""
        place, end = self._start, self._start + self._size
        while place < end:
            places: list[int] = []
            entries = bytearray()
            while place < end and len(places) < _AT_ONCE:
                entry = self._bytes(place)
                places.append(place)
                entries += entry
                place += len(entry)
            some = _END.pack(b"PK\5\6", 0, 0, len(places), len(places), len(entries), 0, 0)
            with zipfile.ZipFile(io.BytesIO(entries + some)) as archive:
                yield from zip(places, archive.infolist(), strict=True)

    def _bytes(self, place: int) -> bytes:
        """The entry of a member."""
        self._file.seek(place)
        fixed = self._file.read(_MEMBER.size)
        if len(fixed) < _MEMBER.size or not fixed.startswith(b"PK\1\2"):
            raise zipfile.BadZipFile("Bad magic number for central directory")
        return fixed + self._file.read(sum(_MEMBER.unpack(fixed)[10:13]))

    def _parsed(self, data: bytes) -> zipfile.ZipInfo:
        fields = _MEMBER.unpack_from(data)
        flags, method, crc, sizes = fields[3], fields[4], fields[7], [fields[9], fields[8]]
        name, extra = data[_MEMBER.size :][: fields[10]], data[_MEMBER.size + fields[10] :]
        member = zipfile.ZipInfo(name.decode("utf-8" if flags & _UTF8 else "cp437"))
        member.flag_bits, member.compress_type, member.CRC = flags, method, crc
        wide = _wide([*sizes, fields[16]], extra[: fields[11]])
        member.file_size, member.compress_size, offset = wide
        member.header_offset = offset + self._shift
        return member


def _named(member: zipfile.ZipInfo) -> str:
    """The name of a member; macOS and others write UTF-8 without the flag that says so."""
    if member.flag_bits & _UTF8 or member.filename.isascii():
        return member.filename
    try:
        return member.filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return member.filename


class Bare(io.RawIOBase):
    """A file with an empty directory behind it, so that `zipfile` opens it and reads nothing."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._size = self._file.seek(0, os.SEEK_END)
        self._end = _END.pack(b"PK\5\6", 0, 0, 0, 0, 0, 0, 0)
        self._position = 0

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See `io.RawIOBase`."""
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._position}
        start = starts.get(whence, self._size + len(self._end))
        if start + offset < 0:
            raise OSError("negative seek")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """See `io.RawIOBase`."""
        return self._position

    def read(self, size: int = -1) -> bytes:
        """See `io.RawIOBase`."""
        data = b""
        if self._position < self._size:
            self._file.seek(self._position)
            data = self._file.read(size)
        behind = max(0, self._position - self._size)
        if size < 0 or len(data) < size:
            missing = None if size < 0 else size - len(data)
            data += self._end[behind:][:missing]
        self._position += len(data)
        return data

    def close(self) -> None:
        """Close the file too."""
        self._file.close()
        super().close()


def _find(file: IO[bytes]) -> tuple[int, int, int]:
    """Start and size of the directory, and how far members lie behind where it says they do."""
    size = file.seek(0, os.SEEK_END)
    first = max(0, size - _LONGEST_COMMENT - _END.size)
    file.seek(first)
    tail = file.read()
    place = tail.rfind(b"PK\5\6")
    if place < 0 or len(tail) - place < _END.size:
        raise zipfile.BadZipFile("File is not a zip file")
    *_, length, offset, _ = _END.unpack_from(tail, place)
    end = first + place
    file.seek(max(0, end - _LOCATOR64.size))
    locator = file.read(_LOCATOR64.size)
    if locator.startswith(b"PK\6\7"):
        end -= _LOCATOR64.size + _END64.size
        file.seek(max(0, end))
        data = file.read(_END64.size)
        if len(data) < _END64.size or not data.startswith(b"PK\6\6"):
            raise zipfile.BadZipFile("Corrupt zip64 end of central directory record")
        *_, length, offset = _END64.unpack(data)
    start = end - length
    if start < 0 or start < offset:
        raise zipfile.BadZipFile("Bad offset for central directory")
    return start, length, start - offset


def _wide(values: list[int], extra: bytes) -> list[int]:
    """Sizes and offset; those that do not fit 32 bits are in the extra field."""
    while len(extra) >= 4 and _IN_EXTRA in values:
        kind, length = struct.unpack_from("<HH", extra)
        if kind == _EXTRA64:
            found = iter(struct.unpack_from(f"<{length // 8}Q", extra, 4))
            values = [next(found, v) if v == _IN_EXTRA else v for v in values]
        extra = extra[4 + length :]
    return values


def _order(names: Names) -> list[int] | None:
    """Positions in the order of the names, the last of those of one name; None if that is so."""
    if names.is_ascending:
        return None
    last = {name: position for position, name in enumerate(names)}
    return [last[name] for name in sorted(last)]
