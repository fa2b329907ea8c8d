"""The cost of a candidate, from the manifest of its kit or of its draft."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pocketune.device.memory.estimate import estimate_memory
from pocketune.device.train.optimizer import state_slots
from pocketune.device.train.record import step_flops
from pocketune.planner.candidate import Cost

if TYPE_CHECKING:
    from pocketune.device.train.settings import TrainSettings
    from pocketune.kit.manifest import Manifest

FLOPS_A_SECOND = 1e10
"""Of a small processor. It only orders the first probes, which measure the time of a step."""


def predict_cost(
    manifest: Manifest,
    settings: TrainSettings,
    *,
    process: int,
    classes: int,
    accumulate: int,
    seconds: float = 0.0,
) -> Cost:
    """The cost of a run.

    Args:
        manifest: The manifest of the kit or its draft.
        settings: The settings of the run.
        process: Resident bytes of the process before it opens a kit.
        classes: Number of classes of the photos.
        accumulate: Batches in a step.
        seconds: Seconds that making the manifest took.
    """
    memory = estimate_memory(
        manifest,
        process=process,
        classes=classes,
        slots=state_slots(settings.optimizer, settings.sgd_momentum),
        accumulate=accumulate,
    )
    flops = step_flops(manifest) * accumulate
    shapes = manifest.shapes(classes)
    return Cost(
        memory=memory.total,
        step_seconds=flops / FLOPS_A_SECOND,
        step_flops=flops,
        parameters=sum(math.prod(shapes[spec.name]) for spec in manifest.parameters),
        seconds=seconds,
    )
