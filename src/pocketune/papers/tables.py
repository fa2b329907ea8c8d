"""Published tables, each figure of a paper next to ours."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.surgery import train_only
from pocketune.weights import create_network


@dataclass(frozen=True)
class Cell:
    """One figure.

    Attributes:
        paper: As printed.
        ours: By the paper's own convention.
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
    """The description of a table, known before it is computed.

    Attributes:
        name: For `published_table`.
        source: Paper and table.
        columns: Names of the columns with their units.
        notes: What a reader must know to compare the figures.
    """

    name: str
    source: str
    columns: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A published table, recomputed."""

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
    """Compute a table, in some seconds and with little memory.

    Raises:
        PocketuneError: The table is unknown.
    """
    if name not in _tables:
        raise PocketuneError(f"there is no table {name!r}; choose from {', '.join(_tables)}")
    about, rows = _tables[name]
    return Table(about, tuple(rows()))


def shapes(name: str, *, classes: int, width: float = 1.0) -> nn.Module:
    """A network on the meta device: the tables need only shapes."""
    with torch.device("meta"):
        return create_network(name, classes=classes, width=width)


def training(network: nn.Module, trained: Collection[str]) -> nn.Module:
    """The network itself, with these parameters trained and nothing replaced."""
    train_only(network, trained)
    return network
