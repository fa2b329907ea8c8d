"""Depthwise convolutions of the step in ONNX Runtime's blocked layout, as a second graph.

A step says `Conv`, which runs everywhere. A convolution whose kernel is a constant is brought into
blocks of channels by the runtime itself, which makes depthwise ones five to twenty times as fast.
Kernels of a step are inputs, because they are trained, so the compiler does the same: lowering
gives the convolutions for which it pays a name that begins with `DEPTHWISE`.

Maps with the channels last are brought into blocks as they are, and back: where the graph has a
`Transpose` in between, the other layout is never made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import onnx
from onnx import helper

DEPTHWISE = "depthwise"
"""Prefix of the name of a node whose channels are as many as its groups and fill whole blocks."""

KERNEL_GRADIENT = f"{DEPTHWISE}_gradient"
"""Prefix where input and kernel are `Reshape`s of maps (N, C, H, W), and C is whole blocks."""

LARGEST_BLOCK = 16
"""Channels of a block, at most; the processor decides."""

_DOMAIN = "com.microsoft.nchwc"
_TO_CHANNELS_FIRST, _TO_CHANNELS_LAST = [0, 3, 1, 2], [0, 2, 3, 1]


def block_depthwise(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """A copy of a graph whose depthwise convolutions are in blocks; None where it has none.

    It opens only where ONNX Runtime has blocked kernels for the processor.
    """
    nodes = list(_Rewriter(model.graph).nodes())
    if not any(node.domain == _DOMAIN for node in nodes):
        return None
    blocked = onnx.ModelProto()
    blocked.CopyFrom(model)
    del blocked.graph.node[:]
    blocked.graph.node.extend(nodes)
    blocked.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    return blocked


def is_depthwise(node: onnx.NodeProto) -> bool:
    """Whether a convolution gets blocks.

    The operator counts too: what brings a kernel of 8 bits to float is named after its reader.
    """
    return node.op_type == "Conv" and node.name.startswith(DEPTHWISE)


class _Rewriter:
    """The depthwise convolutions of a graph, and the nodes that move elements around them."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self._reads = Counter(name for node in graph.node for name in node.input)
        self._reads.update(output.name for output in graph.output)
        self._first: dict[str, str] = {}
        """Maps (N, C, H, W) made of (N, H, W, C)."""
        self._last: dict[str, str] = {}
        """Maps (N, H, W, C) by the (N, C, H, W) that they are made of."""
        self._reshaped: dict[str, tuple[str, str]] = {}
        """Tensor and shape that a `Reshape` reads."""
        for node in graph.node:
            if _transposes(node, _TO_CHANNELS_FIRST):
                self._first[node.output[0]] = node.input[0]
            elif _transposes(node, _TO_CHANNELS_LAST):
                self._last[node.input[0]] = node.output[0]
            elif node.op_type == "Reshape":
                self._reshaped[node.output[0]] = (node.input[0], node.input[1])

    def nodes(self) -> Iterator[onnx.NodeProto]:
        """The graph's nodes in their order; moves that nothing reads any more are left out."""
        convolutions = filter(is_depthwise, self._graph.node)
        blocked = {node.output[0]: list(self._in_blocks(node)) for node in convolutions}
        made = {output for nodes in blocked.values() for node in nodes for output in node.output}
        for node in self._graph.node:
            (output, *_) = node.output
            moves = output in self._first or output in self._reshaped
            if output in blocked:
                yield from blocked[output]
            elif output not in made and (self._reads[output] or not moves):
                yield node

    def _in_blocks(self, conv: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """What takes the place of a convolution."""
        x, kernel, *bias = conv.input
        x_blocked, kernel_blocked = f"{conv.name}.x", f"{conv.name}.kernel"
        if conv.name.startswith(KERNEL_GRADIENT):
            yield from self._reshaped_blocks(x, x_blocked)
            yield from self._reshaped_blocks(kernel, kernel_blocked)
        else:
            yield self._blocks(x, x_blocked)
            yield from _kernel_blocks(kernel, kernel_blocked)
        y = f"{conv.name}.y"
        made = _node("Conv", [x_blocked, kernel_blocked, *bias], y, domain=_DOMAIN)
        made.attribute.extend(conv.attribute)
        yield made
        yield self._from_blocks(y, conv)

    def _blocks(self, name: str, blocked: str) -> onnx.NodeProto:
        """A map (N, C, H, W) in blocks, straight from (N, H, W, C) where it was made of that."""
        if name not in self._first:
            return _node("ReorderInput", [name], blocked, domain=_DOMAIN)
        self._reads[name] -= 1
        source = self._first[name]
        return _node("ReorderInput", [source], blocked, domain=_DOMAIN, channels_last=1)

    def _reshaped_blocks(self, name: str, blocked: str) -> Iterator[onnx.NodeProto]:
        """A map in another shape: the blocks of both lie in the same order."""
        source, shape = self._reshaped[name]
        self._reads[name] -= 1
        if self._reads[name]:  # the plain one stays, and goes on reading the map
            self._reads[source] += 1
        yield self._blocks(source, f"{blocked}.map")
        yield _node("Reshape", [f"{blocked}.map", shape], blocked)

    def _from_blocks(self, y: str, conv: onnx.NodeProto) -> onnx.NodeProto:
        """The convolution's output, as (N, H, W, C) where nothing reads it but a `Transpose`."""
        (output,) = conv.output
        options = {"channels": _attribute(conv, "group")}
        if self._reads[output] == 1 and output in self._last:
            output = self._last[output]
            options["channels_last"] = 1
        return _node("ReorderOutput", [y], output, domain=_DOMAIN, **options)


def _kernel_blocks(kernel: str, blocked: str) -> Iterator[onnx.NodeProto]:
    """A kernel (channels, 1, kh, kw), whose first axis is cut into blocks.

    It is moved to where the runtime looks for channels, and back.
    """
    swap = [1, 0, 2, 3]
    yield _node("Transpose", [kernel], f"{blocked}.1", perm=swap)
    yield _node("ReorderInput", [f"{blocked}.1"], f"{blocked}.2", domain=_DOMAIN)
    yield _node("Transpose", [f"{blocked}.2"], blocked, perm=swap)


def _node(
    operator: str, inputs: list[str], output: str, domain: str | None = None, **attributes: Any
) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, [output], output, domain=domain, **attributes)


def _transposes(node: onnx.NodeProto, order: list[int]) -> bool:
    return node.op_type == "Transpose" and _attribute(node, "perm") == order


def _attribute(node: onnx.NodeProto, name: str) -> Any:
    found = (helper.get_attribute_value(a) for a in node.attribute if a.name == name)
    return next(found, None)
