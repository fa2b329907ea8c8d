"""How far the predictions of two models agree on photos."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray
from pocketune.compiler.quantize.error import relative_error

Predict = Callable[[NDArray[np.uint8]], FloatArray]
"""Images (N, S, S, 3) to logits (N, ...)."""


@dataclass(frozen=True)
class Agreement:
    """A model against the one that it was made of.

    Attributes:
        photos: Number of photos that both have seen.
        same: Share of the answers that are the same: the class of a photo, each attribute of it, or
            the class of each pixel.
        error: Norm of the logits' difference, as a share of the logits' norm.
    """

    photos: int
    same: float
    error: float

    def __str__(self) -> str:
        return (
            f"on {self.photos} photos, {self.same:.1%} of its answers are those of the model; the "
            f"logits are off by {self.error:.1%}"
        )


def agreement(
    images: NDArray[np.uint8], original: Predict, other: Predict, *, several: bool
) -> Agreement:
    """Compare two models.

    Args:
        images: uint8 (N, S, S, 3), N at least 1.
        original: The model to agree with.
        other: The model to judge.
        several: Whether each logit is an answer by itself, as for attributes; otherwise the answer
            is the largest along axis 1.
    """
    truth, found = original(images), other(images)
    answers, others = (each > 0 if several else each.argmax(axis=1) for each in (truth, found))
    same = float((answers == others).mean())
    return Agreement(len(images), same, relative_error(found, truth))
