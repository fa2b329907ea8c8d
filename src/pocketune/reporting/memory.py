"""The memory of a run: the parts of its prediction, and the tensors over a training step."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from pocketune.device.memory.estimate import MemoryEstimate
from pocketune.device.memory.graphs import arena_size, feature_bytes
from pocketune.kit.names import FEATURES, STEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pocketune.kit.kit import Kit
    from pocketune.kit.manifest import GraphSpec

PARTS = {
    "process": "Python and libraries",
    "runtime": "ONNX Runtime",
    "graphs": "frozen weights and graphs",
    "activations": "activations and gradients",
    "parameters": "trained parameters",
    "optimizer": "optimizer state",
    "photos": "photos being decoded",
    "head": "computing the classifier",
    "cache": "kept features",
}
"""The parts of a `MemoryEstimate` in words."""

_BLOCK = re.compile(r"[^.]+(\.\d+)*(?=\.)")


class Part(NamedTuple):
    """Bytes for one purpose."""

    name: str
    bytes: int


class Node(NamedTuple):
    """The tensors in memory while an operator runs.

    Attributes:
        block: The block of the parameters that were read last.
        bytes: Bytes of the runtime's arena.
    """

    block: str
    bytes: int


@dataclass(frozen=True)
class StepMemory:
    """The memory of a process over one training step.

    Attributes:
        base: Bytes that are held all the time.
        nodes: The operators, in order: of the frozen part, then of the training step.
        frozen: How many of them belong to the frozen part.
    """

    base: int
    nodes: tuple[Node, ...]
    frozen: int

    @property
    def totals(self) -> tuple[int, ...]:
        """Bytes of the process at each operator."""
        return tuple(self.base + node.bytes for node in self.nodes)

    @property
    def peak(self) -> Node:
        """The first operator with most memory."""
        return max(self.nodes, key=lambda node: node.bytes)

    @property
    def blocks(self) -> tuple[Part, ...]:
        """The most bytes at any operator of each block, in the order of the forward pass."""
        most: dict[str, int] = {}
        for node in self.nodes:
            most[node.block] = max(most.get(node.block, 0), node.bytes)
        return tuple(Part(name, size) for name, size in most.items())


def parts(estimate: MemoryEstimate) -> tuple[Part, ...]:
    """The parts of an estimate with their names in words."""
    return tuple(Part(PARTS[f.name], getattr(estimate, f.name)) for f in fields(estimate))


def step_memory(kit: Kit, estimate: MemoryEstimate, classes: int) -> StepMemory | None:
    """The memory over a step, from the lifetimes of the tensors in the kit's graphs.

    Returns:
        None where the author half is not installed, which knows the shapes of all tensors.
    """
    try:
        import onnx

        from pocketune.compiler.passes.liveness import fused
    except ModuleNotFoundError:
        return None
    manifest = kit.manifest
    sizes = {"N": 1, "classes": classes, "batch": manifest.micro_batch}

    def arena(file: str, graph: GraphSpec, images: int = 1) -> tuple[Any, list[int]]:
        """The operators of a graph, and the arena's bytes while each runs for so many images."""
        model = onnx.load_from_string(kit.read(file))
        scale = images * (arena_size(graph) / max(1, graph.memory))
        live = fused(model, sizes).timeline(model.graph.node)
        return model.graph.node, [round(scale * size) for size in live]

    frozen: list[Node] = []
    if manifest.features is not None:
        _, line = arena(FEATURES, manifest.graphs["features"], manifest.images_at_once)
        frozen = [Node("frozen part", size) for size in line]
    step = manifest.graphs["step"]
    operators, line = arena(STEP, step)
    names = {spec.name for spec in manifest.parameters}
    blocks = _blocks([list(node.input) for node in operators], names)
    packed = step.weights if step.packs else 0
    trained = [Node(block, size + packed) for block, size in zip(blocks, line, strict=True)]
    base = estimate.total - estimate.activations + feature_bytes(manifest, manifest.micro_batch)
    return StepMemory(base, (*frozen, *trained), len(frozen))


def _blocks(inputs: Sequence[Sequence[str]], trained: set[str]) -> list[str]:
    """For the nodes of a step, by what they read, the block whose parameters were read last."""
    found, block = list[str](), "start of the step"
    for names in inputs:
        read = [name for name in names if name in trained]
        if read and (match := _BLOCK.match(read[0])):
            block = match[0]
        found.append(block)
    return found
