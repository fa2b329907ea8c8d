"""The settings of a run: one declaration for Python, the command line and checkpoints."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pocketune.device.memory.sizes import parse_size
from pocketune.errors import PocketuneError
from pocketune.options import check_options, documented, option

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pocketune.kit.manifest import ParameterSpec

EPOCHS = 20
MOMENTUM = 0.9
LEARNING_RATES = {"adam": 3e-4, "adamw": 3e-4, "sgd": 1e-2}
"""Defaults by optimizer, close to those of published transfer recipes at batch 8."""

OPTIMIZERS = tuple(LEARNING_RATES)

RUN_PANEL = "The run"

_run_option = partial(option, panel=RUN_PANEL)
_option = partial(option, panel="Training")


@documented
@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """The settings of a run, which each checkpoint stores.

    Every option has a default. Some defaults depend on other options; :meth:`resolved` fills them
    in.

    Example:
        >>> TrainSettings(epochs=5, budget="96MB").resolved().lr
        0.0003

    Raises:
        PocketuneError: A value is invalid; the message names it.
    """

    budget: int | str | None = _run_option(
        "Memory limit of the whole process, such as 96MB. A run that will not fit is refused.",
        default=None,
        metavar="SIZE",
        unset="no limit",
    )
    checkpoint_every: int | None = _run_option(
        "Save a checkpoint every STEPS steps.",
        default=None,
        metavar="STEPS",
        unset="by time alone; always after an epoch",
        at_least=1,
    )
    checkpoint_seconds: float | None = _run_option(
        "Save a checkpoint every SECONDS seconds.", default=120.0, metavar="SECONDS", above=0
    )
    epochs: int | None = _option(
        "Number of epochs.", default=None, metavar="N", unset=str(EPOCHS), at_least=1
    )
    steps: int | None = _option(
        "Number of training steps, instead of epochs.", default=None, metavar="N", at_least=1
    )
    optimizer: str = _option("Optimizer.", default="adam", choices=OPTIMIZERS)
    lr: float | None = _option(
        "Peak learning rate, followed by cosine decay.",
        default=None,
        metavar="RATE",
        unset=f"{LEARNING_RATES['adam']}; {LEARNING_RATES['sgd']} for sgd",
        above=0,
    )
    side_lr: float | None = _option(
        "Peak learning rate of side branches, for methods that add them: repnet, tinytl.",
        default=None,
        metavar="RATE",
        unset="same as lr",
        above=0,
    )
    momentum: float | None = _option(
        "Momentum of sgd; 0 saves the memory of its buffer.",
        default=None,
        metavar="FACTOR",
        unset=str(MOMENTUM),
        at_least=0,
        below=1,
    )
    weight_decay: float = _option(
        "Weight decay; not applied to biases and norms.", default=0.0, metavar="RATE", at_least=0
    )
    warmup: int = _option("Number of linear warm-up steps.", default=0, metavar="STEPS", at_least=0)
    clip: float | None = _option(
        "Clip the global gradient norm to this value.",
        default=None,
        metavar="NORM",
        unset="no clipping",
        above=0,
    )
    accumulate: int = _option(
        "Accumulate gradients over N batches per optimizer step.",
        default=1,
        metavar="N",
        at_least=1,
    )
    patience: int | None = _option(
        "Stop after this many epochs without a better validation result.",
        default=None,
        metavar="EPOCHS",
        unset="no early stopping",
        at_least=1,
    )
    val_fraction: float = _option(
        "Fraction of the photos for validation, if there is no train/val split.",
        default=0.2,
        metavar="FRACTION",
        at_least=0,
        below=1,
    )
    hold_out_test: bool = _option(
        "Leave the photos of test/ out of validation, for an evaluation after the run.",
        default=False,
    )
    seed: int = _option("Random seed.", default=0, metavar="N", at_least=0)

    def __post_init__(self) -> None:
        check_options(self)
        if self.epochs is not None and self.steps is not None:
            raise PocketuneError("give either epochs or steps, not both")
        if self.momentum is not None and self.optimizer != "sgd":
            raise PocketuneError(
                f"momentum={self.momentum} has no effect with {self.optimizer}: leave it out, or "
                "use sgd"
            )
        if self.budget is not None:
            parse_size(self.budget)

    @property
    def peak_lr(self) -> float:
        """The peak learning rate."""
        return LEARNING_RATES[self.optimizer] if self.lr is None else self.lr

    @property
    def sgd_momentum(self) -> float:
        """The momentum if the optimizer is sgd; 0 needs no optimizer state."""
        return MOMENTUM if self.momentum is None else self.momentum

    @property
    def budget_bytes(self) -> int | None:
        """Peak resident bytes that the process may take; None for no limit."""
        return None if self.budget is None else parse_size(self.budget)

    def total_steps(self, steps_per_epoch: int) -> int:
        """Optimizer steps of the whole run."""
        return self.steps or (self.epochs or EPOCHS) * steps_per_epoch

    def rates(self, parameters: Iterable[ParameterSpec]) -> dict[str, float]:
        """Factors on the learning rate of the side branches' parameters, by name."""
        if self.side_lr is None:
            return {}
        factor = self.side_lr / self.peak_lr
        return {spec.name: factor for spec in parameters if spec.group == "branch"}

    def resolved(self) -> TrainSettings:
        """The same settings with all defaults filled in, as a checkpoint stores them."""
        return replace(
            self,
            epochs=self.epochs or (None if self.steps else EPOCHS),
            lr=self.peak_lr,
            momentum=self.sgd_momentum if self.optimizer == "sgd" else None,
            budget=self.budget_bytes,
        )

    def to_dict(self) -> dict[str, Any]:
        """The settings as a JSON object."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainSettings:
        """Settings from the object of :meth:`to_dict`.

        Raises:
            PocketuneError: A field is missing or unknown.
        """
        if values.keys() != {field.name for field in fields(cls)}:
            raise PocketuneError("the settings were stored by another version of Pocketune")
        return cls(**values)
