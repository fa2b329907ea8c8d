"""Make all runs of a comparison, one process at a time, or distributed over Ray."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.comparison.cell import Cell, Place
from pocketune.comparison.grid import Grid
from pocketune.comparison.names import check_names
from pocketune.comparison.result import Comparison
from pocketune.comparison.run_series import cell_file, run_series
from pocketune.comparison.series import Series, all_series
from pocketune.device.memory.sizes import format_size
from pocketune.device.train.display import format_time
from pocketune.errors import counted
from pocketune.files import writing
from pocketune.resumable import COMPARISON, own_folder

if TYPE_CHECKING:
    from pocketune.arrays import StrPath

_USUAL_TRIALS = 3
"""Runs that usually find a rate: the middle one is the best."""
Show = Callable[[str], None]


def compare(
    grid: Grid | StrPath,
    out: StrPath = "compare",
    *,
    ray: bool = False,
    keep_runs: bool = False,
    show: Show = print,
) -> Comparison:
    """Train and evaluate all runs of a grid, and write their tables.

    Each run is a process of its own, whose peak memory is measured; a kit is built in another one
    and shared by the runs that differ in their seed only. A finished run is not repeated, and a
    stopped one is resumed: call this again with the same folder. A run that fails is kept with its
    error, and the others go on.

    Example:
        >>> grid = Grid.from_dict({"photos": ["flowers/"], "kits": ["last", "blocks"]})
        >>> print(compare(grid, "compare/").rows[0].mean)  # doctest: +SKIP
        0.912

    Args:
        grid: What is compared, or the path of its TOML file.
        out: The folder for `compare.json`, the tables and the runs.
        ray: Whether to distribute the runs over the machines of Ray, which have to see the same
            files; otherwise they are made here, one after the other.
        keep_runs: Whether to keep the trained networks; otherwise records and logs are kept.
        show: Receives a line of progress for each run.

    Raises:
        PocketuneError: The grid, the photos or a kit cannot be used, there is no network or method
            of a name, the folder cannot be written or is another process's, or Ray is not
            installed or has machines with different numbers of cores.
    """
    if not isinstance(grid, Grid):
        grid = Grid.read(grid)
    if ray:
        grid = grid.below(Path.cwd())  # the folder of a machine of Ray is another one
    out, series = Path(out).resolve(), all_series(grid)
    with own_folder(out, COMPARISON):
        board = _Board(out, series, show)
        if grid.networks and board.todo:
            check_names(grid)
        for cell in _made(series, out, ray=ray, keep_runs=keep_runs):
            board.add(cell)
        board.write()
        shutil.rmtree(out / "kits", ignore_errors=True)  # with what a killed process left there
    return board.comparison


def _made(series: Sequence[Series], out: Path, *, ray: bool, keep_runs: bool) -> Iterator[Cell]:
    with writing(f"the folder {out}"):
        for folder in ("cells", "runs"):
            (out / folder).mkdir(exist_ok=True)
    if not ray:
        return (cell for each in series for cell in run_series(each, out, keep_runs=keep_runs))
    from pocketune.comparison.distributed import run_on_ray

    return run_on_ray(series, out, keep_runs=keep_runs)


class _Board:
    """The cells so far, in the order of the grid; shows each new one with the time left.

    Attributes:
        todo: The places of the cells that are still to be made.
    """

    def __init__(self, out: Path, series: Sequence[Series], show: Show) -> None:
        self._out, self._show = out, show
        cells = [planned.cell for each in series for planned in each.runs]
        self._order = [cell.place for cell in cells]
        self.todo = {cell.place for cell in cells if not Cell.find(cell_file(out, cell))}
        self._total, self._started = len(self.todo), time.monotonic()
        self._cells: dict[Place, Cell] = {}
        self._trials, self._expected = 0, _trials_of(series, self.todo)
        rates = ", with rates to choose" if self._expected else ""
        left = f"{self._total} to make" if self._total else "none left to make"
        show(f"{counted(len(cells), 'run')}, {left}{rates}")

    @property
    def comparison(self) -> Comparison:
        """The cells that are there."""
        return Comparison(tuple(self._cells[at] for at in self._order if at in self._cells))

    def add(self, cell: Cell) -> None:
        """Add a cell, and show it if it is new; one that tries a rate is only shown."""
        memory = f", {format_size(cell.record.peak_memory)}" if cell.record else ""
        if cell.place not in self._order:
            self._trials += 1
            self._show(f"rates  {cell}{memory}; {self._time_left()} left")
            return
        self._cells[cell.place] = cell
        if cell.place in self.todo:
            self.todo.remove(cell.place)
            done = self._total - len(self.todo)
            self._show(f"{done}/{self._total}  {cell}{memory}; {self._time_left()} left")
            self.write()

    def _time_left(self) -> str:
        """The time that is left if all runs take as long as those so far."""
        if not self.todo:
            return format_time(0)
        done = self._total - len(self.todo) + self._trials
        left = len(self.todo) + max(0, self._expected - self._trials)
        return format_time((time.monotonic() - self._started) / done * left)

    def write(self) -> None:
        """Write the tables."""
        self.comparison.write(self._out)


def _trials_of(series: Iterable[Series], todo: Collection[Place]) -> int:
    """About as many runs as choose the rates of series with a run to make."""
    choosing = [each for each in series if any(run.cell.place in todo for run in each.runs)]
    groups = [rates for each in choosing for rates in (each.rates, each.head_rates)]
    return sum(min(len(rates), _USUAL_TRIALS) for rates in groups)
