"""How much memory a run will take, from the manifest of its kit."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from pocketune.data.loader import AHEAD
from pocketune.device.manifest import FEATURES, STEP
from pocketune.device.size import format_size

if TYPE_CHECKING:
    from pocketune.device.kit import Kit


# Fitted with ONNX Runtime 1.31 to the peaks of processes that made steps of the five baseline
# methods for MobileNetV2 at 224 px; they reproduce those to within 5 %.
RUNTIME = 22_000_000
"""Bytes that the runtime takes once: mostly its own code, whose pages come in when first run."""
GRAPH_COPIES = 2
"""A graph's weights are resident as parsed and in the layout that the processor wants."""
NODE_BYTES = 3500
"""What the runtime holds for a node of a graph, whatever it computes."""
ARENA_OVERHEAD = 1.45
"""The runtime's arena holds this much more than the tensors that live in it at the peak."""


@dataclass(frozen=True)
class MemoryPrediction:
    """Bytes that a run will take, by what takes them.

    Attributes:
        process: Python, numpy, the runtime and whatever else is resident already.
        runtime: What the runtime takes once, with the first graph that it opens and runs.
        graphs: Frozen weights and the graphs themselves, as the runtime holds them.
        activations: Live tensors at the peak of the graph that needs most, gradients among them;
            the graphs share one arena.
        parameters: What is trained, and the running statistics.
        optimizer: What the optimizer keeps for each parameter.
        photos: Photos being decoded and batches waiting for the step.
    """

    process: int
    runtime: int
    graphs: int
    activations: int
    parameters: int
    optimizer: int
    photos: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(getattr(self, field.name) for field in fields(self))

    def __str__(self) -> str:
        parts = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ", ".join(f"{name} {format_size(size)}" for name, size in parts)


def predict_memory(
    kit: Kit,
    *,
    process: int,
    classes: int,
    slots: int,
    batch: int | None = None,
    accumulate: int = 1,
) -> MemoryPrediction:
    """Peak resident memory of a training run.

    Args:
        kit: The kit to train.
        process: Resident bytes before the graphs are loaded.
        classes: Number of classes of the photos.
        slots: Tensors that the optimizer keeps for each parameter.
        batch: Images that the graphs take at once; the kit's own where it is None.
        accumulate: Such batches of a step; for more than one, their gradients are added up in a
            place of their own.
    """
    manifest = kit.manifest
    batch = batch or manifest.batch
    shapes = manifest.shapes(classes)
    trained = sum(_bytes(shapes[spec.name]) for spec in manifest.parameters)
    statistics = sum(_bytes(shapes[spec.name]) for spec in manifest.statistics)
    # The frozen part runs a few images at a time, the others a batch at a time.
    peaks = {
        name: peak * (manifest.images_at_once if name == "features" else batch / manifest.batch)
        for name, peak in manifest.memory.items()
    }
    return MemoryPrediction(
        process=process,
        runtime=RUNTIME,
        graphs=GRAPH_COPIES
        * sum(_held_bytes(kit, name) for name in manifest.files if name.endswith(".onnx")),
        activations=round(ARENA_OVERHEAD * max(peaks.values())),
        parameters=trained * (2 if accumulate > 1 else 1) + statistics,
        optimizer=slots * trained,
        photos=photo_bytes(manifest.size, batch * accumulate),
    )


def photo_bytes(size: int, batch: int, workers: int = 2, waiting: int = AHEAD + 2) -> int:
    """Bytes of decoded photos: in each worker one being decoded, and the batches ahead of the
    step, being handed over and in the step.

    A JPEG is decoded at the smallest scale that is at least the size asked for, so at less than
    twice its side, for a photo of 4:3; the crop of it is one more image.
    """
    pixels = 3 * size * size
    return waiting * batch * pixels + workers * (4 * pixels * 4 // 3 + pixels)


def _held_bytes(kit: Kit, name: str) -> int:
    """A graph as the runtime holds it: weights in 8 bits are brought to float32 when it is opened,
    unless the graph computes with integers or is executed as it is written.
    """
    quantisation = kit.manifest.quantisation
    integers = name == FEATURES and quantisation is not None and quantisation.activations == 8
    unpacked = quantisation is not None and name != STEP and not integers
    return _graph_bytes(kit, name) * (4 if unpacked else 1)


def _graph_bytes(kit: Kit, name: str) -> int:
    graph = kit.source(name)
    return len(graph) if isinstance(graph, bytes) else graph.stat().st_size


def _bytes(shape: tuple[int, ...]) -> int:
    return 4 * math.prod(shape)
