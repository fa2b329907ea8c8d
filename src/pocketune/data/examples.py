"""Image files with their labels, many of them in little memory."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, cast, overload

import numpy as np
import numpy.typing as npt

from pocketune.arrays import distinct
from pocketune.data.names import Indices, Names, Packing
from pocketune.errors import PocketuneError
from pocketune.files import shown
from pocketune.tasks.segmentation import Mask


class Example(NamedTuple):
    """An image file and its label.

    Attributes:
        name: The file.
        label: The label that a task's reader returns, or the name of the class folder.
        part: The one of `PARTS` that it belongs to; None if the data is not divided.
    """

    name: str
    label: Hashable
    part: str | None = None


class Repeated(Sequence[Hashable]):
    """Values of which many are equal: each is kept once, with a number for each place.

    Attributes:
        values: The values that occur, and possibly others.
        numbers: uint32 (n,), the position in `values` of each.
    """

    __slots__ = ("numbers", "values")
    __hash__ = None  # type: ignore[assignment]  # as of other sequences

    def __init__(self, values: tuple[Hashable, ...], numbers: npt.NDArray[np.uint32]) -> None:
        self.values, self.numbers = values, numbers

    @classmethod
    def of(cls, values: Iterable[Hashable]) -> Repeated:
        """Packs the values."""
        counting = _Counting()
        for value in values:
            counting.add(value)
        return counting.done()

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> Hashable: ...
    @overload
    def __getitem__(self, index: slice) -> Repeated: ...
    def __getitem__(self, index: int | slice) -> Hashable | Repeated:
        if isinstance(index, slice):
            return Repeated(self.values, self.numbers[index])
        value: Hashable = self.values[self.numbers[index]]
        return value

    def __iter__(self) -> Iterator[Hashable]:
        return map(self.values.__getitem__, self.numbers)

    def __repr__(self) -> str:
        return f"Repeated({list(self)!r})"

    def take(self, indices: npt.NDArray[np.integer]) -> Repeated:
        """The values at these indices, in that order."""
        return Repeated(self.values, self.numbers[indices])

    def distinct(self) -> list[Hashable]:
        """Each value that occurs, once."""
        return [self.values[number] for number in distinct(self.numbers)]


class MaskLabels(Sequence[Mask]):
    """Masks as labels, with their pixels, packed; each is made when it is asked for."""

    __slots__ = ("_ends", "_names", "_pixels", "_values")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, names: Names, ends: array[int], values: array[int], pixels: array[int]
    ) -> None:
        self._names, self._ends, self._values, self._pixels = names, ends, values, pixels

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> Mask: ...
    @overload
    def __getitem__(self, index: slice) -> MaskLabels: ...
    def __getitem__(self, index: int | slice) -> Mask | MaskLabels:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        return Mask(self._names[index], self._counts(range(len(self))[index]))

    def __iter__(self) -> Iterator[Mask]:
        return map(Mask, self._names, map(self._counts, range(len(self))))

    def take(self, indices: npt.NDArray[np.integer]) -> MaskLabels:
        """The masks at these indices, in that order."""
        packing = _PackingMasks()
        for index in indices.tolist():
            packing.add(self[index])
        return packing.done()

    def distinct(self) -> MaskLabels:
        """All of them."""
        return self

    def _counts(self, place: int) -> tuple[tuple[int, int], ...]:
        some = slice(self._ends[place], self._ends[place + 1])
        return tuple(zip(self._values[some], self._pixels[some], strict=True))


class Examples(Sequence[Example]):
    """An immutable sequence of examples, packed; each is made when it is asked for.

    Attributes:
        names: Their files.
        labels: Their labels.
        parts: Their parts.
    """

    __slots__ = ("labels", "names", "parts")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, examples: Iterable[Example] = ()) -> None:
        names, parts = Packing(), _Counting()
        labels: _Counting | _PackingMasks = _Counting()
        for name, label, part in examples:
            if isinstance(label, Mask) and not names.count:
                labels = _PackingMasks()
            names.add(name)
            labels.add(label)
            parts.add(part)
        self.names = Names.of(names)
        self.labels: Repeated | MaskLabels = labels.done()
        self.parts = parts.done()

    @classmethod
    def of(cls, names: Names, labels: Repeated | MaskLabels, parts: Repeated) -> Examples:
        """The examples of these names, with a label and a part for each."""
        made = cls.__new__(cls)
        made.names, made.labels, made.parts = names, labels, parts
        return made

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> Examples: ...
    def __getitem__(self, index: int | slice) -> Example | Examples:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        part = cast("str | None", self.parts[index])
        return Example(self.names[index], self.labels[index], part)

    def __iter__(self) -> Iterator[Example]:
        return map(Example, self.names, self.labels, cast("Sequence[str | None]", self.parts))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __repr__(self) -> str:
        return f"Examples({list(self)!r})"

    def take(self, indices: Indices) -> Examples:
        """The examples at these indices, in that order."""
        chosen = self.labels.take(indices), self.parts.take(indices)
        return Examples.of(self.names.take(indices), *chosen)

    def of_parts(self, parts: Iterable[Hashable]) -> Examples:
        """The examples of some of the parts."""
        chosen = [number for number, part in enumerate(self.parts.values) if part in set(parts)]
        return self.take(np.flatnonzero(np.isin(self.parts.numbers, chosen)))

    def sorted(self) -> Examples:
        """The examples by name, then by label and part; those of folders are sorted already."""
        if self.names.is_ascending:
            return self
        names = list(self.names)
        order = sorted(range(len(self)), key=names.__getitem__)
        if any(names[one] == names[other] for one, other in pairwise(order)):
            order.sort(key=self.__getitem__)
        chosen = np.array(order, np.int64)
        labels, parts = self.labels.take(chosen), self.parts.take(chosen)
        return Examples.of(Names(names[index] for index in order), labels, parts)


def unique(examples: Examples, *lists: str) -> Examples:
    """Each file once.

    Args:
        examples: Those of all parts; more than one may be of a file.
        lists: The files that list them, for messages.

    Raises:
        PocketuneError: A file has two labels, or is in two parts.
    """
    hashes = np.fromiter(map(hash, examples.names), np.int64, len(examples))
    values, counts = np.unique(hashes, return_counts=True)
    if len(values) == len(examples):
        return examples
    found: dict[str, Example] = {}
    repeated = []
    for index in np.flatnonzero(np.isin(hashes, values[counts > 1])).tolist():
        example = examples[index]
        first = found.setdefault(example.name, example)
        if first != example:
            several = len(lists) > 1
            raise PocketuneError(
                f"{' and '.join(map(shown, lists))} {'list' if several else 'lists'} "
                f"{shown(example.name)} twice, with different labels or splits; "
                + ("remove it from one of them" if several else "keep one line")
            )
        if first is not example:
            repeated.append(index)
    return examples.take(np.setdiff1d(np.arange(len(examples)), repeated))


class _Counting:
    """Numbers values as they come."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        self._numbers = array("I")

    def add(self, value: Hashable) -> None:
        self._numbers.append(self._known.setdefault(value, len(self._known)))

    def done(self) -> Repeated:
        return Repeated(tuple(self._known), np.array(self._numbers, np.uint32))


class _PackingMasks:
    """Packs masks as they come."""

    def __init__(self) -> None:
        self._names = Packing()
        self._ends, self._values, self._pixels = array("Q", [0]), array("B"), array("Q")

    def add(self, mask: Hashable) -> None:
        assert isinstance(mask, Mask)  # as the first one
        for value, count in mask.pixels:
            self._values.append(value)
            self._pixels.append(count)
        self._ends.append(len(self._values))
        self._names.add(mask.name)

    def done(self) -> MaskLabels:
        return MaskLabels(Names.of(self._names), self._ends, self._values, self._pixels)
