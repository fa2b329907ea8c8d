"""What a run uses where its settings are left out: learning rates, length and patience.

The values were chosen by experiment, so that a run without any settings comes close to a tuned one
(docs/defaults.md).
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketune.kit.manifest import ParameterSpec

MEASURED_IMAGES = 8
"""Images in each step of the experiments."""

FEW_PHOTOS = 200
"""Training photos below which the network's rates are lower."""

TOO_FEW_TO_DIVIDE = 125
"""Photos below which none validate, and the classifier that is computed from all is the result."""

STEPS = 1000
"""Steps after which training on some hundreds of photos gains nothing more."""

SMALL_SET_EPOCHS = 25
"""Epochs after which training on a hundred photos gains nothing more."""

FEW_STEPS = 250
"""Steps of the trials on a hundred photos; smaller sets have as many."""

EPOCHS = (10, 100)
"""The fewest epochs, for large sets, and the most, for very small ones."""

ENOUGH_TO_STOP = 200
"""Validation photos from which on a run may stop early."""

DRAWS = 4
"""Random crops of each photo whose features are kept; more gain no accuracy (docs/cache.md)."""

UNEVEN = 10
"""A set is uneven if its largest class has more than so many times the photos of its smallest."""

BALANCE = 0.5
"""How much the rare classes of an uneven set count beyond their number of photos."""


@dataclass(frozen=True)
class Rates:
    """Peak learning rates by group of parameters.

    Attributes:
        main: Of the network's own weights, which start from pretrained values.
        bias: Of its biases and of the scales and shifts of its norms.
        side: Of side branches, which start from random values.
        decode: Of decode heads that start from random values.
        head: Of the classifier, which starts from a solution in closed form.
    """

    main: float
    bias: float
    side: float
    decode: float
    head: float

    @classmethod
    def equal(cls, rate: float) -> Rates:
        """The same rate for every group."""
        return cls(*[rate] * 5)

    def of(self, parameter: ParameterSpec) -> float:
        """The rate of a parameter."""
        rate: float = getattr(self, kind_of(parameter))
        return rate


def kind_of(parameter: ParameterSpec) -> str:
    """The field of `Rates` that a parameter follows, by its group and dimensions."""
    if parameter.group in ("main", "decode_head") and len(parameter.shape) == 1:
        return "bias"
    return _KINDS[parameter.group]


_KINDS = {"main": "main", "decode_head": "decode", "branch": "side", "head": "head"}

_ADAM = Rates(main=5e-4, bias=2e-3, side=5e-3, decode=4e-3, head=1e-3)
_SGD = Rates(main=2e-3, bias=2e-3, side=1e-2, decode=1e-2, head=1e-3)

RATES = {"adam": _ADAM, "adam8": _ADAM, "adamw": _ADAM, "sgd": _SGD}
"""By optimizer, for steps of 8 images."""

OPTIMIZERS = tuple(RATES)


def default_rates(optimizer: str, images: int, photos: int | None = None) -> Rates:
    """Rates for steps of `images` images.

    A step of more images has less noise and there are fewer of them, so that each may be larger:
    in proportion for sgd (Goyal et al., 2017), by the square root for Adam (Malladi et al., 2022).
    Those for few training photos are smaller, by the square root of their number, except that of
    the classifier, which starts near its best; None stands for many.

    >>> default_rates("sgd", 16).main == 2 * default_rates("sgd", 8).main
    True
    >>> default_rates("adam", 8, photos=50).main == default_rates("adam", 8).main / 2
    True
    """
    factor = images / MEASURED_IMAGES
    factor = factor if optimizer == "sgd" else math.sqrt(factor)
    few = 1.0 if photos is None else math.sqrt(min(1.0, photos / FEW_PHOTOS))
    rates = RATES[optimizer]
    network = Rates(*(rate * factor * few for rate in astuple(rates)))
    return replace(network, head=rates.head * factor)


def default_epochs(steps_per_epoch: int) -> int:
    """Epochs for a set of photos: few for a large one, many for a small one.

    >>> default_epochs(2), default_epochs(10), default_epochs(90), default_epochs(5000)
    (100, 25, 12, 10)
    """
    fewest, most = EPOCHS
    enough = min(SMALL_SET_EPOCHS, math.ceil(STEPS / steps_per_epoch))
    return min(most, max(fewest, enough, math.ceil(FEW_STEPS / steps_per_epoch)))


def default_balance(imbalance: float) -> float:
    """How much rare classes count, by the photos of the largest for each of the smallest.

    >>> default_balance(10), default_balance(100)
    (0.0, 0.5)
    """
    return BALANCE if imbalance > UNEVEN else 0.0


def default_patience(epochs: int, validation: int) -> int:
    """Epochs without a better validation result before a run stops early; 0 for never.

    It is half of the epochs: a cosine decay gains most in its second half. On few validation photos
    a better network often looks no better, so that such a run, which is short, is not stopped.

    >>> default_patience(20, validation=400), default_patience(20, validation=100)
    (10, 0)
    """
    return math.ceil(epochs / 2) if validation >= ENOUGH_TO_STOP else 0
