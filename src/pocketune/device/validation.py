"""How well an engine classifies labelled photos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from pocketune.data import Batch
    from pocketune.device.engine import Engine, FloatArray


@dataclass(frozen=True)
class Validation:
    """Mean cross-entropy and top-1 share over ``images`` photos; nan where there are none."""

    loss: float
    accuracy: float
    images: int


def validate(
    engine: Engine, batches: Iterable[Batch], after_batch: Callable[[], None]
) -> Validation:
    """Predict all batches and compare with their labels; calls ``after_batch`` after each."""
    loss, correct, images = 0.0, 0, 0
    for batch in batches:
        logits = engine.predict(batch.images)
        loss += float(cross_entropy(logits, batch.labels).sum())
        correct += int((logits.argmax(axis=1) == batch.labels).sum())
        images += len(batch.labels)
        after_batch()
    if not images:
        return Validation(float("nan"), float("nan"), 0)
    return Validation(loss / images, correct / images, images)


def cross_entropy(logits: FloatArray, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Cross-entropy (N,) of logits (N, classes), in float64 and safe against overflow."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    picked = np.take_along_axis(shifted, labels[:, None], axis=1)[:, 0]
    total: NDArray[np.float64] = np.log(np.exp(shifted).sum(axis=1)) - picked
    return total
