"""The training loop: steps, validation at each epoch's end, and when to stop."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, cast

from pocketune.data import Purpose, random_stream
from pocketune.device.memory.budget import BudgetExceeded
from pocketune.device.memory.process import process_memory
from pocketune.device.memory.sizes import format_size
from pocketune.device.train.interrupt import StopRequest, interrupted
from pocketune.device.train.optimizer import CosineSchedule, Optimizer, clip_scale, gradient_norm
from pocketune.device.train.validation import Validation, validate
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pocketune.data import Batch, Loader
    from pocketune.device.engine.base import Engine
    from pocketune.device.train.checkpoint import Counters
    from pocketune.device.train.log import Recorder


class Diverged(PocketuneError):  # noqa: N818 - it reads as what happened
    """The loss or a gradient is no longer a finite number."""


@dataclass
class Loop:
    """A run in progress. Make it from a fresh or a loaded state and call :meth:`run`.

    Attributes:
        engine: Computes gradients and predictions.
        optimizer: Updates ``engine.parameters``.
        training: The training photos in batches.
        validation: The validation photos; None validates nothing, and the last is the best.
        counters: Where the run stands; moves on with every step.
        recorder: Saves and tells.
        stop: Set when the user asks to stop.
    """

    engine: Engine
    optimizer: Optimizer
    training: Loader
    validation: Loader | None
    counters: Counters
    recorder: Recorder
    stop: StopRequest

    def __post_init__(self) -> None:
        self._settings = self.recorder.settings
        self._schedule = CosineSchedule(
            self._settings.lr, self.recorder.steps, self._settings.warmup
        )

    def run(self) -> None:
        """Train until the last step, or until validation has not become better for long enough.

        Raises:
            Interrupted: The user asked to stop; the run is saved.
            BudgetExceeded: The process took more memory than allowed; the run is saved.
            Diverged: The loss or a gradient is nan or infinite; the last checkpoint stands.
            PocketuneError: The disk is full, or cannot be written; the last checkpoint stands.
        """
        if self.counters.step == 0:
            self.save()  # from here on, the run can be resumed
        while self.counters.finished is None:
            self._train_epoch()
            self._end_epoch(self._validate())

    def save(self) -> None:
        """Write a checkpoint of where the run stands."""
        self.recorder.save(self.engine, self.optimizer, self.counters)

    def _train_epoch(self) -> None:
        counters = self.counters
        per_epoch = self.recorder.steps_per_epoch
        batches = min(per_epoch, self.recorder.steps - counters.epoch * per_epoch)
        # The loader's threads end here, before those of the validation begin: decoded photos
        # of both would never be needed at once.
        with _closing(self.training.epoch(counters.epoch, start=counters.batch)) as photos:
            self.recorder.pace.restart()
            for batch in islice(photos, batches - counters.batch):
                self._step(batch)
                self._stop_if_needed()
                if self.recorder.checkpoint_is_due(counters):
                    self.save()

    def _step(self, batch: Batch) -> None:
        """One update. Gradients live no longer than this call: the next ones need their room."""
        counters = self.counters
        # Noise depends on the step's number alone, so that a resumed run draws the same.
        rng = random_stream(self._settings.seed, Purpose.NOISE, counters.step)
        result = self.engine.gradients(batch.images, batch.labels, rng)
        self._require_finite(result.loss, "the loss")
        norm = gradient_norm(result.values)
        self._require_finite(norm, "a gradient")
        lr = self._schedule(counters.step)
        scale = clip_scale(norm, self._settings.clip)
        self.optimizer.step(result.values, lr=lr, scale=scale)
        counters.step += 1
        counters.batch += 1
        counters.loss_sum += result.loss
        counters.correct += result.correct
        self.recorder.step(counters, loss=result.loss, correct=result.correct, lr=lr, norm=norm)

    def _validate(self) -> Validation | None:
        if self.validation is None:
            return None
        with _closing(self.validation.epoch(0)) as photos:
            result = validate(self.engine, photos, self._stop_if_needed)
        if not result.images:
            return None  # none of them could be decoded
        self._require_finite(result.loss, "the validation loss")
        return result

    def _end_epoch(self, result: Validation | None) -> None:
        counters = self.counters
        better = result is None or counters.is_better(result.accuracy, result.loss)
        if better:
            counters.best_accuracy = result.accuracy if result else None
            counters.best_loss = result.loss if result else None
            counters.best_step = counters.step
            self.recorder.keep_best(self.engine, counters)
        counters.stale = 0 if better else counters.stale + 1
        self.recorder.epoch(counters, result, best=better)
        counters.epoch += 1
        counters.batch, counters.loss_sum, counters.correct = 0, 0.0, 0
        counters.finished = self._reason_to_finish()
        if counters.finished:
            self.recorder.end(counters)
        self.save()

    def _reason_to_finish(self) -> str | None:
        if self.counters.step >= self.recorder.steps:
            return "steps"
        patience = self._settings.patience
        return "patience" if patience and self.counters.stale >= patience else None

    def _stop_if_needed(self) -> None:
        """Save and stop where the user asks for it, or the memory is over the budget."""
        if self.stop.requested:
            self.save()
            what = f"stopped and saved at step {self.counters.step} of {self.recorder.steps}"
            raise interrupted(self.recorder.folder, what)
        memory, budget = process_memory().peak, self._settings.budget
        if budget is None or memory <= budget:
            return
        self.save()
        raise BudgetExceeded(
            f"memory reached {format_size(memory)} by step {self.counters.step}, over the budget "
            f"of {format_size(budget)}: the run was stopped and saved in {self.recorder.folder}; "
            "resume it with a larger budget, or start again with a kit of a smaller batch"
        )

    def _require_finite(self, value: float, what: str) -> None:
        if math.isfinite(value):
            return
        lr = self._settings.lr
        clip = "" if self._settings.clip else ", or set clip to 1"
        raise Diverged(
            f"{what} is not finite at step {self.counters.step + 1}: start again with a "
            f"learning rate lower than {lr:g}, such as {lr / 10:g}{clip}; the last good state is "
            f"kept in {self.recorder.folder}"
        )


def _closing(photos: Iterator[Batch]) -> closing[Generator[Batch, None, None]]:
    return closing(cast("Generator[Batch, None, None]", photos))
