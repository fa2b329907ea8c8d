"""How much memory a run will take, from the manifest of its kit."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

from pocketune.data.loader import AHEAD
from pocketune.device.memory.sizes import format_size

if TYPE_CHECKING:
    from pocketune.kit.kit import Kit
    from pocketune.kit.manifest import GraphSpec, Quantization


# Measured with ONNX Runtime 1.31 on Linux, graph by graph; the first and the last are fitted to the
# peaks of whole runs, those of benchmarks/bench_memory.py.
RUNTIME = 24_000_000
"""What runtime and training loop take once: mostly pages of code, once it has run, and threads."""
NODE_BYTES = 4_400
"""What the runtime holds for a node of a graph, whatever it computes."""
OPENING_COPIES, OPENING_LARGEST = 2, 3
"""Copies at once, while a frozen part is opened, of all its weights, as parsed and as tensors, and
further ones of its largest, which is put into the layout that the processor wants."""
ARENA_OVERHEAD = 1.2
"""The runtime's arena holds this much more than the tensors that live in it at the peak."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a run will take, by what takes them.

    Attributes:
        process: Python, numpy, the runtime and whatever else is resident already.
        runtime: What the runtime takes once, with the first graph that it opens and runs.
        graphs: Frozen weights and nodes of the graphs that are open at once, as the runtime holds
            them; where opening the frozen part takes more than the whole rest, what that takes.
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


def estimate_memory(
    kit: Kit,
    *,
    process: int,
    classes: int,
    slots: int,
    batch: int | None = None,
    accumulate: int = 1,
) -> MemoryEstimate:
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
        name: g.memory * (manifest.images_at_once if name == "features" else batch / manifest.batch)
        for name, g in manifest.graphs.items()
    }
    held = {n: _held(n, graph, manifest.quantization) for n, graph in manifest.graphs.items()}
    features = held.get("features", Held(0, 0))
    # Of these two, one is open at a time.
    graphs = features.open + max(held["step"].open, held["predict"].open)
    activations = round(ARENA_OVERHEAD * max(peaks.values()))
    optimizer = slots * trained
    photos = photo_bytes(manifest.size, batch * accumulate)
    return MemoryEstimate(
        process=process,
        runtime=RUNTIME,
        graphs=max(graphs, features.opening - activations - optimizer - photos),
        activations=activations,
        parameters=trained * (2 if accumulate > 1 else 1) + statistics,
        optimizer=optimizer,
        photos=photos,
    )


def photo_bytes(size: int, batch: int, workers: int = 2, waiting: int = AHEAD + 2) -> int:
    """Bytes of decoded photos: in each worker one being decoded, and the batches ahead of the
    step, being handed over and in the step.

    A JPEG is decoded at the smallest scale that is at least the size asked for, so at less than
    twice its side, for a photo of 4:3; the crop of it is one more image.
    """
    pixels = 3 * size * size
    return waiting * batch * pixels + workers * (4 * pixels * 4 // 3 + pixels)


class Held(NamedTuple):
    """Bytes that the runtime holds of a graph once it is open, and at most while it opens it."""

    open: int
    opening: int


def _held(name: str, graph: GraphSpec, quantization: Quantization | None) -> Held:
    """Weights in 8 bits are brought to float32 when a graph is opened, unless it computes with
    integers or is executed as it is written.
    """
    integers = name == "features" and quantization is not None and quantization.activations == 8
    growth = 4 if quantization is not None and name != "step" and not integers else 1
    nodes = graph.nodes * NODE_BYTES
    opening = OPENING_COPIES * graph.weights + OPENING_LARGEST * graph.largest
    return Held(growth * graph.weights + nodes, growth * opening + nodes)


def _bytes(shape: tuple[int, ...]) -> int:
    return 4 * math.prod(shape)
