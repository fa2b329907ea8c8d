"""Check a kit whole, as a device does that did not make it: its files, its graphs, and a step."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from pocketune.arrays import StrPath
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.kit.kit import Kit, kit_files
from pocketune.kit.manifest import KitError
from pocketune.kit.names import PARAMETERS


def check_kit(path: StrPath) -> Iterator[tuple[str, str]]:
    """Check a kit, and say what was found of each part: its name and a few words.

    Every file must be the one that the manifest describes, and every graph hold nothing but
    operators on tensors, with the inputs and outputs of the manifest. Then a training step and a
    prediction run on random pixels, and must give finite values.

    Raises:
        KitError: Something is wrong; the message names the file.
    """
    kit = Kit.open(path)
    manifest = kit.manifest
    yield "manifest", f"schema {manifest.schema}, made by pocketune {manifest.version}"
    for name in kit_files(manifest):
        if name != PARAMETERS:
            yield name, "only known operators, inputs and outputs as in the manifest"
    state = kit.state()
    values = sum(value.size for value in state.values())
    yield PARAMETERS, f"{values:,} values, all finite"
    engine, rng = OnnxEngine(kit, state), np.random.default_rng(0)
    images = rng.integers(0, 256, (manifest.batch, manifest.size, manifest.size, 3), np.uint8)
    labels = np.zeros(
        (manifest.batch, *manifest.task.label_shape(manifest.size)), manifest.task.label_type
    )
    outputs = engine.predict(images[:1])
    if not np.isfinite(outputs).all():
        raise KitError(f"the kit {kit.path} predicts values that are not finite")
    yield "prediction", "runs"
    step = engine.gradients(images, labels, rng)
    for name, gradient in step.values.items():
        if not np.isfinite(gradient).all():
            raise KitError(
                f"a step of the kit {kit.path} gives {name} a gradient that is not finite"
            )
    if not math.isfinite(step.loss):
        raise KitError(f"a step of the kit {kit.path} has a loss that is not finite")
    yield "training step", f"runs, with a loss of {step.loss:.2f} on {manifest.batch} random images"
