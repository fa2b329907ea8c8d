"""Convolutions that clip their output themselves, in the runtime's own operator.

A clip behind a convolution is one more pass over a map. The runtime clips a convolution's output
while it is in the cache, by an operator of its own, which the compiler writes into the second graph
of a step alone: the plain one holds the operators of ONNX.
"""

from collections import Counter
from collections.abc import Sequence

import onnx
from onnx import helper, numpy_helper

_DOMAIN = "com.microsoft"


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
