"""Where a series is made: its kit is built and its rates are chosen once a run needs them."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketune.comparison.build import BuildJob
from pocketune.comparison.cell import Cell
from pocketune.comparison.grid import Network
from pocketune.comparison.series import TUNING_FRACTION, Planned, Series
from pocketune.comparison.worker import RunJob
from pocketune.device.train.display import is_seen
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.kit.names import MANIFEST
from pocketune.processes.job import run_job

if TYPE_CHECKING:
    from pocketune.kit.manifest import Manifest


def run_series(series: Series, out: Path, *, keep_runs: bool) -> Iterator[Cell]:
    """Make the missing runs of a series; yields each cell, finished or failed.

    Cells that try learning rates come first, if there is a run to make.

    Args:
        series: The series.
        out: The folder of the comparison.
        keep_runs: Whether to keep all files of a run; otherwise its record and its log.
    """
    runner = _SeriesRunner(series, out, keep_runs)
    found = [Cell.find(cell_file(out, planned.cell)) for planned in series.runs]
    if not all(found) and series.chooses_rates:
        yield from runner.choose_rates()
    for planned, cell in zip(series.runs, found, strict=True):
        yield cell.at(planned.cell) if cell else runner.make(planned)
    runner.close()


class _SeriesRunner:
    """Makes the runs of one series."""

    def __init__(self, series: Series, out: Path, keep_runs: bool) -> None:
        self._series, self._out, self._keep_runs = series, out, keep_runs
        self._rates: dict[str, Any] = {}
        self._problem: str | None = None

    def choose_rates(self) -> Iterator[Cell]:
        """Find the rates with the best score on a fifth of the training photos.

        The rate of all layers comes first, then that of the classifier at this rate. Yields the
        cells that try them.
        """
        chosen: dict[str, float] = {}
        for name, rates in (("lr", self._series.rates), ("head_lr", self._series.head_rates)):
            if rates and self._problem is None and not (chosen and self._trains_head_alone):
                chosen[name] = yield from self._climb(name, rates, chosen)
        self._rates = chosen

    def _climb(
        self, name: str, rates: Sequence[float], chosen: Mapping[str, float]
    ) -> Generator[Cell, None, float]:
        """The best rate, from the middle one up and down as long as the score improves."""
        tried: dict[int, Cell] = {}
        place = len(rates) // 2
        tried[place] = yield from self._try({**chosen, name: rates[place]})
        for step in (1, -1):
            while 0 <= (near := place + step) < len(rates):
                if near not in tried:
                    tried[near] = yield from self._try({**chosen, name: rates[near]})
                if not self._is_better(tried[near], tried[place]):
                    break
                place = near
        if tried[place].error:
            self._problem = f"no learning rate could be tried: {tried[place].error}"
        return rates[place]

    def _try(self, choice: Mapping[str, float]) -> Generator[Cell, None, Cell]:
        planned = self._series.trial(choice)
        cell = Cell.find(cell_file(self._out, planned.cell)) or self.make(planned)
        yield cell
        return cell

    def _is_better(self, cell: Cell, than: Cell) -> bool:
        """Whether a run has the better score; a run that failed, as one that diverged, has none."""
        score, other = (each.record.best if each.record else None for each in (cell, than))
        if score is None or other is None:
            return score is not None
        return self._manifest.task.is_better(score, other)

    @cached_property
    def _manifest(self) -> Manifest:
        return Kit.open(self._kit, verify=False).manifest

    @property
    def _trains_head_alone(self) -> bool:
        return all(parameter.group == "head" for parameter in self._manifest.parameters)

    def make(self, planned: Planned) -> Cell:
        """Make a run with the chosen rates, unless it is known to fail."""
        if self._problem is None:
            try:
                return self._run(planned.cell, {**planned.settings, **self._rates})
            except PocketuneError as error:  # the kit cannot be built
                self._problem = str(error)
        return self._fail(planned.cell, self._problem)

    def close(self) -> None:
        """Remove a kit that was built here; a run that is kept holds a copy of it."""
        shutil.rmtree(self._built, ignore_errors=True)

    @cached_property
    def _kit(self) -> str:
        """The kit of the series, built if it is a network's.

        Raises:
            PocketuneError: It cannot be built.
        """
        if not isinstance(self._series.model, Network):
            return self._series.model.kit
        if not _is_kit(self._built):
            job = self._build_job(self._series.model)
            run_job("pocketune.comparison.build", job, quiet=not is_seen())
        return str(self._built)

    @property
    def _built(self) -> Path:
        return self._out / "kits" / self._series.identity

    def _build_job(self, network: Network) -> BuildJob:
        method = self._series.method
        assert method is not None
        facts = {n: v for n, v in asdict(network).items() if n not in ("name", "settings")}
        return BuildJob(
            out=str(self._built),
            photos=self._series.photos.photos,
            val_fraction=float(self._series.settings.get("val_fraction", TUNING_FRACTION)),
            ignore=self._series.settings.get("ignore"),
            class_names=self._series.settings.get("class_names"),
            method=method.method,
            method_options=method.options,
            build={
                **facts,
                "frozen_bits": method.frozen_bits,
                "label_smoothing": method.label_smoothing,
                "loss_stride": method.loss_stride,
            },
        )

    def _run(self, cell: Cell, settings: dict[str, Any]) -> Cell:
        run = self._out / "runs" / cell.key
        job = RunJob(
            cell=cell.to_dict(),
            kit=self._kit,
            photos=self._series.photos.photos,
            run=str(run),
            settings=settings,
            out=str(cell_file(self._out, cell)),
        )
        try:
            run_job("pocketune.comparison.worker", job, quiet=not is_seen())
        except PocketuneError as error:
            return self._fail(cell, str(error))
        done = Cell.find(cell_file(self._out, cell))
        if done is None:
            return self._fail(cell, "its result is missing")
        if not self._keep_runs:
            _trim(run)
        return done

    def _fail(self, cell: Cell, error: str) -> Cell:
        failed = cell.failed(error)
        failed.write(cell_file(self._out, cell))
        return failed


def cell_file(out: Path, cell: Cell) -> Path:
    """The file of a cell in the folder of a comparison."""
    return out / "cells" / f"{cell.key}.json"


def _is_kit(path: Path) -> bool:
    """Whether a kit of this version is at the path, left by a comparison that was stopped."""
    try:
        Kit.open(path)
    except PocketuneError:
        return False
    return True


def _trim(run: Path) -> None:
    """Remove the kit and the trained values of a run; its record and its logs stay."""
    for path in run.iterdir():
        if path.suffix in (".onnx", ".safetensors") or path.name == MANIFEST:
            path.unlink()
