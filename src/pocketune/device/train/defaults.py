"""What a run uses where its settings are left out: learning rates, length and patience.

The values were chosen by experiment, so that a run without any settings comes close to a tuned one
(docs/defaults.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MEASURED_IMAGES = 8
"""Images in each step of the experiments."""

STEPS = 1000
"""Steps after which training on a small set of photos gains nothing more."""

EPOCHS = (5, 100)
"""The fewest epochs, for large sets, and the most, for very small ones."""


@dataclass(frozen=True)
class Rates:
    """Peak learning rates by group of parameters.

    Attributes:
        main: Of the network's own layers, which start from pretrained values.
        branch: Of side branches, which start from random values.
        head: Of the classifier, which starts from a solution in closed form.
    """

    main: float
    branch: float
    head: float

    def scaled(self, factor: float) -> Rates:
        """All three times ``factor``."""
        return Rates(self.main * factor, self.branch * factor, self.head * factor)


_ADAM = Rates(main=5e-4, branch=3e-3, head=1e-3)

RATES = {"adam": _ADAM, "adamw": _ADAM, "sgd": Rates(main=1e-2, branch=3e-2, head=1e-2)}
"""By optimizer, for steps of 8 images."""

OPTIMIZERS = tuple(RATES)


def default_rates(optimizer: str, images: int) -> Rates:
    """Rates for steps of ``images`` images.

    A step of more images has less noise and there are fewer of them, so that each may be larger:
    in proportion for sgd (Goyal et al., 2017), by the square root for Adam (Malladi et al., 2022).

    >>> default_rates("sgd", 16).main == 2 * default_rates("sgd", 8).main
    True
    """
    factor = images / MEASURED_IMAGES
    return RATES[optimizer].scaled(factor if optimizer == "sgd" else math.sqrt(factor))


def default_epochs(steps_per_epoch: int) -> int:
    """Epochs for a set of photos: few for a large one, many for a small one.

    >>> default_epochs(10), default_epochs(90), default_epochs(5000)
    (100, 12, 5)
    """
    fewest, most = EPOCHS
    return min(most, max(fewest, math.ceil(STEPS / steps_per_epoch)))


def default_patience(epochs: int) -> int:
    """Epochs without a better validation result before a run stops early: half of them.

    A cosine decay gains most in its second half, so that a shorter patience would lose accuracy.

    >>> default_patience(20), default_patience(5)
    (10, 3)
    """
    return math.ceil(epochs / 2)
