"""The cost of a candidate, from the manifest of its kit or of its draft."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

from pocketune.device.memory.estimate import estimate_memory
from pocketune.device.speed import Speed, estimate_step, measure_speed
from pocketune.device.train.optimizer import state_slots
from pocketune.device.train.record import step_flops
from pocketune.planner.candidate import Cost

if TYPE_CHECKING:
    from pocketune.data.images.cost import Decoding
    from pocketune.device.train.settings import TrainSettings
    from pocketune.kit.manifest import Manifest


SMALLER = "adam8"
"""What takes the place of Adam where memory is short: as accurate, with a quarter of the state, and
three times as long for an update (`benchmarks/results/adam8.md`)."""


@cache
def _speed() -> Speed:
    """The speed of this machine; measured in seconds, and kept in the user's cache folder."""
    return measure_speed()


def predict_cost(
    manifest: Manifest,
    settings: TrainSettings,
    *,
    process: int,
    classes: int,
    accumulate: int,
    decoding: Decoding | None = None,
) -> Cost:
    """The cost of a run; of one with `adam8` in place of Adam if a budget only fits that.

    Args:
        manifest: The manifest of the kit or its draft.
        settings: The settings of the run, with its budget.
        process: Resident bytes of the process before it opens a kit.
        classes: Number of classes of the photos.
        accumulate: Batches in a step.
        decoding: What decoding the photos takes, if it is known.
    """

    def memory_with(optimizer: str) -> int:
        return estimate_memory(
            manifest,
            process=process,
            classes=classes,
            slots=state_slots(optimizer, settings.sgd_momentum),
            accumulate=accumulate,
            refits=settings.head_start != "random",
            decoding=decoding,
        ).total

    budget, optimizer = settings.budget_bytes, settings.optimizer
    memory = memory_with(optimizer)
    least = memory_with(SMALLER) if optimizer == "adam" else memory
    if budget is not None and memory > budget and optimizer == "adam":
        optimizer, memory = SMALLER, least
    slots = state_slots(optimizer, settings.sgd_momentum)
    step = estimate_step(manifest, _speed(), classes=classes, slots=slots, accumulate=accumulate)
    shapes = manifest.shapes(classes)
    return Cost(
        optimizer=optimizer,
        memory=memory,
        least_memory=least,
        step_seconds=step,
        step_flops=step_flops(manifest) * accumulate,
        parameters=sum(math.prod(shapes[spec.name]) for spec in manifest.parameters),
    )
