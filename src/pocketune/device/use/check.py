"""Check a kit whole, as a device does that did not make it: its files, its graphs, and a step."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from pocketune.arrays import StrPath
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.memory.budget import limited
from pocketune.device.memory.estimate import estimate_memory
from pocketune.device.memory.process import ProcessMemory, process_memory
from pocketune.device.memory.sizes import format_size
from pocketune.kit.kit import Kit, kit_files
from pocketune.kit.manifest import KitError
from pocketune.kit.names import PARAMETERS

MOST_ABOVE = 16_000_000
"""Bytes by which a process may exceed what the manifest of a kit predicts."""


def check_kit(path: StrPath) -> Iterator[tuple[str, str]]:
    """Check a kit, and say what was found of each part: its name and a few words.

    Every file must be the one that the manifest describes, and every graph hold nothing but
    operators on tensors, with the inputs and outputs of the manifest. Then a training step and a
    prediction run on random pixels, and must give finite values. The process must not take much
    more memory for them than the manifest predicts; that cannot be told of a process that has
    taken more before.

    Raises:
        KitError: Something is wrong; the message names the file.
    """
    _, before = limited(None)
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
    yield "memory", _memory(kit, before)


def _memory(kit: Kit, before: ProcessMemory) -> str:
    """A few words about the memory that this process has taken for a kit."""
    classes, peak = len(kit.manifest.classes), process_memory().peak
    said = estimate_memory(kit.manifest, process=before.current, classes=classes, slots=0).total
    if peak > max(before.peak, said + MOST_ABOVE):
        raise KitError(
            f"the kit {kit.path} took {format_size(peak)} of memory for a step, and its manifest "
            f"says {format_size(said)}: it is not what its manifest describes"
        )
    return f"{format_size(peak)} at the peak, and {format_size(said)} by the manifest"
