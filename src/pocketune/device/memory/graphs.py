"""The memory that the runtime takes for the graphs of a kit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from pocketune.heap import KEPT

if TYPE_CHECKING:
    from pocketune.kit.manifest import GraphSpec, Manifest

# Measured with ONNX Runtime 1.31; see `pocketune.device.memory.estimate`.
NODE_BYTES = 4_500
"""Bytes that the runtime holds for each node of a graph."""
WEIGHTS_OVERHEAD = 1.2
"""Size of a graph's weights in memory relative to the file: some are kept in two layouts."""
OPENING_COPIES, OPENING_LARGEST = 2, 3
"""While a graph is opened whose kernels the runtime converts to another layout: copies of all
weights, and further copies of the largest one that is converted."""
ARENA_OVERHEAD = 1.1
"""Size of the arena relative to the one that the compiler simulates, which is within 2 % of most
(benchmarks/bench_arena.py): a few operators take more while they run, and the runtime keeps a byte
for each 32 that the arena reserves."""
REGION_OVERHEAD = 1.5
"""Size of the addresses that the arena reserves relative to the arena, so that what was never used
is larger than the gaps between tensors: the runtime takes the smallest gap that holds a tensor, and
would use up the rest of a smaller region before it reuses larger gaps. In simulation, 5 of 34
arenas above 16 MB grow with 1.25, by 11 to 36 %, and none with this."""
LEAST_REGION, MOST_REGION = 1 << 25, 1 << 30
"""Least and most addresses that it reserves at once: the runtime keeps a byte for each 32. A small
prediction takes up to 3 MB more than simulated, because the runtime optimizes its graph."""
FEATURES_HELD = 2
"""Features of so many micro-batches are in memory: small ones before the last are kept."""

MOST_TIMES, MOST_LOGITS, MOST_MORE = 4, 16, 1 << 28
"""The runtime refuses a graph more than so many times what its manifest says of arena and weights,
so many arrays of the size of its predictions, and so many bytes. No kit of ours comes near."""


def arena_size(graph: GraphSpec) -> float:
    """Bytes of the runtime's arena for a graph."""
    return ARENA_OVERHEAD * max(graph.memory, graph.arena)


def arena_sizes(manifest: Manifest, batch: int) -> dict[str, float]:
    """Bytes of the arena for each graph of a step on so many images.

    The step runs a micro-batch at a time, the other graphs a few images at a time.
    """
    images = {
        "step": min(batch, manifest.micro_batch) / manifest.micro_batch,
        "predict": min(batch, manifest.predictions_at_once) / manifest.micro_batch,
        "features": manifest.images_at_once,  # its cost is that of one image
    }
    sizes = {name: arena_size(graph) * images[name] for name, graph in manifest.graphs.items()}
    if manifest.graphs["step"].packs:
        sizes["step"] += manifest.graphs["step"].weights
    return sizes


def arena_region(manifest: Manifest) -> int:
    """Bytes of addresses that the runtime's arena reserves for the graphs of a kit."""
    arena = max(arena_sizes(manifest, manifest.batch).values())
    return min(MOST_REGION, max(LEAST_REGION, round(REGION_OVERHEAD * arena)))


def most_arena_bytes(manifest: Manifest, classes: int) -> int:
    """Bytes that no graph of a kit may exceed, for so many classes.

    They are far more than a graph needs that is what its manifest says: a graph of a stranger could
    make tensors of any size.
    """
    logits = (
        4 * manifest.micro_batch * math.prod(manifest.task.output_shape(manifest.size, classes))
    )
    said = max(arena_sizes(manifest, manifest.batch).values())
    said += sum(graph.opening for graph in held(manifest).values())
    return MOST_MORE + MOST_LOGITS * logits + MOST_TIMES * round(said)


class Held(NamedTuple):
    """Bytes that the runtime holds for an open graph, and their peak while it is opened."""

    open: int
    opening: int


def held(manifest: Manifest) -> dict[str, Held]:
    """The memory for each graph; none for `features` in a kit without a frozen part."""
    return {"features": Held(0, 0), **{name: _held(name, manifest) for name in manifest.graphs}}


def _held(name: str, manifest: Manifest) -> Held:
    """The memory for a graph.

    8-bit weights become float32 when a graph is opened, unless the graph computes with integers or
    is executed as written.
    """
    graph = manifest.graphs[name]
    as_stored = name == "step" or (name == "features" and manifest.computes_integers)
    growth = 1 if as_stored else 32 // manifest.frozen_bits
    nodes = graph.nodes * NODE_BYTES
    opened = opening = WEIGHTS_OVERHEAD * growth * graph.weights
    if graph.largest:
        opening = growth * (OPENING_COPIES * graph.weights + OPENING_LARGEST * graph.largest)
    return Held(round(opened) + nodes, round(opening) + nodes)


def opening_bytes(manifest: Manifest) -> int:
    """Most bytes for opening the graphs that evaluate photos, one after the other."""
    graphs = held(manifest)
    return max(graphs["features"].opening, graphs["features"].open + graphs["predict"].opening)


def feature_bytes(manifest: Manifest, batch: int) -> int:
    """Bytes of the features of so many images, read at once, and of those before if they stay."""
    if manifest.features is None:
        return 0
    size = 4 * batch * math.prod(manifest.features)
    return size if size >= KEPT else FEATURES_HELD * size
