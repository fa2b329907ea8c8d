"""Searches that take seconds, and what ends their process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pocketune.device.train.progress import PhotosReport, Silent
from pocketune.extractor import Record, adapt_extractor, choosing, predictor
from pocketune.extractor import search as search_module
from pocketune.extractor.costs import Forecaster
from pocketune.extractor.record import Forecast
from pocketune.extractor.shapes import Tables
from pocketune.extractor.spaces import genes_of, genome_of
from pocketune.supernet import SubnetConfig

PROCESS = 50_000_000
BUDGET = PROCESS + 4_000_000
Search = Callable[..., Record]


class Kill(Silent):
    """Ends the process, in effect, at the report of this number whose purpose begins like this."""

    def __init__(self, purpose: str = "none", number: int = 1) -> None:
        self._purpose, self._left = purpose, number
        self.seen: set[str] = set()

    def photos(self, report: PhotosReport) -> None:
        self.seen.add(report.purpose)
        assert report.seconds_left >= 0
        assert 1 <= report.done <= report.photos
        self._left -= report.purpose.startswith(self._purpose)
        if not self._left:
            raise KeyboardInterrupt


def forecast(self: Forecaster, config: SubnetConfig, *, cached: bool = True) -> Forecast:
    """Grows with the sub-network, at once."""
    genome = genome_of(self.space)
    genes = genes_of(genome, [config])
    macs = int(Tables.of(self.space, genome).features(genes)[0, 6])
    return Forecast(
        config=self.space.canonical(config),
        memory=self.process + 10 * macs,
        step_seconds=macs * 1e-9,
        macs=macs,
        training_macs=2 * macs,
    )


@contextmanager
def quickened() -> Iterator[None]:
    """Forecasts from multiplications, and short searches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forecaster, "__call__", forecast)
        patch.setattr(search_module, "process_bytes", lambda *_: PROCESS)
        patch.setattr(search_module, "GENERATIONS", 5)
        patch.setattr(search_module, "FORECASTS", 12)
        patch.setattr(choosing, "LEVELS", 2)
        patch.setattr(predictor, "EPOCHS", 2)
        yield


def run(inputs: Path, out: Path, progress: Kill | None = None, **options: Any) -> Record:
    """A search of one epoch and 20 pairs."""
    return adapt_extractor(
        options.pop("photos", inputs / "photos"),
        out,
        supernet=options.pop("supernet", inputs / "supernet.safetensors"),
        progress=progress or Kill(),
        **{"epochs": 1, "pairs": 20, **options},
    )


@contextmanager
def no_kit() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "build_chosen", lambda _, found, *__, **___: (found, "none"))
        yield
