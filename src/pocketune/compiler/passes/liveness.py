"""The tensors of a graph that are live while each of its nodes runs.

Each tensor is freed after its last reader. Counted here is what a run allocates; the device counts
graph inputs, initializers and the outputs that it keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import onnx

from pocketune.compiler.passes.sizes import tensor_bytes

# results that share their input's memory, unless they are outputs of the graph
_VIEWS = {"Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten"}


class Operator(NamedTuple):
    """What an order depends on of a node, whose own fields are slow to read."""

    op_type: str
    input: tuple[str, ...]
    output: tuple[str, ...]

    @classmethod
    def of(cls, node: onnx.NodeProto) -> Operator:
        """The fields of a node."""
        return cls(node.op_type, tuple(node.input), tuple(node.output))


Nodes = Sequence[onnx.NodeProto | Operator]


@dataclass(frozen=True)
class Liveness:
    """Sizes and lifetimes of a graph's tensors."""

    bytes: Mapping[str, int]
    outputs: frozenset[str]
    alias: Mapping[str, str]

    @classmethod
    def of(cls, model: onnx.ModelProto, sizes: Mapping[str, int]) -> Liveness:
        """The lifetimes in a model whose open dimensions have these `sizes`."""
        return cls.sized(model, tensor_bytes(model, sizes))

    @classmethod
    def sized(cls, model: onnx.ModelProto, sizes: Mapping[str, int]) -> Liveness:
        """The lifetimes in a model whose tensors have these bytes."""
        alias: dict[str, str] = {}
        outputs = frozenset(output.name for output in model.graph.output)
        for node in model.graph.node:
            if node.op_type in _VIEWS and node.output[0] not in outputs:
                alias[node.output[0]] = alias.get(node.input[0], node.input[0])
        return cls(sizes, outputs, alias)

    def timeline(self, nodes: Nodes) -> list[int]:
        """Live bytes while each node runs, in order."""
        alias, size, last = self.alias, self.bytes, dict[str, int]()
        for i, node in enumerate(nodes):
            for name in (*node.input, *node.output):
                last[alias.get(name, name)] = i
        freed = [0] * len(nodes)
        for name, i in last.items():
            if name not in self.outputs:
                freed[i] += size.get(name, 0)
        live, line = 0, []
        for node, ending in zip(nodes, freed, strict=True):
            for name in node.output:
                if name not in alias:
                    live += size.get(name, 0)
            line.append(live)
            live -= ending
        return line

    def peak(self, nodes: Nodes) -> int:
        """Most bytes live at once."""
        return max(self.timeline(nodes), default=0)


def fused(model: onnx.ModelProto, sizes: Mapping[str, int]) -> Liveness:
    """The lifetimes in a quantized graph, as the runtime fuses it.

    An operator between DequantizeLinear and QuantizeLinear becomes one integer operator: the float
    tensors between them are never made.
    """
    nodes = list(model.graph.node)
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    dequantized = {n.output[0] for n in nodes if n.op_type == "DequantizeLinear"}

    def integer(node: onnx.NodeProto) -> bool:
        read = readers.get(node.output[0], [])
        requantized = read and all(reader.op_type == "QuantizeLinear" for reader in read)
        return bool(requantized) and dequantized.issuperset(node.input)

    plain = Liveness.of(model, sizes)
    made, alias = dict(plain.bytes), dict(plain.alias)
    for node in nodes:
        (output, *_), read = node.output, readers.get(node.output[0], [])
        if integer(node):
            made[output] = made[read[0].output[0]]
            alias.update((reader.output[0], output) for reader in read)
        elif read and output in dequantized and all(map(integer, read)):
            alias[output] = alias.get(node.input[0], node.input[0])
    return Liveness(made, plain.outputs, alias)
