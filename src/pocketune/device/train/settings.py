"""The settings of a run: one declaration for Python, the command line and checkpoints."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pocketune.device.memory.sizes import parse_pixels, parse_size
from pocketune.device.train.defaults import (
    BALANCE,
    DRAWS,
    ENOUGH_TO_STOP,
    EPOCHS,
    FEW_STEPS,
    MEASURED_IMAGES,
    OPTIMIZERS,
    RATES,
    SMALL_SET_EPOCHS,
    STEPS,
    TOO_FEW_TO_DIVIDE,
    UNEVEN,
    Rates,
    default_balance,
    default_epochs,
    default_patience,
    default_rates,
)
from pocketune.errors import PocketuneError
from pocketune.options import check_options, documented, flag, option, option_fields

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pocketune.kit.manifest import ParameterSpec

MOMENTUM = 0.9
RUN_PANEL = "The run"


_OF_STEPS = (
    *("lr", "head_lr", "bias_lr", "side_lr", "decode_lr"),
    *("momentum", "weight_decay", "warmup", "clip", "patience", "balance", "draws"),
)
"""Settings that have no effect without steps."""
_VALUES_OF_STEPS = {"optimizer": ("adamw", "sgd"), "cache": ("memory", "disk")}
"""Values of others that the user chooses for steps. Of those without effect, a plan may choose
`adam8` and `accumulate` to fit a budget."""

_run_option = partial(option, panel=RUN_PANEL)
_option = partial(option, panel="Training")


def _rates(group: str) -> str:
    """The default rates of a group of parameters, as help shows them."""
    adam, sgd = (getattr(RATES[optimizer], group) for optimizer in ("adam", "sgd"))
    return f"{adam:g}" if adam == sgd else f"{adam:g}, or {sgd:g} for sgd"


@documented
@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """The settings of a run, which each checkpoint stores.

    Every option has a default. Some defaults depend on other options and on the photos;
    `resolved` fills them in.

    Example:
        >>> settings = TrainSettings(budget="96MB")
        >>> settings.resolved(images=8, steps_per_epoch=100, validation=0).epochs
        10

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
    logger: str = _run_option(
        "Also write what is logged to event files for TensorBoard, in the run folder.",
        default="none",
        choices=("none", "tensorboard"),
    )
    epochs: int | None = _option(
        "Number of epochs; 0 only computes the classifier.",
        default=None,
        metavar="N",
        unset=f"{EPOCHS[0]} for many photos; for fewer, up to {SMALL_SET_EPOCHS} to make {STEPS:,} "
        f"steps, or up to {EPOCHS[1]} to make {FEW_STEPS}; 0 with fewer than {TOO_FEW_TO_DIVIDE} "
        "photos of classes or attributes, unless they are divided or another setting is for steps",
        at_least=0,
    )
    steps: int | None = _option(
        "Number of training steps, instead of epochs.", default=None, metavar="N", at_least=1
    )
    optimizer: str = _option("Optimizer.", default="adam", choices=OPTIMIZERS)
    lr: float | None = _option(
        "Peak learning rate, followed by cosine decay.",
        default=None,
        metavar="RATE",
        unset=f"{_rates('main')}, for steps of {MEASURED_IMAGES} images",
        above=0,
    )
    head_lr: float | None = _option(
        "Peak learning rate of the classifier.",
        default=None,
        metavar="RATE",
        unset=f"lr if that is given, else {_rates('head')}",
        above=0,
    )
    bias_lr: float | None = _option(
        "Peak learning rate of biases, and of scales and shifts of norms.",
        default=None,
        metavar="RATE",
        unset=f"lr if that is given, else {_rates('bias')}",
        above=0,
    )
    side_lr: float | None = _option(
        "Peak learning rate of side branches, for methods that add them: repnet, tinytl, lora.",
        default=None,
        metavar="RATE",
        unset=f"lr if that is given, else {_rates('side')}",
        above=0,
    )
    decode_lr: float | None = _option(
        "Peak learning rate of a decode head that was random in the kit.",
        default=None,
        metavar="RATE",
        unset=f"lr if that is given or a run is trained further, else {_rates('decode')}",
        above=0,
    )
    head_start: str = _option(
        "Compute the classifier from the photos before the first step, or draw it at random.",
        default="auto",
        choices=("auto", "random"),
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
        "Stop after this many epochs without a better validation result; 0 never stops early.",
        default=None,
        metavar="EPOCHS",
        unset=f"half of the epochs if their number is left out too and {ENOUGH_TO_STOP} photos "
        "or more validate, else 0",
        at_least=0,
    )
    val_fraction: float | None = _option(
        "Fraction of the photos for validation, if there is no train/val split.",
        default=None,
        metavar="FRACTION",
        unset="0.2 of each class of 10 or more photos; 0 without steps",
        at_least=0,
        below=1,
    )
    balance: float | None = _option(
        "How much rare classes count beyond their number of photos: 0 not at all, 1 as much as "
        "any other class.",
        default=None,
        metavar="POWER",
        unset=f"{BALANCE:g} if the largest class has over {UNEVEN} times the photos of the "
        "smallest, else 0",
        at_least=0,
        at_most=1,
    )
    class_weights: str | None = _option(
        "Weights of the classes in the loss of masks; balanced ones are larger for classes of few "
        "pixels.",
        default=None,
        choices=("none", "balanced"),
        unset="balanced",
    )
    ignore: str | None = _option(
        "Values or names of classes in masks that do not count, separated by commas; 255 does not "
        "count either, except with none.",
        default=None,
        metavar="VALUES|none",
        unset="255; to train a run further, as in its training",
    )
    class_names: str | None = _option(
        "Names of the values of masks: a text file with a line for each, or names separated by "
        "commas.",
        default=None,
        metavar="FILE|NAMES",
        unset="classes.txt or labels.txt of the photos, else the values themselves; to train "
        "a run further, as in its training",
    )
    max_pixels: int | str | None = _option(
        "Leave out photos of more pixels, such as 12MP, except ordinary JPEGs and PNGs, which are "
        "not decoded in full.",
        default=None,
        metavar="PIXELS",
        unset="33MP; fewer if they are not RGB, more if they are JPEGs",
    )
    cache: str = _option(
        "Keep the features of the frozen part, so that later epochs neither decode photos nor "
        "compute them: on disk, in memory, or not at all. With auto, in the run folder if it pays "
        "and fits.",
        default="auto",
        choices=("auto", "off", "memory", "disk"),
    )
    draws: int | None = _option(
        "Number of random crops of each photo; epochs after so many repeat them.",
        default=None,
        metavar="K",
        unset=f"{DRAWS} with a cache; without one, new crops in every epoch",
        at_least=1,
    )
    seed: int = _option("Random seed.", default=0, metavar="N", at_least=0)

    def __post_init__(self) -> None:
        check_options(self)
        if self.epochs is not None and self.steps is not None:
            raise PocketuneError("epochs and steps must not be given together")
        if self.momentum is not None and self.optimizer != "sgd":
            raise PocketuneError(
                f"momentum={self.momentum} has no effect with {self.optimizer}: leave it out, or "
                "use sgd"
            )
        if self.budget is not None:
            parse_size(self.budget)
        if self.max_pixels is not None:
            parse_pixels(self.max_pixels)

    def peak_rates(self, images: int = MEASURED_IMAGES, photos: int | None = None) -> Rates:
        """The peak learning rates for steps of `images` images; see `default_rates`."""
        default = default_rates(self.optimizer, images, photos)
        if self.lr is not None:
            default = Rates.equal(self.lr)
        return Rates(
            main=default.main,
            bias=self.bias_lr or default.bias,
            side=self.side_lr or default.side,
            decode=self.decode_lr or default.decode,
            head=self.head_lr or default.head,
        )

    @property
    def sgd_momentum(self) -> float:
        """The momentum if the optimizer is sgd; 0 needs no optimizer state."""
        return MOMENTUM if self.momentum is None else self.momentum

    @property
    def budget_bytes(self) -> int | None:
        """Peak resident bytes that the process may take; None for no limit."""
        return None if self.budget is None else parse_size(self.budget)

    @property
    def pixels_limit(self) -> int | None:
        """Most pixels of a photo that is decoded in full; None for no limit."""
        return None if self.max_pixels is None else parse_pixels(self.max_pixels)

    def total_steps(self, steps_per_epoch: int) -> int:
        """Optimizer steps of the whole run, if it does not stop early."""
        if self.steps is not None:
            return self.steps
        epochs = default_epochs(steps_per_epoch) if self.epochs is None else self.epochs
        return epochs * steps_per_epoch

    @property
    def length_is_given(self) -> bool:
        """Whether the number of epochs or steps is."""
        return self.epochs is not None or self.steps is not None

    @property
    def asks_for_steps(self) -> bool:
        """Whether their number is given, or another setting that steps alone follow."""
        default = TrainSettings()
        given = (getattr(self, name) != getattr(default, name) for name in _OF_STEPS)
        chosen = (getattr(self, name) in values for name, values in _VALUES_OF_STEPS.items())
        return self.length_is_given or any(given) or any(chosen)

    def rates(self, parameters: Iterable[ParameterSpec]) -> dict[str, float]:
        """Factors on the peak learning rate of weights, by the parameter's name."""
        peak = self.peak_rates()
        return {spec.name: peak.of(spec) / peak.main for spec in parameters}

    def balance_of(self, imbalance: float) -> float:
        """How much rare classes count, by the photos of the largest for each of the smallest."""
        return default_balance(imbalance) if self.balance is None else self.balance

    def resolved(
        self,
        *,
        images: int,
        steps_per_epoch: int,
        validation: int,
        photos: int | None = None,
        imbalance: float = 1.0,
    ) -> TrainSettings:
        """The same settings with all defaults filled in, as a checkpoint stores them.

        Args:
            images: Images in a step, accumulated batches included.
            steps_per_epoch: Steps in an epoch of the training photos.
            validation: Number of validation photos.
            photos: Number of training photos; None for masks, each of which has many labels.
            imbalance: Training photos of the largest class for each of the smallest.
        """
        given = self.length_is_given
        epochs = self.epochs if given else default_epochs(steps_per_epoch)
        early = 0 if given or epochs is None else default_patience(epochs, validation)
        rates = self.peak_rates(images, photos)
        return replace(
            self,
            epochs=epochs,
            patience=early if self.patience is None else self.patience,
            lr=rates.main,
            bias_lr=rates.bias,
            side_lr=rates.side,
            decode_lr=rates.decode,
            head_lr=rates.head,
            balance=self.balance_of(imbalance),
            momentum=self.sgd_momentum if self.optimizer == "sgd" else None,
            budget=self.budget_bytes,
            max_pixels=self.pixels_limit,
        )

    def to_dict(self) -> dict[str, Any]:
        """The settings as a JSON object."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainSettings:
        """Settings from the object of `to_dict`.

        Raises:
            PocketuneError: A field is missing or unknown.
        """
        if values.keys() != {field.name for field in fields(cls)}:
            raise PocketuneError("the settings were stored by another version of Pocketune")
        return cls(**values)


def command_options(settings: TrainSettings) -> list[str]:
    """The options of `pocketune train` that give these settings."""
    options: list[str] = []
    for each in option_fields(TrainSettings):
        value = getattr(settings, each.name)
        if value is not None and value != each.default:
            options += [flag(each.name), str(value)]
    return options
