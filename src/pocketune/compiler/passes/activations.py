"""Recompute activations in the backward pass from what norms and derivatives keep anyway.

A norm that uses batch statistics needs its input again in the backward pass, and the layer behind
it needs its activation again. Both are equally large, and a norm and an activation function are
cheap. So only the input is kept (Chen et al., 2016, arXiv 1604.06174, section 3: results of low
cost operations are dropped). In the same way the output of a layer norm follows from its
normalized input, and that of a GELU, SiLU or hard swish from its input, which its derivative
needs. A depthwise convolution has a few percent of a block's arithmetic and can be repeated too.

Requires: nodes are in topological order. Afterwards the backward pass reads no large tensor that
follows cheaply from others that it reads.
"""

from collections.abc import Mapping

import onnx

from pocketune.compiler.names import derived
from pocketune.compiler.passes.blocked import is_depthwise

_CHEAP = {
    *("Add", "Clip", "Div", "Erf", "HardSigmoid", "HardSwish", "Mul", "Relu", "Reshape"),
    *("Sigmoid", "Sub", "Tanh", "Transpose"),
}

NORMALIZED = "normalized"
"""Prefix of the names of nodes that scale the input of a norm with batch statistics."""

_LEAST = 1 << 12
"""Bytes of the smallest tensor that is recomputed."""

_SMALL = 16
"""A tensor of at most a 16th of the result's size may be kept for recomputing it."""


def recompute_activations(
    model: onnx.ModelProto, size: dict[str, int], *, depthwise: bool
) -> dict[str, str]:
    """Let the backward pass recompute activations behind norms with batch statistics, in place.

    Args:
        model: A training step with an input `labels` and an output `loss`.
        size: Bytes of its tensors; those of the copies are added.
        depthwise: Whether depthwise convolutions are recomputed too.

    Returns:
        The tensors that are computed again, by the names of their copies.
    """
    step = _Step(model, size, depthwise=depthwise)
    nodes = [made for node in model.graph.node for made in step.with_copies(node)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return {copied: name for name, copied in step.copies.items()}


def read_originals(model: onnx.ModelProto, copies: Mapping[str, str]) -> bool:
    """Let nodes read an original instead of its copy while it is there and still needed, in place.

    A mask that is packed in the forward pass, for example, reads its activation there anyway.
    Copies that nothing reads any more are removed.

    Args:
        model: A training step in its final order.
        copies: What `recompute_activations` has returned.

    Returns:
        Whether there were any such nodes.
    """
    nodes = model.graph.node
    last = {name: i for i, node in enumerate(nodes) for name in node.input}
    made = {name: i for i, node in enumerate(nodes) for name in node.output}
    changed = False
    for i, node in enumerate(nodes):
        for place, name in enumerate(node.input):
            original = copies.get(name)
            if original is not None and made.get(original, -1) < i <= last.get(original, -1):
                node.input[place], changed = original, True
    kept, read = list[onnx.NodeProto](), set[str]()
    for node in reversed(nodes):
        if node.output[0] in copies and node.output[0] not in read:
            continue
        read.update(node.input)
        kept.append(node)
    del nodes[:]
    nodes.extend(reversed(kept))
    return changed


class _Step:
    """A training step, divided into the forward pass and all other nodes."""

    def __init__(self, model: onnx.ModelProto, size: dict[str, int], *, depthwise: bool) -> None:
        self._depthwise = depthwise
        nodes = model.graph.node
        self._size = size
        labeled, read = {"labels"}, {"loss"}
        for node in nodes:
            if labeled.intersection(node.input):
                labeled.update(node.output)
        for node in reversed(nodes):
            if read.intersection(node.output):
                read.update(node.input)
        passed = (read | {output.name for output in model.graph.output}) - labeled
        self._forward = {n.output[0]: n for n in nodes if passed.intersection(n.output)}
        self._read = {
            name for node in nodes if node.output[0] not in self._forward for name in node.input
        }
        views = {node.output[0]: node.input[0] for node in nodes if node.op_type == "Reshape"}
        self._read.update([views[name] for name in self._read if name in views])
        self._sources: dict[str, str | None] = {}
        self.copies: dict[str, str] = {}  # their names, by those of the originals

    def with_copies(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """The node, behind new copies of those that it is to read."""
        if node.output[0] in self._forward:
            return [node]
        made: list[onnx.NodeProto] = []
        found = self._reading_copies(node, made)
        return [*made, found]

    def _reading_copies(self, node: onnx.NodeProto, made: list[onnx.NodeProto]) -> onnx.NodeProto:
        """A node in place of another; nodes that compute new copies for it go to `made`."""
        found = onnx.NodeProto()
        found.CopyFrom(node)
        found.input[:] = [
            name if self._source(name) is None else self._copy(name, made) for name in node.input
        ]
        return found

    def _source(self, name: str) -> str | None:
        """The kept tensor from which a large one of the forward pass follows cheaply."""
        if name not in self._sources:
            node = self._forward.get(name)
            large = self._size.get(name, 0) >= _LEAST
            self._sources[name] = self._source_of(node) if large and node is not None else None
        return self._sources[name]

    def _source_of(self, node: onnx.NodeProto) -> str | None:
        if node.name.startswith(NORMALIZED):
            x = node.input[0]
            return self._source(x) or (x if x in self._read else None)
        if node.op_type not in _CHEAP and not (self._depthwise and is_depthwise(node)):
            return None
        most = self._size[node.output[0]] // _SMALL
        large = [n for n in node.input if self._size.get(n, 0) > most]
        sources = {self._source(n) or (n if n in self._read else None) for n in large}
        return sources.pop() if len(sources) == 1 else None

    def _copy(self, name: str, made: list[onnx.NodeProto]) -> str:
        """The name of a tensor's copy; the nodes that compute it, if they are new, go to `made`."""
        if name not in self.copies:
            copied = self.copies[name] = derived(name, "again")
            node = self._reading_copies(self._forward[name], made)
            node.output[0] = node.name = copied
            self._size[copied] = self._size[name]
            made.append(node)
        return self.copies[name]
