"""The training loop: steps, validation after each epoch, and stopping."""

from __future__ import annotations

import math
import time
from contextlib import closing, suppress
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from pocketune.data import Purpose, random_stream
from pocketune.device.memory.budget import BudgetExceeded
from pocketune.device.memory.process import process_memory
from pocketune.device.memory.sizes import format_size
from pocketune.device.train.checkpoint import Saver
from pocketune.device.train.interrupt import Interrupted
from pocketune.device.train.optimizer import clip_scale, gradient_norm
from pocketune.device.train.progress import PhotosReport
from pocketune.device.train.record import record_run
from pocketune.device.train.refit import is_refitted, refit
from pocketune.device.train.schedule import CosineSchedule
from pocketune.device.train.start import KEPT, RANDOM
from pocketune.device.train.temper import BATCHES, temper
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pocketune.arrays import State
    from pocketune.data import Batch
    from pocketune.device.engine.base import Engine
    from pocketune.device.train.adjustment import AdjustedMetric
    from pocketune.device.train.checkpoint import TrainState
    from pocketune.device.train.folder import Run
    from pocketune.device.train.interrupt import StopRequest
    from pocketune.device.train.log import RunLog
    from pocketune.tasks import Score, Task


class Diverged(PocketuneError):  # noqa: N818 - the name says what happened
    """The loss or a gradient is no longer a finite number."""


class Loop:
    """Trains from a state to the end of the run; call `run`.

    Args:
        run: The run.
        state: The state of the run; updated by every step.
        log: The log of the run.
        stop: The user's request to stop.
    """

    def __init__(
        self,
        run: Run,
        state: TrainState,
        log: RunLog,
        stop: StopRequest,
    ) -> None:
        self._run = run
        self._state = state
        self._counters = state.counters
        self._log = log
        self._stop = stop
        self._saver = Saver(run)
        self._task = run.photos.task
        self._adjustment = run.adjustment
        settings = run.settings
        self._schedule = CosineSchedule(settings.peak_rates().main, run.steps, settings.warmup)

    def run(self) -> None:
        """Train until the last step, the deadline, or validation has not improved for the patience.

        Raises:
            Interrupted: The user asked to stop; the run is saved.
            BudgetExceeded: The process took more memory than allowed; the run is saved.
            Diverged: The loss or a gradient is nan or infinite; the last checkpoint is kept.
            MemoryError: The system refused memory; the run is saved if that was possible.
            PocketuneError: The disk is full or cannot be written; the last checkpoint is kept.
        """
        if not self._counters.started:
            self.save()  # from here on, the run can be resumed
            if self._adjustment is not None:  # which the checkpoint has, and a model must not
                self._saver.save_best(self._state)
            self._begin(*self._validate())
        while self._counters.finished is None:
            self._train_epoch()
            self._end_epoch(*self._validate())

    def save(self) -> None:
        """Write a checkpoint of the current state, after flushing the log."""
        self._counters.metrics_bytes = self._log.sync()
        self._saver.save(self._state)

    def _begin(self, score: Score | None, judged: Score | None) -> None:
        """Keep the values before the first step, so that training never ends below them."""
        counters = self._counters
        counters.start = counters.best = score
        counters.judged = judged
        counters.started = True
        self._saver.save_best(self._state)
        trains = self._run.steps > 0 and not self._is_late()
        self._log.start(counters, self._temper() if trains else 1.0)
        if not trains:
            self._finish("time" if self._run.steps else "steps", score)
        self.save()

    def _temper(self) -> float:
        """Make a computed classifier as sure as it is right; the factor on its outputs."""
        if self._counters.head in (KEPT, RANDOM):
            return 1.0
        began, most = time.monotonic(), 2 * BATCHES * self._run.batch

        def show(photos: int) -> None:
            left = (time.monotonic() - began) / photos * max(0, most - photos)
            self._log.photos(PhotosReport("first steps", photos, max(most, photos), left))

        return temper(self._run, self._state.engine, show)

    def _train_epoch(self) -> None:
        counters = self._counters
        per_epoch = self._run.steps_per_epoch
        batches = min(per_epoch, self._run.steps - counters.epoch * per_epoch)
        # The loader's threads end before those of the validation begin, so that decoded photos of
        # both are never in memory at once.
        epoch = self._run.photos.training.epoch(counters.epoch, start=counters.batch)
        with closing(epoch) as photos:
            self._log.throughput.restart()
            for batch in islice(photos, batches - counters.batch):
                self._step(batch)
                del batch  # before the next one is put together
                self._stop_if_needed()
                if self._is_late():
                    break
                if self._saver.is_due(counters):
                    self.save()

    def _step(self, batch: Batch) -> None:
        """Make one optimizer step. The gradients are freed on return, before the next step."""
        counters = self._counters
        # Dropout masks depend only on the number of the step, so a resumed run draws the same ones.
        rng = random_stream(self._run.settings.seed, Purpose.DROPOUT, counters.step)
        try:
            result = self._state.engine.gradients(batch.images, batch.labels, rng)
        except MemoryError:  # the values are still those after the last step
            with suppress(MemoryError):
                self.save()
            raise
        self._require_finite(result.loss, "the loss")
        norm = gradient_norm(result.values)
        self._require_finite(norm, "a gradient")
        lr = self._schedule(counters.step)
        scale = clip_scale(norm, self._run.settings.clip)
        self._state.optimizer.step(result.values, lr=lr, scale=scale)
        counters.count_step(result.loss, result.metrics)
        self._log.step(counters, result, lr=lr, norm=norm)

    def _validate(
        self, after_batch: Callable[[], None] | None = None
    ) -> tuple[Score | None, Score | None]:
        """The score, and that by which epochs are compared: rare classes count as in training."""
        if self._run.photos.validation is None:
            return None, None
        engine, task, adjustment = self._state.engine, self._task, self._adjustment
        judge = None if adjustment is None else adjustment.metric(task)
        with closing(self._run.photos.validation.epoch(0)) as photos:
            score = validate(engine, task, photos, after_batch or self._stop_if_needed, judge)
        if score is None:
            return None, None
        self._require_finite(score.loss, "the validation loss")
        return score, score if judge is None else judge.score

    def _end_epoch(self, score: Score | None, judged: Score | None) -> None:
        counters = self._counters
        better = self._improves(judged, counters.judged)
        if better:
            counters.best, counters.judged, counters.best_step = score, judged, counters.step
            self._saver.save_best(self._state)
        # Steps may first lose what the start has, so that patience only compares epochs.
        if self._improves(judged, counters.trained):
            counters.trained, counters.stale = judged, 0
        else:
            counters.stale += 1
        self._log.epoch(counters, score, best=better)
        counters.next_epoch()
        reason = self._reason_to_finish()
        if reason:
            self._finish(reason, self._refit() or score)
        self.save()

    def _improves(self, judged: Score | None, best: Score | None) -> bool:
        return judged is None or best is None or self._task.is_better(judged, best)

    def _refit(self) -> Score | None:
        """Compute the classifier again, for the trained features; its score if it is the best.

        A resumed run repeats this with its last epoch: nothing is saved meanwhile.
        """
        if not is_refitted(self._run):
            return None
        counters, engine, best = self._counters, self._state.engine, self._counters.judged
        head = refit(self._run, engine, self._after_refit_photos)
        if head is None or best is None:
            return None
        weight, bias = self._task.head
        values = {weight: head.weight, bias: head.bias}
        trained = {name: engine.parameters[name].copy() for name in values}
        _write(engine, values if self._adjustment is None else self._adjustment.add_to(values))
        score, judged = self._validate(lambda: None)
        better = judged is not None and self._task.is_better(judged, best)
        if better:
            counters.best, counters.judged, counters.best_step = score, judged, counters.step
            counters.refitted = head.name
            self._saver.save_best(self._state)
        else:
            _write(engine, trained)
        self._log.refit(counters, head, score, best=better)
        return score if better else None

    def _after_refit_photos(self, report: PhotosReport) -> None:
        """Show the pass over the photos; it may take minutes, so the user can stop it."""
        self._log.photos(report)
        if self._stop.number is not None:
            what = "stopped after the last step; the last checkpoint is kept"
            raise Interrupted(what, str(self._run.folder), self._stop.number)

    def _finish(self, reason: str, score: Score | None) -> None:
        self._counters.finished = reason
        self._log.end(self._counters)
        # Before the checkpoint: after a kill between the two, the resumed run writes it again.
        record_run(self._run, self._state, score).write(self._run.folder)

    def _reason_to_finish(self) -> str | None:
        if self._counters.step >= self._run.steps:
            return "time" if self._run.shortened else "steps"
        if self._is_late():
            return "time"
        patience = self._run.settings.patience
        return "patience" if patience and self._counters.stale >= patience else None

    def _is_late(self) -> bool:
        return time.monotonic() >= self._run.deadline

    def _stop_if_needed(self) -> None:
        """Save and stop if the user asks for it, or if the process exceeds the budget."""
        if self._stop.number is not None:
            self.save()
            what = f"stopped and saved at step {self._counters.step} of {self._run.steps}"
            raise Interrupted(what, str(self._run.folder), self._stop.number)
        memory, budget = process_memory().peak, self._run.settings.budget_bytes
        if budget is None or memory <= budget:
            return
        self.save()
        raise BudgetExceeded(
            f"memory reached {format_size(memory)} by step {self._counters.step}, over the budget "
            f"of {format_size(budget)}: the run was stopped and saved in {self._run.folder}; "
            "resume it with a larger budget, or start again with a kit of a smaller batch"
        )

    def _require_finite(self, value: float, what: str) -> None:
        if math.isfinite(value):
            return
        lr = self._run.settings.peak_rates().main
        clip = "" if self._run.settings.clip else ", or set clip to 1"
        raise Diverged(
            f"{what} is not finite at step {self._counters.step + 1}: start again with a "
            f"learning rate lower than {lr:g}, such as {lr / 10:g}{clip}; the last good state is "
            f"kept in {self._run.folder}"
        )


def validate(
    engine: Engine,
    task: Task,
    batches: Iterable[Batch],
    after_batch: Callable[[], None],
    judge: AdjustedMetric | None = None,
) -> Score | None:
    """The score of an engine on labeled batches; None if no image could be decoded.

    `after_batch` is called after each batch. `judge` is a second metric, of an engine that
    trains with adjusted logits.
    """
    metric = task.metric()
    for batch in batches:
        outputs = engine.predict(batch.images)
        if judge is not None:
            outputs = judge.adjustment.logits(outputs)
            judge.update(outputs, batch.labels)
        metric.update(outputs, batch.labels)
        del batch  # before the next one is put together
        after_batch()
    return metric.score if metric.images else None


def _write(engine: Engine, values: State) -> None:
    """Write some parameters. Copies of all would raise the memory of a run after its last step."""
    for name, value in values.items():
        np.copyto(engine.parameters[name], value)
