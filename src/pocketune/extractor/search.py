"""A search for the best sub-network, phase by phase."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

import pocketune
from pocketune.arrays import FloatArray
from pocketune.data import load_splits
from pocketune.device.train.display import format_time
from pocketune.device.train.progress import PhotosReport, Progress
from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.extractor.adaptation import Adaptation
from pocketune.extractor.choosing import Chooser, require_feasible
from pocketune.extractor.clock import Clock
from pocketune.extractor.costs import CostModel, Forecaster, keeps
from pocketune.extractor.division import divided
from pocketune.extractor.evolution import GENERATIONS
from pocketune.extractor.kits import build_chosen
from pocketune.extractor.measuring import Measurer, ordered
from pocketune.extractor.picture import draw_front
from pocketune.extractor.predictor import Predict, Values, fit_predictor
from pocketune.extractor.record import ADAPTED, FRONT, Asked, Finalist, Forecast, Journal, Ranking
from pocketune.extractor.settings import ExtractorSettings
from pocketune.extractor.spaces import config_of, genes_of, genome_of
from pocketune.files import reading
from pocketune.kit.kit import Kit
from pocketune.methods import Method, method_to_dict
from pocketune.papers.search_cost import Macs, phase_macs
from pocketune.planner.limits import Limits
from pocketune.planner.process import process_bytes
from pocketune.seeding import seeded
from pocketune.supernet import SubnetConfig, load_supernet

FORECASTS = 24
"""Forecasts from which the costs of all other sub-networks are estimated, if there is time."""
PILOT = 4
"""Sub-networks that show how long one takes."""
FEWEST_PAIRS = 10
"""Measured sub-networks without which nothing can be predicted."""


class Search:
    """The phases, each of which goes on from what the journal has.

    Args:
        photos: Labeled photos.
        settings: Limits and options.
        supernet: The supernet's file.
        method: What the kit trains.
        folder: The journal's folder.
        shown: The progress display.
        clock: The time limit.

    Raises:
        PocketuneError: See `adapt_extractor`.
    """

    def __init__(
        self,
        photos: Path,
        settings: ExtractorSettings,
        supernet: Path,
        method: Method,
        folder: Path,
        shown: Progress,
        clock: Clock,
    ) -> None:
        self.settings, self.method, self._shown, self._clock = settings, method, shown, clock
        loaded = load_supernet(supernet)
        self.genome = genome_of(loaded.space, settings.size)
        if self.genome.choices.max() == 1:
            raise PocketuneError(
                f"the supernet in {supernet} has a single sub-network, so there is nothing to "
                "choose: pretrain one with several depths, kernels, expansions or sizes"
            )
        self.splits = load_splits(photos, val_fraction=None, seed=settings.seed)
        self.photos = self.splits.train
        self.task = self.photos.labeled
        self.fit, self.held = divided(self.photos, settings.seed)
        with seeded(settings.seed):
            self.supernet = loaded.with_classes(len(self.task.classes))
        self.space = self.supernet.space
        self.journal = Journal(folder, self._asked(supernet))
        self._kept = {each.config: each for each in self.journal.record.forecasts}
        # An interrupted search has asked for some of these: this one learns from those that it
        # asks for itself, so that it ends as if there had been no other.
        self._made: dict[SubnetConfig, Forecast] = {}
        self.forecaster = self._forecaster(photos)
        self._begin()

    def adapt(self) -> None:
        """The first phase."""
        path = self.journal.folder / ADAPTED
        adaptation = Adaptation(self.supernet, self.genome, self.fit, self.settings, path)
        with self._spending("adaptation"):
            adaptation.start()
            steps = self.journal.record.steps
            if steps is None:
                steps = adaptation.fitting(self._clock.left("adaptation"))
                self.journal.write(steps=steps)
            if adaptation.done < steps:
                adaptation.run(steps, partial(self._show, "adapting the supernet, step"))

    def measure(self) -> None:
        """The pairs of the second phase."""
        configs = self._drawn()
        if self.journal.record.planned is None:
            self._measure(configs[:PILOT], len(configs))
            each = self.journal.record.seconds["measurement"] / len(self.journal.record.pairs)
            planned = PILOT + int(min(len(configs), self._clock.left("measurement") / each))
            self.journal.write(planned=min(max(planned, FEWEST_PAIRS), len(configs)))
        chosen = configs[: self.journal.record.planned]
        self._measure(chosen, len(chosen))

    def choose(self) -> None:
        """The forecasts, the predictor and the search of the second phase."""
        with self._spending("search"):
            self._forecast_some()
            # In one order, so that an interrupted search gives the same predictor.
            pairs = sorted(self.journal.record.pairs, key=lambda pair: repr(pair.config))
            self.journal.write(pairs=tuple(pairs))
            genes = genes_of(self.genome, (pair.config for pair in pairs))
            predictor = fit_predictor(
                self.genome.encode(genes),
                np.array([pair.accuracy for pair in pairs]),
                self.settings.seed,
            )
            predict = _CountedPredict(predictor.predict)
            chooser = self._chooser(predict)
            front = chooser.front(genes)
            found = self._measured(chooser.finalists(genes))
            costs = self.costs()
            self.journal.write(
                ranking=Ranking(
                    predictor=predictor.name,
                    correlations=predictor.correlations,
                    memory_error=costs.error,
                ),
                front=tuple(each.bounded for each in front),
                finalists=tuple(each.bounded for each in found),
                macs=self._macs(found[0].forecast, predict.count),
            )
        draw_front(
            self.journal.record,
            costs.estimate(genes)[:, 0],
            self.task.metric_name,
            self.journal.folder / FRONT,
        )

    def build(self, out: Path) -> None:
        """The kit of the third phase."""
        found = self.journal.record.finalists
        if self._clock.limited:  # a kit for which there is no time is built if there is no other
            left = self._clock.end - self._clock.spent
            found = tuple(
                sorted(found, key=lambda each: self._clock.kit_seconds(each.forecast.macs) > left)
            )
        with self._spending("kit"):
            finalists, kit = build_chosen(
                self.supernet,
                found,
                out,
                photos=self.photos,
                settings=self.settings,
                folder=self.journal.folder,
                forecaster=self.forecaster,
                progress=self._percent("building the kit"),
            )
        self.journal.write(finalists=finalists, kit=kit)

    def has_built(self, out: Path) -> bool:
        """Whether the kit of this search, within these limits, is there already."""
        if self.journal.record.kit is not None:
            with suppress(PocketuneError):
                return Kit.open(out).identity == self.journal.record.kit
        return False

    def forecast(self, config: SubnetConfig) -> Forecast:
        """The forecast of a sub-network, from the record if it is there."""
        config = self.space.canonical(config)
        if config not in self._kept:
            self._kept[config] = self.forecaster(config)
            self.journal.write(forecasts=tuple(self._kept.values()))
        return self._made.setdefault(config, self._kept[config])

    def costs(self) -> CostModel:
        """Estimates from all forecasts of this search."""
        return CostModel(self.space, self.genome, list(self._made.values()), self.settings)

    def _forecaster(self, photos: Path) -> Forecaster:
        """What forecasts sub-networks, in a process that is measured first."""
        settings, record = self.settings, self.journal.record
        process = record.process or process_bytes(photos, TrainSettings(seed=settings.seed))
        Limits(budget=settings.budget_bytes).check_process(process)
        decodings = {size: load_splits(photos, size=size).decoding for size in self.genome.sizes}
        return Forecaster(self.space, self.method, settings.batch, self.task, process, decodings)

    def _begin(self) -> None:
        """Go on from the record; check the limits by the forecast of the smallest sub-network."""
        record, before, limits = self.journal.record, self._seconds_before(), self.settings.limits
        self._clock.before = sum(record.seconds.values()) - before
        kit = record.kit if record.limits == limits else None
        process = self.forecaster.process
        self.journal.write(process=process, limits=limits, kit=kit, before=before)
        require_feasible(self.forecast(self._ends[0]), self.settings)
        if self.settings.time is not None:
            self._keep_time_for_kit()
        self.journal.spend("start", time.monotonic() - self._clock.began)

    def _asked(self, supernet: Path) -> Asked:
        photos = hashlib.sha256()
        self.photos.add_to(photos)
        with reading(supernet):
            weights = hashlib.sha256(supernet.read_bytes()).hexdigest()
        return Asked(
            version=pocketune.__version__,
            photos=photos.hexdigest(),
            supernet=weights,
            method=method_to_dict(self.method),
            settings=self.settings.evidence,
        )

    def _seconds_before(self) -> float:
        """Seconds in the record that are of earlier searches, whose measurements this one uses."""
        record = self.journal.record
        is_over = record.kit or (record.finalists and record.limits != self.settings.limits)
        return sum(record.seconds.values()) if is_over else record.before

    def _drawn(self) -> list[SubnetConfig]:
        """The sub-networks to measure, all different."""
        genes = self.genome.sample(
            np.random.default_rng((self.settings.seed, 1)), 2 * self.settings.pairs
        )
        drawn = dict.fromkeys(config_of(self.space, self.genome, row) for row in genes)
        return list(drawn)[: self.settings.pairs]

    def _measure(self, configs: list[SubnetConfig], whole: int) -> None:
        """Measure the sub-networks that were not measured before, and write each."""
        measurer = Measurer(self.supernet, self.fit, self.held)
        known = {pair.config for pair in self.journal.record.pairs}
        rest = [config for config in ordered(self.space, configs) if config not in known]
        began = time.monotonic()
        for pair in measurer.measure(rest):
            pairs = (*self.journal.record.pairs, pair)
            now = time.monotonic()
            self.journal.spend("measurement", now - began)
            began = now
            self.journal.write(pairs=pairs)
            spent = self.journal.record.seconds["measurement"]
            left = spent / len(pairs) * (whole - len(pairs))
            self._show("measuring sub-networks", len(pairs), whole, left)

    def _forecast_some(self) -> None:
        """Forecasts of both ends and of a random sample, which is smaller where time is short."""
        ends = self._ends
        # The same for every search in a space, so that they can be kept.
        genes = self.genome.sample(np.random.default_rng(0), FORECASTS - len(ends))
        configs = [*ends, *(config_of(self.space, self.genome, row) for row in genes)]
        began = time.monotonic()
        for done, config in enumerate(configs, 1):
            if done > len(ends) and not self._clock.left("forecasts"):
                break
            self.forecast(config)
            left = (time.monotonic() - began) / done * (len(configs) - done)
            left = min(left, self._clock.left("forecasts"))
            self._show("forecasting memory", done, len(configs), left)

    def _chooser(self, predict: Predict) -> Chooser:
        """What searches by these predictions."""
        return Chooser(
            self.space,
            self.genome,
            predict,
            self.forecast,
            lambda: list(self._made.values()),
            self.settings,
            GENERATIONS,
            self._clock.left,
            self._numbered("searching for the best"),
        )

    def _measured(self, finalists: list[Finalist]) -> list[Finalist]:
        """The finalists with measured accuracies, the best first; of equal ones, the predicted."""
        measurer = Measurer(self.supernet, self.fit, self.held)
        order = ordered(self.space, (each.forecast.config for each in finalists))
        accuracies = {pair.config: pair.accuracy for pair in measurer.measure(order)}
        measured = [replace(each, accuracy=accuracies[each.forecast.config]) for each in finalists]
        return sorted(measured, key=lambda each: (-(each.accuracy or 0.0), -each.predicted))

    def _macs(self, chosen: Forecast, predictions: int) -> dict[str, float]:
        """Multiplications of the phases, by the paper's formulas."""
        record = self.journal.record
        forecasts = (*map(self.forecast, self._ends), chosen)
        smallest, largest, best = (Macs(each.macs, each.training_macs) for each in forecasts)
        epochs = (record.steps or 0) * self.settings.batch / len(self.fit)
        found = phase_macs(
            smallest,
            largest,
            best,
            photos=len(self.photos),
            epochs=epochs,
            pairs=len(record.pairs),
            predictions=predictions,
            inputs=self.genome.encode(self.genome.smallest).shape[1],
        )
        return found._asdict()

    @property
    def _ends(self) -> list[SubnetConfig]:
        """The smallest and the largest sub-network."""
        ends = (self.genome.smallest, self.genome.largest)
        return [config_of(self.space, self.genome, each[0]) for each in ends]

    def _keep_time_for_kit(self) -> None:
        """Learn from a forecast how long a kit takes, and keep that time."""
        smallest_config, largest_config = self._ends
        began = time.monotonic()
        largest = self.forecaster(largest_config, cached=False)
        seconds = time.monotonic() - began
        smallest = self.forecast(smallest_config)
        # Without limits the search prefers large sub-networks; with them, some between both ends.
        likely = float(largest.macs)
        if not keeps(largest, self.settings):
            likely = math.sqrt(smallest.macs * largest.macs)
        self._clock.keep_for_kit(seconds, largest, likely)
        kept, end = format_time(self._clock.kept), format_time(self._clock.end)
        self._shown.note(f"time  {kept} of {end} are kept for building the kit")

    @contextmanager
    def _spending(self, phase: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.journal.spend(phase, time.monotonic() - began)
            self.journal.write()

    def _numbered(self, purpose: str) -> Callable[[int, int], None]:
        """Shows what has begun of a job whose length is known at most."""
        began = time.monotonic()

        def show(number: int, most: int) -> None:
            taken = time.monotonic() - began
            left = taken / max(1, number - 1) * (most - number + 1)
            self._show(purpose, number, most, min(left, self._clock.left("search")))

        return show

    def _percent(self, purpose: str) -> Callable[[str, float], None]:
        """Shows what a job does and the percent of its time that are over."""
        began = time.monotonic()

        def show(what: str, share: float) -> None:
            if share > 0:
                left = (time.monotonic() - began) / share * (1 - share)
                self._show(f"{purpose}, {what}", max(1, round(100 * share)), 100, left)

        return show

    def _show(self, purpose: str, done: int, whole: int, left: float) -> None:
        self._shown.photos(PhotosReport(purpose, done, whole, left))


class _CountedPredict:
    """Predicts accuracies, and counts them."""

    def __init__(self, predict: Predict) -> None:
        self._predict = predict
        self.count = 0

    def __call__(self, codes: FloatArray) -> Values:
        self.count += len(codes)
        return self._predict(codes)
