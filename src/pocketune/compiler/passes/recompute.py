"""Recompute in the backward pass what depends only on parameters.

The forward pass computes standardized kernels, and the backward pass needs them again. Keeping them
takes as much memory as the parameters themselves. Recomputing them costs one pass over a few
weights.

Requires: nodes are in topological order. Afterwards no large tensor that depends only on
parameters is kept for a distant reader.
"""

import onnx

from pocketune.compiler.names import derived

_LEAST = 1 << 12
"""Bytes of the smallest tensor that is recomputed."""

_NEAR = 24
"""Nodes for which a tensor is kept for its next reader: about those of one layer."""


def recompute_from_parameters(
    model: onnx.ModelProto, size: dict[str, int], varying: frozenset[str]
) -> None:
    """Copy the nodes that compute such a tensor for each of its distant readers.

    The model is changed in place.

    Args:
        model: Sorted topologically.
        size: Bytes of its tensors; those of the copies are added.
        varying: Inputs that change from batch to batch; nodes that depend on them stay.
    """
    outputs = {output.name for output in model.graph.output}
    moving = set(varying)
    step = _Recomputed(size)
    for node in model.graph.node:
        fixed = not moving.intersection(node.input)
        if not fixed:
            moving.update(node.output)
        is_inner = len(node.output) == 1 and not outputs.intersection(node.output)
        if fixed and is_inner and size.get(node.output[0], 0) >= _LEAST:
            step.sources[node.output[0]] = node
        else:
            step.add(node)
    del model.graph.node[:]
    model.graph.node.extend(step.nodes)


class _Recomputed:
    """The nodes of a step, in which readers find copies of some nodes right before them.

    Attributes:
        sources: The nodes to copy, by the names of their results.
        nodes: The others so far, with the copies.
    """

    def __init__(self, size: dict[str, int]) -> None:
        self.sources: dict[str, onnx.NodeProto] = {}
        self.nodes: list[onnx.NodeProto] = []
        self._size = size
        self._copies: dict[str, tuple[str, int]] = {}  # the latest copy, and the nodes by then
        self._count = 0

    def add(self, node: onnx.NodeProto) -> None:
        """Add a node, behind the copies that it is to read."""
        self.nodes.append(self._reading_copies(node))

    def _reading_copies(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """A node in place of another, which reads copies that are near."""
        found = onnx.NodeProto()
        found.CopyFrom(node)
        found.input[:] = [self._near(n) if n in self.sources else n for n in node.input]
        return found

    def _near(self, name: str) -> str:
        """Name of a copy made at most a few nodes ago, or of a new one."""
        copied, made = self._copies.get(name, ("", -_NEAR))
        if len(self.nodes) - made < _NEAR:
            return copied
        self._count += 1
        copied = derived("again", str(self._count))
        self._size[copied] = self._size[name]
        node = self._reading_copies(self.sources[name])
        node.output[0] = node.name = copied
        self.nodes.append(node)
        self._copies[name] = copied, len(self.nodes)
        return copied
