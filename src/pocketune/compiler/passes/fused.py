"""Pairs of nodes as one operator of the runtime's own, in the second graph of a step alone.

The plain step holds the operators of ONNX. A clip behind a convolution is one more pass over a map;
the runtime can clip a convolution's output while it is in the cache. A transpose before a product
is one too, in which threads write into the same cache lines if a map has few channels: with two
threads, transposing 16 channels of 112 x 112 pixels takes four times as long as with one. The
runtime's product can read its operand transposed.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import onnx
from onnx import helper, numpy_helper

_DOMAIN = "com.microsoft"


def fuse_transposes(
    nodes: Sequence[onnx.NodeProto], graph: onnx.GraphProto
) -> Iterator[onnx.NodeProto]:
    """The nodes, with products that read their second operand transposed.

    The first operand is not read transposed, which is slower with one thread. Transposes of
    constants stay, because the runtime would keep a packed copy of the constant.

    Args:
        nodes: In topological order.
        graph: That they belong to.
    """
    constants = {tensor.name for tensor in graph.initializer}
    sources = {
        node.output[0]: node.input[0]
        for node in nodes
        if _swaps_last_axes(node) and node.input[0] not in constants
    }
    read = {output.name for output in graph.output}
    for node in nodes:
        fused = node.op_type == "MatMul" and node.input[1] in sources
        read.update(node.input[:1] if fused else node.input)
    for node in nodes:
        if node.op_type == "MatMul" and node.input[1] in sources:
            left, right = node.input
            yield helper.make_node(
                "FusedMatMul",
                [left, sources[right]],
                list(node.output),
                node.name,
                domain=_DOMAIN,
                transB=1,
            )
        elif node.output[0] in read or node.output[0] not in sources:
            yield node


def _swaps_last_axes(node: onnx.NodeProto) -> bool:
    """Whether a node transposes matrices."""
    if node.op_type != "Transpose":
        return False
    order = [axis for given in node.attribute if given.name == "perm" for axis in given.ints]
    return len(order) > 1 and [*order[:-2], order[-1], order[-2]] == list(range(len(order)))


def fuse_clips(nodes: Sequence[onnx.NodeProto], graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes, with one in place of a convolution and the `Clip` or `Relu` that alone reads it.

    Args:
        nodes: In topological order.
        graph: That they belong to.
    """
    reads = Counter(name for node in nodes for name in node.input)
    reads.update(output.name for output in graph.output)
    limits = {tensor.name: tensor for tensor in graph.initializer if not tensor.dims}
    convolutions = {n.output[0]: n for n in nodes if n.op_type == "Conv" and not n.domain}
    fused: dict[str, onnx.NodeProto] = {}
    dropped: set[str] = set()
    for node in nodes:
        source = convolutions.get(node.input[0]) if node.input else None
        if source is None or reads[source.output[0]] != 1:
            continue
        if node.op_type == "Relu":
            fused[source.output[0]] = _fused(source, node, "Relu", [])
        elif node.op_type == "Clip" and len(node.input) == 3 and limits.keys() >= {*node.input[1:]}:
            values = [float(numpy_helper.to_array(limits[name])) for name in node.input[1:]]
            fused[source.output[0]] = _fused(source, node, "Clip", values)
        else:
            continue
        dropped.add(node.output[0])
    return [fused.get(n.output[0], n) for n in nodes if n.output[0] not in dropped]


def _fused(
    conv: onnx.NodeProto, clip: onnx.NodeProto, activation: str, values: list[float]
) -> onnx.NodeProto:
    node = helper.make_node(
        "FusedConv",
        list(conv.input),
        list(clip.output),
        conv.name,
        domain=_DOMAIN,
        activation=activation,
    )
    if values:
        node.attribute.append(helper.make_attribute("activation_params", values))
    node.attribute.extend(conv.attribute)
    return node
