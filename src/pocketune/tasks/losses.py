"""What is trained for: one class an image, or any number of attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pocketune.arrays import FloatArray
    from pocketune.data import Labels

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Loss:
    """A loss, and what goes with it.

    Attributes:
        values: loss (N,) of logits (N, classes) and labels.
        correct: whether each guess is right: (N,) of classes, (N, classes) of attributes.
        probabilities: probability (N, classes) of each class or attribute, of logits.
    """

    values: Callable[[FloatArray, Labels], Values]
    correct: Callable[[FloatArray, Labels], NDArray[np.bool_]]
    probabilities: Callable[[FloatArray], Values]


def cross_entropy(logits: FloatArray, labels: Labels) -> Values:
    """Cross-entropy (N,) of logits (N, classes), in float64 and safe against overflow."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    picked = np.take_along_axis(shifted, labels[:, None], axis=1)[:, 0]
    total: Values = np.log(np.exp(shifted).sum(axis=1)) - picked
    return total


def binary_cross_entropy(logits: FloatArray, labels: Labels) -> Values:
    """Mean (N,) over the attributes (N, A) of their cross-entropies, in float64."""
    exact = logits.astype(np.float64)
    mean: Values = (np.logaddexp(0, exact) - labels * exact).mean(axis=1)
    return mean


def softmax(logits: FloatArray) -> Values:
    """Probabilities (N, classes) that add up to 1, in float64 and safe against overflow."""
    shifted = logits.astype(np.float64)
    powers = np.exp(shifted - shifted.max(axis=1, keepdims=True))
    result: Values = powers / powers.sum(axis=1, keepdims=True)
    return result


def sigmoid(logits: FloatArray) -> Values:
    """Probabilities (N, A) of attributes, in float64 and safe against overflow."""
    result: Values = np.exp(-np.logaddexp(0, -logits.astype(np.float64)))
    return result


def _is_likeliest(logits: FloatArray, labels: Labels) -> NDArray[np.bool_]:
    right: NDArray[np.bool_] = logits.argmax(axis=1) == labels
    return right


def _is_as_likely(logits: FloatArray, labels: Labels) -> NDArray[np.bool_]:
    """An attribute is taken to be there where its probability is above a half."""
    right: NDArray[np.bool_] = (logits > 0) == (labels > 0)
    return right


CROSS_ENTROPY = "cross_entropy"
BINARY_CROSS_ENTROPY = "binary_cross_entropy"
LOSSES = {
    CROSS_ENTROPY: Loss(cross_entropy, _is_likeliest, softmax),
    BINARY_CROSS_ENTROPY: Loss(binary_cross_entropy, _is_as_likely, sigmoid),
}
"""By the name that a manifest has; the second is for attributes."""


def loss_name(labels: Labels) -> str:
    """The loss for labels (N,) of classes, or (N, A) of attributes."""
    return BINARY_CROSS_ENTROPY if labels.ndim == 2 else CROSS_ENTROPY
