"""Depthwise convolutions in ONNX Runtime's blocked layout, as a second graph of the step.

The plain step holds `Conv` nodes, which run everywhere. ONNX Runtime converts a convolution to
blocks of channels itself if its kernel is a constant, which makes depthwise ones two to twenty
times as fast. Trained kernels are inputs of the step, so the compiler does that conversion:
lowering gives the convolutions for which it pays a name that begins with `DEPTHWISE`.

A channels-last map is converted to blocks directly, and back: a `Transpose` next to the
convolution disappears.

Blocks need a copy of the input or of the output. Small copies are always worth it, large ones
only where they do not raise the peak of the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import onnx
from onnx import helper

from pocketune.compiler.names import derived
from pocketune.compiler.passes.arena import arena_bytes
from pocketune.compiler.passes.fused import fuse_clips, fuse_transposes
from pocketune.compiler.passes.liveness import Liveness, Operator

DEPTHWISE = "depthwise"
"""Prefix of the names of nodes with one channel per group, whose channels fill whole blocks."""

KERNEL_GRADIENT = f"{DEPTHWISE}_gradient"
"""Prefix if input and kernel are `Reshape`s of maps (N, C, H, W), and C fills whole blocks."""

LARGEST_BLOCK = 16
"""Most channels of a block; the processor decides how many."""

_DOMAIN = "com.microsoft.nchwc"
_TO_CHANNELS_FIRST, _TO_CHANNELS_LAST = [0, 3, 1, 2], [0, 2, 3, 1]


def block_depthwise(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """A copy of a graph with its depthwise convolutions in blocks; None if it has none.

    It opens only where ONNX Runtime has blocked kernels for the processor.
    """
    nodes = list(_Rewriter(model.graph).nodes())
    nodes = list(fuse_transposes(fuse_clips(nodes, model.graph), model.graph))
    if not any(node.domain for node in nodes):
        return None
    blocked = onnx.ModelProto()
    blocked.CopyFrom(model)
    del blocked.graph.node[:]
    blocked.graph.node.extend(nodes)
    for domain in sorted({node.domain for node in nodes} - {""}):
        blocked.opset_import.append(helper.make_opsetid(domain, 1))
    return blocked


def blocked_liveness(blocked: onnx.ModelProto, plain: Liveness) -> Liveness:
    """The lifetimes in what `block_depthwise` has made of a graph with `plain` lifetimes.

    Channels fill whole blocks, so that a map takes the same bytes in both layouts. Copies of
    trained kernels, which are small, are not counted.
    """
    sizes = dict(plain.bytes)
    for node in blocked.graph.node:
        if node.op_type == "ReorderOutput":
            sizes[node.input[0]] = sizes[node.output[0]]
        else:
            (output, *_) = node.output
            sizes.setdefault(output, sizes.get(node.input[0], 0) if node.input else 0)
    return Liveness.sized(blocked, sizes)


def padded_liveness(model: onnx.ModelProto, plain: Liveness) -> Liveness:
    """The lifetimes in a graph that the runtime optimizes, where channels fill whole blocks.

    It pads what a convolution gives, and so what comes of that element by element.
    """
    kernels = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    channels, sizes = dict[str, int](), dict(plain.bytes)
    for node in model.graph.node:
        (output, *_) = node.output
        if node.op_type == "DequantizeLinear" and node.input[0] in kernels:
            kernels[output] = kernels[node.input[0]]
        elif node.op_type == "Conv" and node.input[1] in kernels:
            channels[output] = kernels[node.input[1]][0]
        else:
            size = plain.bytes.get(output)
            same = (channels[x] for x in node.input if x in channels and plain.bytes[x] == size)
            if (count := next(same, None)) is not None:
                channels[output] = count
    for name, count in channels.items():
        blocks = -(-count // LARGEST_BLOCK)
        sizes[name] = sizes.get(name, 0) * blocks * LARGEST_BLOCK // count
    return replace(plain, bytes=sizes)


def is_depthwise(node: onnx.NodeProto) -> bool:
    """Whether a convolution gets blocks.

    The operator counts too: a node that dequantizes a kernel is named after its reader.
    """
    return node.op_type == "Conv" and node.name.startswith(DEPTHWISE)


class _Rewriter:
    """The depthwise convolutions of a graph, and the nodes that move elements around them."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self._reads = Counter(name for node in graph.node for name in node.input)
        self._reads.update(output.name for output in graph.output)
        self._first: dict[str, str] = {}
        """Sources (N, H, W, C) of maps (N, C, H, W)."""
        self._last: dict[str, str] = {}
        """Maps (N, H, W, C) by their source (N, C, H, W)."""
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
        """The graph's nodes in order, without moves that are no longer read."""
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
        """The nodes that replace a convolution."""
        x, kernel, *bias = conv.input
        x_blocked, kernel_blocked, y = (derived(conv.name, part) for part in ("x", "kernel", "y"))
        if conv.name.startswith(KERNEL_GRADIENT):
            yield from self._reshaped_blocks(x, x_blocked)
            yield from self._reshaped_blocks(kernel, kernel_blocked)
        else:
            yield self._blocks(x, x_blocked)
            yield from _kernel_blocks(kernel, kernel_blocked)
        made = _node("Conv", [x_blocked, kernel_blocked, *bias], y, domain=_DOMAIN)
        made.attribute.extend(conv.attribute)
        yield made
        yield self._from_blocks(y, conv)

    def _blocks(self, name: str, blocked: str) -> onnx.NodeProto:
        """A map (N, C, H, W) in blocks, directly from (N, H, W, C) if that is its source."""
        if name not in self._first:
            return _node("ReorderInput", [name], blocked, domain=_DOMAIN)
        self._reads[name] -= 1
        source = self._first[name]
        return _node("ReorderInput", [source], blocked, domain=_DOMAIN, channels_last=1)

    def _reshaped_blocks(self, name: str, blocked: str) -> Iterator[onnx.NodeProto]:
        """A map in another shape: the blocks of both lie in the same order."""
        source, shape = self._reshaped[name]
        self._reads[name] -= 1
        if self._reads[name]:  # the plain Reshape stays and still reads the map
            self._reads[source] += 1
        yield self._blocks(source, f"{blocked}.map")
        yield _node("Reshape", [f"{blocked}.map", shape], blocked)

    def _from_blocks(self, y: str, conv: onnx.NodeProto) -> onnx.NodeProto:
        """The convolution's output, as (N, H, W, C) if only a `Transpose` reads it."""
        (output,) = conv.output
        options = {"channels": _attribute(conv, "group")}
        if self._reads[output] == 1 and output in self._last:
            output = self._last[output]
            options["channels_last"] = 1
        return _node("ReorderOutput", [y], output, domain=_DOMAIN, **options)


def _kernel_blocks(kernel: str, blocked: str) -> Iterator[onnx.NodeProto]:
    """A kernel (channels, 1, kh, kw), with its first axis cut into blocks.

    The runtime blocks the second axis, so the axes are swapped before and after.
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


SMALL = 5_000_000
"""Bytes of copies that are always made."""

SMALL_SHARE = 1 / 16
"""Share of the peak up to which copies are always made: they find room in the arena's gaps."""

GRADIENT_SHARE = 1 / 8
"""Share of the peak by which the copies of a kernel's gradient may raise it.

Without blocks, it takes ten times as long.
"""


def leave_large_plain(model: onnx.ModelProto, size: Mapping[str, int]) -> None:
    """Rename the convolutions whose copies would raise the peak, which excludes them from blocks.

    Args:
        model: In the order in which it is executed.
        size: Bytes of its tensors.
    """
    nodes, liveness = list(model.graph.node), Liveness.sized(model, size)
    timeline = liveness.timeline(nodes)
    peak = max(timeline, default=0)
    for node, live in zip(nodes, timeline, strict=True):
        if not is_depthwise(node):
            continue
        x, kernel = (liveness.bytes.get(name, 0) for name in node.input[:2])
        y = liveness.bytes[node.output[0]]
        # input and kernel are copied, the kernel twice at most, before there is an output
        copies = max(x + kernel, x + 2 * kernel - y, y)
        raised = GRADIENT_SHARE * peak if node.name.startswith(KERNEL_GRADIENT) else 0
        if copies > max(SMALL, SMALL_SHARE * peak) and live + copies > peak + raised:
            node.name = f"plain_{node.name}"


def arena_in_blocks(model: onnx.ModelProto, liveness: Liveness) -> int:
    """Bytes of the arena of a graph, or of its copy with blocked convolutions if that is larger."""
    plain = arena_bytes(liveness, list(map(Operator.of, model.graph.node)))
    blocked = block_depthwise(model)
    if blocked is None:
        return plain
    nodes = list(map(Operator.of, blocked.graph.node))
    return max(plain, arena_bytes(blocked_liveness(blocked, liveness), nodes))
