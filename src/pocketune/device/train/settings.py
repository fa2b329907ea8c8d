"""How a run trains, as data."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketune.device.memory.sizes import parse_size
from pocketune.device.train.optimizer import OPTIMIZERS
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Iterable

EPOCHS = 20
MOMENTUM = 0.9
SIDE = "branch"
"""Part of the names of all that methods add beside a block."""

LEARNING_RATES = {"adam": 3e-4, "adamw": 3e-4, "sgd": 1e-2}
"""Where none is named; those of published transfer recipes at batch 8 lie around them."""


_WHOLE = ("epochs", "steps", "patience", "checkpoint_every", "accumulate", "warmup", "seed")
_REAL = ("lr", "side_lr", "clip", "checkpoint_seconds", "weight_decay", "momentum", "val_fraction")


@dataclass(frozen=True)
class TrainSettings:
    """Everything about a run but its kit; kept in each checkpoint, so that a run can be resumed.

    Args:
        photos: Absolute path of the photos: a folder, a CSV or a .zip.
        epochs: Passes over the photos; exactly one of ``epochs`` and ``steps`` is set.
        steps: Optimizer steps of the whole run.
        lr: Learning rate at the top of the cosine.
        side_lr: That of the side branches that a method has added; None for the same as ``lr``.
        optimizer: ``adam``, ``adamw`` or ``sgd``.
        momentum: SGD's; 0 keeps no optimizer state at all.
        weight_decay: Decay of the weights (not of biases and norms).
        warmup: Steps of linear warm-up.
        clip: Largest L2 norm of all gradients together; None never clips.
        budget: Peak resident bytes that the process may take; None does not limit it.
        seed: Of the split, the order, the crops, the noise and a new classifier.
        patience: Epochs without a better validation after which to stop; None never stops early.
        val_fraction: Share of the photos to validate on, where they come without a split.
        checkpoint_every: Save every so many steps; None leaves it to the time.
        checkpoint_seconds: Save after so many seconds; None leaves it to the steps. The end of
            an epoch always saves.
        accumulate: Batches of the kit whose gradients make one step.

    Raises:
        PocketuneError: A value makes no sense; the message names it.
    """

    photos: str
    epochs: int | None
    steps: int | None
    lr: float
    side_lr: float | None
    optimizer: str
    momentum: float
    weight_decay: float
    warmup: int
    clip: float | None
    budget: int | None
    seed: int
    patience: int | None
    val_fraction: float
    checkpoint_every: int | None
    checkpoint_seconds: float | None = 120.0
    accumulate: int = 1

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise PocketuneError("give either epochs or steps, not both")
        if self.optimizer not in OPTIMIZERS:
            raise PocketuneError(
                f"unknown optimizer {self.optimizer!r}: choose one of {', '.join(OPTIMIZERS)}"
            )
        for name in _WHOLE:
            self._require(name, "a whole number", lambda value: isinstance(value, int))
        for name in _REAL:
            self._require(name, "a number", lambda value: isinstance(value, (int, float)))
        for name in ("epochs", "steps", "patience", "checkpoint_every", "accumulate"):
            self._require(name, "at least 1", lambda value: value >= 1)
        for name in ("lr", "side_lr", "clip", "checkpoint_seconds"):
            self._require(name, "above 0", lambda value: 0 < value < float("inf"))
        for name in ("weight_decay", "warmup", "seed"):
            self._require(name, "0 or more", lambda value: 0 <= value < float("inf"))
        for name in ("momentum", "val_fraction"):
            self._require(name, "from 0 up to, but not including, 1", lambda v: 0 <= v < 1)

    def _require(self, name: str, rule: str, holds: Any) -> None:
        value = getattr(self, name)
        if value is not None and not holds(value):
            raise PocketuneError(f"{name} must be {rule}, not {value!r}")

    @classmethod
    def new(
        cls,
        photos: str | os.PathLike[str],
        *,
        epochs: int | None,
        steps: int | None,
        lr: float | None,
        optimizer: str,
        momentum: float | None,
        budget: str | int | None,
        **others: Any,
    ) -> TrainSettings:
        """The settings of a new run, with what is left to us filled in.

        Raises:
            PocketuneError: A value makes no sense; the message names it.
        """
        if momentum is not None and optimizer != "sgd":
            raise PocketuneError(
                f"momentum={momentum} has no effect with {optimizer}: leave it out, or use sgd"
            )
        return cls(
            photos=str(Path(photos).absolute()),
            epochs=EPOCHS if epochs is None and steps is None else epochs,
            steps=steps,
            lr=LEARNING_RATES.get(optimizer, 0.0) if lr is None else lr,
            optimizer=optimizer,
            momentum=MOMENTUM if momentum is None else momentum,
            budget=None if budget is None else parse_size(budget),
            **others,
        )

    def total_steps(self, steps_per_epoch: int) -> int:
        """Optimizer steps of the whole run."""
        return self.steps if self.steps is not None else (self.epochs or 0) * steps_per_epoch

    def rates(self, parameters: Iterable[str]) -> dict[str, float]:
        """Factors on the learning rate of those parameters that have one of their own."""
        if self.side_lr is None:
            return {}
        factor = self.side_lr / self.lr
        return {name: factor for name in parameters if SIDE in name.split(".")}

    def to_dict(self) -> dict[str, Any]:
        """A JSON value."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainSettings:
        """The settings of :meth:`to_dict`.

        Raises:
            PocketuneError: A field is missing or unknown.
        """
        if values.keys() != {field.name for field in fields(cls)}:
            raise PocketuneError("the settings were stored by another version of Pocketune")
        return cls(**values)
