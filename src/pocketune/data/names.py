"""Many file names in few bytes: about seven each where they are sorted, instead of ninety."""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import overload

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]

_BLOCK = 16
"""Names that are unpacked together to read one of them."""
_END = b"\xff"  # no byte of UTF-8
_LONGEST = 254  # bytes that a name shares with the one before it: less than the end of a name


class Names(Sequence[str]):
    """An immutable sequence of file names, packed.

    A name is stored as the number of bytes that it begins with like the name before it, and the
    rest. Every sixteenth name is stored whole, so that one name can be read without the others.

    Args:
        names: The names. Characters that are not valid Unicode, which Python reads names of other
            encodings with, are kept.
    """

    __slots__ = ("_blocks", "_order", "_packed")
    __hash__ = None  # type: ignore[assignment]  # as of other sequences that are equal to lists

    def __init__(self, names: Iterable[str] = ()) -> None:
        packing = Packing()
        for name in names:
            packing.add(name)
        self._packed, self._blocks = packing.packed()
        self._order: npt.NDArray[np.unsignedinteger] | range = range(packing.count)

    @classmethod
    def of(cls, packing: Packing) -> Names:
        """The names that were added."""
        made = cls.__new__(cls)
        made._packed, made._blocks = packing.packed()
        made._order = range(packing.count)
        return made

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Names: ...
    def __getitem__(self, index: int | slice) -> str | Names:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        block, position = divmod(int(self._order[index]), _BLOCK)
        return next(islice(self._unpacked(block), position, None))

    def __iter__(self) -> Iterator[str]:
        if isinstance(self._order, range):
            blocks = range(-(-len(self) // _BLOCK))
            return (name for block in blocks for name in self._unpacked(block))
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(map(str.__eq__, self, other))

    def __repr__(self) -> str:
        return f"Names({list(self)!r})"

    def take(self, indices: Indices) -> Names:
        """The names at these indices, in that order; the packed bytes are shared."""
        if len(indices) == len(self) and (indices == np.arange(len(self))).all():
            return self
        taken = Names.__new__(Names)
        taken._packed, taken._blocks = self._packed, self._blocks
        chosen = indices if isinstance(self._order, range) else self._order[indices]
        taken._order = chosen.astype(np.uint32)
        return taken

    def find(self, name: str) -> int | None:
        """The index of a name among sorted ones; None if it is not there."""
        index = bisect_left(self, name)
        return index if index < len(self) and self[index] == name else None

    @property
    def is_ascending(self) -> bool:
        """Whether the names are sorted, and each is there once."""
        return all(one < other for one, other in pairwise(self))

    def folders(self) -> tuple[list[str], npt.NDArray[np.uint32]]:
        """The folders that the files are in, and which of them each name (n,) is in.

        A folder is the part of a name before its last slash; empty without one.
        """
        known: dict[str, int] = {}
        places = (known.setdefault(name.rpartition("/")[0], len(known)) for name in self)
        numbers = np.fromiter(places, np.uint32, len(self))
        return list(known), numbers

    def _unpacked(self, block: int) -> Iterator[str]:
        """The names of a block."""
        start, stop = int(self._blocks[block]), int(self._blocks[block + 1])
        name = b""
        for each in self._packed[start:stop].split(_END)[:-1]:
            name = name[: each[0]] + each[1:]
            yield name.decode("utf-8", "surrogatepass")


class Packing:
    """Packs names as they come.

    Attributes:
        count: Names so far.
    """

    def __init__(self) -> None:
        self._packed, self._blocks, self._before = bytearray(), array("Q"), b""
        self.count = 0

    def add(self, name: str) -> None:
        """The next name."""
        text = name.encode("utf-8", "surrogatepass")
        shared = 0
        if self.count % _BLOCK:
            shared = _shared(self._before, text)
        else:
            self._blocks.append(len(self._packed))
        self._packed.append(shared)
        self._packed += text[shared:]
        self._packed += _END
        self._before = text
        self.count += 1

    def packed(self) -> tuple[bytes, npt.NDArray[np.uint64]]:
        """All names, and where each block begins and the last one ends."""
        return bytes(self._packed), np.array([*self._blocks, len(self._packed)], np.uint64)


def _shared(one: bytes, other: bytes) -> int:
    """The number of bytes that both begin with."""
    size = min(len(one), len(other), _LONGEST)
    differing = int.from_bytes(one[:size], "big") ^ int.from_bytes(other[:size], "big")
    return size - (differing.bit_length() + 7) // 8


def name_digests(names: Iterable[str]) -> npt.NDArray[np.uint32]:
    """A checksum (n,) of each name."""
    digests = (zlib.crc32(name.encode("utf-8", "surrogatepass")) for name in names)
    return np.fromiter(digests, "<u4")
