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
    from pocketune.data.decoding import Decoding
    from pocketune.device.train.settings import TrainSettings
    from pocketune.kit.manifest import Manifest


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
    seconds: float = 0.0,
    decoding: Decoding | None = None,
) -> Cost:
    """The cost of a run.

    Args:
        manifest: The manifest of the kit or its draft.
        settings: The settings of the run.
        process: Resident bytes of the process before it opens a kit.
        classes: Number of classes of the photos.
        accumulate: Batches in a step.
        seconds: Seconds that making the manifest took.
        decoding: What decoding the photos takes, if it is known.
    """
    slots = state_slots(settings.optimizer, settings.sgd_momentum)
    memory = estimate_memory(
        manifest,
        process=process,
        classes=classes,
        slots=slots,
        accumulate=accumulate,
        decoding=decoding,
    )
    step = estimate_step(manifest, _speed(), classes=classes, slots=slots, accumulate=accumulate)
    shapes = manifest.shapes(classes)
    return Cost(
        memory=memory.total,
        step_seconds=step,
        step_flops=step_flops(manifest) * accumulate,
        parameters=sum(math.prod(shapes[spec.name]) for spec in manifest.parameters),
        seconds=seconds,
    )
