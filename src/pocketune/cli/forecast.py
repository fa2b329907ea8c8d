"""`pocketune kit forecast`."""

from __future__ import annotations

import json
from dataclasses import asdict

from pocketune.cli.command import command
from pocketune.cli.kit import kit_lines, training_memory
from pocketune.cli.method import parse_method
from pocketune.cli.options import (
    ClassesOption,
    JsonOption,
    MethodOptions,
    NetworkOptions,
    NetworkOrFileArgument,
    ShapeOptions,
    StepOptions,
)
from pocketune.errors import author_half


@command(
    "pocketune kit forecast mobilenet_v2 --width 0.35 --classes 10",
    "pocketune kit forecast mcunet_5fps --method tinytl --batch 4 --json \\",
    "    | jq .training_memory",
)
def forecast(
    named: NetworkOrFileArgument,
    classes: ClassesOption,
    output: JsonOption,
    network: NetworkOptions,
    shape: ShapeOptions,
    method: MethodOptions,
    step: StepOptions,
) -> None:
    """Forecast the memory and time of training from a kit, without building it.

    Only shapes count, so random weights do. With --json: one object, the manifest of the kit plus
    "trained_parameters", "training_memory" (bytes of the whole process by optimizer) and
    "step_seconds" (of a step with Adam on this machine, without the decoding of photos).
    """
    # Both are measured before PyTorch is imported, which a training process never does.
    from pocketune.device.memory.baseline import training_baseline
    from pocketune.device.speed import estimate_step, measure_speed

    process, speed = training_baseline(), measure_speed()
    with author_half("a forecast"):
        from pocketune.authoring import forecast_kit

    manifest = forecast_kit(
        named.network,
        parse_method(**asdict(method), batch=step.batch, size=step.size),
        **asdict(step),
        **asdict(classes),
        **asdict(network),
        **asdict(shape),
    )
    facts = {
        "trained_parameters": manifest.trained_parameters,
        "training_memory": training_memory(manifest, process),
        "step_seconds": estimate_step(manifest, speed),
        **manifest.to_dict(),
    }
    print(json.dumps(facts) if output.json else "\n".join(kit_lines(facts, manifest)))
