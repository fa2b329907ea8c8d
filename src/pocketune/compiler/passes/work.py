"""The work of a graph, by kinds of operators that a processor executes at different speeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod

import onnx

from pocketune.compiler.passes.blocked import is_depthwise
from pocketune.compiler.passes.liveness import Liveness, fused
from pocketune.compiler.passes.sizes import attribute, node_flops, tensor_shapes
from pocketune.kit.manifest import Work, WorkKind

_VIEWS = {"Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten", "Shape"}
_MOVES = {"Transpose", "Slice", "Pad", "Concat", "Expand", "Gather", "Split", "Tile"}
_CLIPS = {"Clip", "Relu"}
_FORMATS = {"QuantizeLinear", "DequantizeLinear"}


def graph_work(
    model: onnx.ModelProto, sizes: Mapping[str, int], *, optimized: bool
) -> dict[str, Work]:
    """Calls, FLOPs and bytes of one run, by kind.

    Args:
        model: The graph.
        sizes: Of open dimensions.
        optimized: Whether the runtime optimizes the graph, which it does with all but the step:
            it fuses clips and 8-bit formats into convolutions, and blocks constant kernels.
    """
    calls: Counter[WorkKind] = Counter()
    flops: Counter[WorkKind] = Counter()
    moved: Counter[WorkKind] = Counter()
    for kind, operations, size in _Nodes(model, sizes, optimized=optimized):
        calls[kind] += 1
        flops[kind] += operations
        moved[kind] += size
    return {kind: Work(calls[kind], flops[kind], moved[kind]) for kind in sorted(calls)}


class _Nodes:
    """The nodes that the runtime executes: kind, FLOPs, and bytes that are read and written."""

    def __init__(
        self, model: onnx.ModelProto, sizes: Mapping[str, int], *, optimized: bool
    ) -> None:
        self._nodes = list(model.graph.node)
        self._optimized = optimized
        self._shapes = tensor_shapes(model, sizes)
        self._liveness = (fused if optimized else Liveness.of)(model, sizes)
        self._constants = {tensor.name for tensor in model.graph.initializer}
        formats = [node for node in self._nodes if node.op_type == "DequantizeLinear"]
        self._constants.update(n.output[0] for n in formats if n.input[0] in self._constants)
        self._integers = {node.output[0] for node in formats}
        self._integers -= self._constants

    def __iter__(self) -> Iterator[tuple[WorkKind, int, int]]:
        for node in self._nodes:
            if not self._is_fused(node):
                tensors = {*node.input, *node.output} - {""}
                size = 0 if node.op_type in _VIEWS else sum(map(self._bytes, tensors))
                yield self._kind(node), node_flops(node, self._shapes), size

    def _is_fused(self, node: onnx.NodeProto) -> bool:
        """Whether the runtime computes a node when it opens the graph, or as part of another."""
        return self._optimized and (
            node.op_type in _CLIPS
            or (node.op_type in _FORMATS and node.output[0] in self._liveness.alias)
            or self._constants.issuperset(node.input)
        )

    def _kind(self, node: onnx.NodeProto) -> WorkKind:
        if node.op_type in ("Gemm", "MatMul"):
            return "matrix"
        if node.op_type not in ("Conv", "ConvTranspose"):
            return "move" if node.op_type in _MOVES else "elementwise"
        depthwise = attribute(node, "group", default=1) > 1 and self._channels(node) == 1
        if self._optimized and node.input[0] in self._integers:
            return "integer_depthwise" if depthwise else "integer"
        constant = self._optimized and node.input[1] in self._constants
        if depthwise:
            return "blocked_depthwise" if constant or is_depthwise(node) else "depthwise"
        return "blocked" if constant else "dense"

    def _channels(self, node: onnx.NodeProto) -> int:
        """Input channels of each group of a convolution."""
        return self._shapes[node.input[1]][1]

    def _bytes(self, name: str) -> int:
        found = self._liveness.bytes.get(self._liveness.alias.get(name, name))
        return 4 * prod(self._shapes.get(name, (0,))) if found is None else found
