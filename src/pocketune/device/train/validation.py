"""How well an engine classifies labeled photos, or tells their attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketune.tasks.losses import LOSSES, loss_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pocketune.data import Batch
    from pocketune.device.engine.base import Engine


@dataclass(frozen=True)
class Validation:
    """Mean loss and share of right guesses over ``images`` photos; nan where there are none.

    A guess is the likeliest class of a photo, or whether it has an attribute.
    """

    loss: float
    accuracy: float
    images: int


def validate(
    engine: Engine, batches: Iterable[Batch], after_batch: Callable[[], None]
) -> Validation:
    """Predict all batches and compare with their labels; calls ``after_batch`` after each."""
    total, correct, guesses, images = 0.0, 0, 0, 0
    for batch in batches:
        loss, logits = LOSSES[loss_name(batch.labels)], engine.predict(batch.images)
        total += float(loss.values(logits, batch.labels).sum())
        correct += int(loss.correct(logits, batch.labels).sum())
        guesses += batch.labels.size
        images += len(batch.labels)
        after_batch()
    if not images:
        return Validation(float("nan"), float("nan"), 0)
    return Validation(total / images, correct / guesses, images)
