"""Finding nodes of a graph and changing them, to seed faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, helper, numpy_helper

Array = NDArray[Any]


class Edits:
    """A graph to be changed in place; each change that would change nothing fails."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = model.graph

    def made(self, output: str, *ops: str) -> NodeProto:
        """The node that computes a tensor, or the one before it after these types, backwards."""
        (found,) = (node for node in self._graph.node if output in node.output)
        for op in ops:
            sources = [n for i in found.input for n in self._graph.node if i in n.output]
            found = next(node for node in sources if node.op_type == op)
        return found

    def nodes(self, op: str, *reads: str) -> list[NodeProto]:
        """The nodes of a type that read these tensors, in order."""
        return [n for n in self._graph.node if n.op_type == op and {*reads} <= {*n.input}]

    def value(self, name: str) -> Array:
        """A constant."""
        (tensor,) = (tensor for tensor in self._graph.initializer if tensor.name == name)
        return numpy_helper.to_array(tensor)

    def read(self, node: NodeProto, place: int, array: Array) -> None:
        """Let this node alone read a constant."""
        name = f"fault_{len(self._graph.initializer)}"
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        if place == len(node.input):
            node.input.append(name)
        node.input[place] = name

    def constant(self, node: NodeProto, place: int, change: Callable[[Array], Any]) -> None:
        """Change a constant for this node alone."""
        before = self.value(node.input[place])
        after = np.asarray(change(before), before.dtype)
        assert after.shape == before.shape
        assert not np.array_equal(after, before)
        self.read(node, place, after)

    def unbounded(self, clip: NodeProto, bound: int) -> None:
        """Take the lower (1) or the upper (2) bound from a Clip."""
        assert self.value(clip.input[bound]) == (0, 6)[bound - 1]
        clip.input[bound] = ""

    def without(self, node: NodeProto, operand: str | None = None) -> None:
        """Let a node of two operands return the other one; by default, leave out the second."""
        kept = [name for name in node.input if name != (operand or node.input[1])]
        assert len(kept) == 1
        node.CopyFrom(helper.make_node("Identity", kept, [node.output[0]]))

    def instead(self, output: str, tensor: str) -> None:
        """Let an output of the graph be another tensor."""
        node = self.made(output)
        for reader in self._graph.node:
            for place, name in enumerate(reader.input):
                if name == output:
                    reader.input[place] = f"{output}.right"
        node.output[[*node.output].index(output)] = f"{output}.right"
        self._graph.node.append(helper.make_node("Identity", [tensor], [output]))

    def swap(self, a: str, b: str) -> None:
        """Swap two outputs of the graph."""
        self.instead(a, b)
        self.made(a).input[0] = f"{b}.right"
        self.instead(b, f"{a}.right")


def attribute(node: NodeProto, name: str, setting: object) -> None:
    """Set an attribute, which may have had its default."""
    changed = helper.make_attribute(name, setting)
    kept = [each for each in node.attribute if each.name != name]
    assert changed not in node.attribute
    del node.attribute[:]
    node.attribute.extend([*kept, changed])
