"""Where the photos lie that a table lists: as it names them, or in a folder, with a suffix.

Tables often name photos without their folder or without a suffix: `id,breed` and `a1b2,pug`
for `train/a1b2.jpg`.
"""

from __future__ import annotations

import posixpath
import unicodedata
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from pocketune.data.labels.layouts import PARTS, TEST, part_of_photos
from pocketune.data.names import Names, name_digests
from pocketune.data.readable import read_headers
from pocketune.errors import PocketuneError
from pocketune.files import shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pocketune.data.sources import Source


class _Place(NamedTuple):
    """What a cell lacks of a file's name: `train/` before it and `.jpg` behind it."""

    folder: str
    suffix: str


_AS_IT_IS = _Place("", "")


class Places:
    """Finds the photos of a table by its cells.

    Args:
        source: The files.
        table: The name of the table; photos are looked for in its folder and below.
        names: All files of the source; None to list them if they are needed.
    """

    def __init__(self, source: Source, table: str, names: Names | None = None) -> None:
        self._source, self._names, self._table = source, names, table
        self._folder, file = posixpath.split(table)
        self._stem = posixpath.splitext(file)[0].casefold()
        self._places: list[_Place] = []
        """Those that a sample of the cells have; empty if they are names as they are."""
        self._others: dict[str, _Place] = {}
        """The places of cells that have none of these."""

    def are_photos(self, columns: Sequence[Sequence[str]]) -> list[bool]:
        """Whether most cells of each column name photos, each another one."""
        found = self._found({cell for cells in columns for cell in cells})
        return [
            len(set(cells)) == len(cells)
            and 2 * sum(cell in found or self._is_photo(tidy(cell)) for cell in cells) > len(cells)
            for cells in columns
        ]

    def are_names(self, cells: Iterable[str]) -> bool:
        """Whether most cells are names of photos, as they are."""
        found = [self._is_photo(self._stored(cell)) for cell in cells if cell]
        return 2 * sum(found) >= len(found)

    def learn(self, sample: Collection[str], cells: Iterable[str]) -> None:
        """Find out what the cells of a column lack of the names of photos.

        Args:
            sample: Some of the cells; most others will lack the same.
            cells: All of them.

        Raises:
            PocketuneError: A cell may stand for two photos.
        """
        self._places = list(dict.fromkeys(self._search(sample).values()))
        if self._places:
            known = self._digests()
            self._others = self._search(
                {
                    cell
                    for cell in cells
                    if cell
                    and _is_among(_file_of(cell), known)
                    and not self._there(self._stored(cell))
                }
            )

    def of(self, cell: str) -> str:
        """The photo that a cell names, relative to the table's folder.

        Raises:
            PocketuneError: The cell may stand for two photos.
        """
        name, place = self._stored(cell), self._others.get(cell)
        if place is None and len(self._places) == 1:
            (place,) = self._places
        elif place is None and (there := self._there(name)):
            place = self._chosen(cell, there)
        return name if place is None else f"{place.folder}{name}{place.suffix}"

    def _there(self, name: str) -> list[_Place]:
        """The places of a sample where there is a photo of this name."""
        return [each for each in self._places if self._exists(f"{each.folder}{name}{each.suffix}")]

    def _stored(self, cell: str) -> str:
        """The name in a cell, its accents as in the name of the file; macOS splits them off."""
        name = tidy(cell)
        if name.isascii():
            return name
        forms = (name, unicodedata.normalize("NFD", name), unicodedata.normalize("NFC", name))
        return next(filter(self._exists, forms), name)

    def _search(self, cells: Collection[str]) -> dict[str, _Place]:
        """The place of each of these cells that names a photo.

        The table of a part that has a folder, as `val.csv` beside `val/`, names none in the folder
        of another part, where a photo of the same name is another one. Neither does that of the
        photos to test, which are often not downloaded.
        """
        found, part = self._found(cells), PARTS.get(self._stem)
        parts = {_part_of(each.folder) for each in chain(self._places, *found.values())}
        if part == TEST or part in parts - {None}:
            found = {
                cell: [each for each in places if _part_of(each.folder) in (None, part)]
                for cell, places in found.items()
            }
        return {cell: self._chosen(cell, places) for cell, places in found.items() if places}

    def _found(self, cells: Collection[str]) -> dict[str, list[_Place]]:
        """The places of the photos that these cells may name, in one pass over all files."""
        wanted: dict[str, list[str]] = {}
        for cell in dict.fromkeys(cells):  # a table may list a photo twice
            wanted.setdefault(_file_of(cell), []).append(cell)
        found: dict[str, list[_Place]] = {}
        for name in self._below():
            for part, rest in _with_and_without_suffix(name):
                for cell in wanted.get(part, ()):
                    path = name.removesuffix(rest)
                    if f"/{path}".endswith(f"/{tidy(cell)}") and self._is_photo(name):
                        place = _Place(path.removesuffix(tidy(cell)), rest)
                        found.setdefault(cell, []).append(place)
        return found

    def _digests(self) -> npt.NDArray[np.uint32]:
        """Checksums, sorted, of the names of files that cells may have.

        A table may have many more rows than there are photos, and they take far less memory.
        """
        names = (part for name in self._below() for part, _ in _with_and_without_suffix(name))
        return np.unique(name_digests(names))

    def _below(self) -> Iterator[str]:
        """The files in the folder of the table and below, relative to it."""
        if self._names is None:
            self._names = self._source.names()
        above = f"{self._folder}/" if self._folder else ""
        return (name[len(above) :] for name in self._names if name.startswith(above))

    def _chosen(self, cell: str, places: Sequence[_Place]) -> _Place:
        """The place of a cell; photos to test, or of another table's name, are not meant."""
        if _AS_IT_IS in places:
            return _AS_IT_IS
        tops = [each.folder.partition("/")[0].casefold() for each in places]
        for meant in (
            [each for each, top in zip(places, tops, strict=True) if top.startswith(self._stem)],
            [each for each, top in zip(places, tops, strict=True) if not _is_test(top)],
            places,
        ):
            if len(meant) == 1:
                return meant[0]
        one, other = (f"{each.folder}{tidy(cell)}{each.suffix}" for each in places[:2])
        raise PocketuneError(
            f"{shown(self._table)} lists {shown(cell)}, which may be {shown(one)} or "
            f"{shown(other)}; write the names of the files there, with their folders"
        )

    def _exists(self, name: str) -> bool:
        try:
            self._source.stamp(posixpath.join(self._folder, name))
        except (OSError, ValueError):
            return False
        return True

    def _is_photo(self, name: str) -> bool:
        full = posixpath.normpath(posixpath.join(self._folder, name))
        return bool(np.size(read_headers(self._source, Names([full]))[0]))


def tidy(cell: str) -> str:
    """A path in a table, with forward slashes and without detours."""
    return posixpath.normpath(cell.replace("\\", "/"))


def _file_of(cell: str) -> str:
    return posixpath.basename(tidy(cell))


def _with_and_without_suffix(name: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """The file of a name as cells may name it, each with what the cell lacks."""
    file = name.rpartition("/")[2]
    stem, dot, suffix = file.rpartition(".")
    return (file, ""), (stem, dot + suffix)


def _is_among(file: str, digests: npt.NDArray[np.uint32]) -> bool:
    """Whether a file's checksum is among sorted ones; few other files have the same."""
    (digest,) = name_digests([file])
    index = np.searchsorted(digests, digest)
    return bool(index < len(digests) and digests[index] == digest)


def _part_of(path: str) -> str | None:
    """The part that a folder on a path tells; None without."""
    return next(filter(None, map(part_of_photos, path.split("/"))), None)


def _is_test(folder: str) -> bool:
    """Whether a folder such as `test_images` is of photos to test."""
    return any(folder.startswith(name) for name, part in PARTS.items() if part == TEST)
