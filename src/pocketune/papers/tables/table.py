"""Published tables, each figure of a paper beside ours."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pocketune.errors import PocketuneError


@dataclass(frozen=True)
class Cell:
    """One figure.

    Attributes:
        paper: as printed.
        ours: by the paper's own convention.
    """

    paper: float
    ours: float

    @property
    def difference(self) -> float:
        """Ours relative to the paper's: 0.01 is one per cent more."""
        return self.ours / self.paper - 1


@dataclass(frozen=True)
class Row:
    """One setting, with a cell for each column."""

    label: str
    cells: dict[str, Cell]


@dataclass(frozen=True)
class About:
    """What is known of a table before it is computed.

    Attributes:
        name: under which `published_table` knows it.
        source: paper and table.
        columns: names of the columns with their units.
        notes: what one must know to compare the figures.
    """

    name: str
    source: str
    columns: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A published table, computed anew."""

    about: About
    rows: tuple[Row, ...]


_tables: dict[str, tuple[About, Callable[[], Iterable[Row]]]] = {}


def register_table(
    about: About,
) -> Callable[[Callable[[], Iterable[Row]]], Callable[[], Iterable[Row]]]:
    """Decorator: the function computes the rows of this table."""

    def register(rows: Callable[[], Iterable[Row]]) -> Callable[[], Iterable[Row]]:
        if about.name in _tables:
            raise ValueError(f"two tables are called {about.name}")
        _tables[about.name] = about, rows
        return rows

    return register


def list_tables() -> list[About]:
    """All tables, in the order in which they were registered."""
    return [about for about, _ in _tables.values()]


def published_table(name: str) -> Table:
    """Compute a table; takes some seconds, and no memory to speak of.

    Raises:
        PocketuneError: if there is no such table.
    """
    if name not in _tables:
        raise PocketuneError(f"there is no table {name!r}; choose from {', '.join(_tables)}")
    about, rows = _tables[name]
    return Table(about, tuple(rows()))
