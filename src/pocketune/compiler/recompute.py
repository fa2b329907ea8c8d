"""Compute again, where it is read again, what parameters alone determine.

Standardised filters are made for the forward pass and needed once more on the way back. Kept in
between they would take as much memory as the parameters themselves; made again from parameters,
which are there anyway, they cost a pass over a few weights.
"""

from collections.abc import Mapping

import onnx

from pocketune.compiler.liveness import tensor_bytes

_LEAST = 1 << 12
"""Bytes of a tensor from which on it is worth a second node."""


def recompute_from_parameters(
    model: onnx.ModelProto, sizes: Mapping[str, int], varying: frozenset[str]
) -> None:
    """Give every reader of such a tensor a copy of the node that makes it, in place.

    Args:
        model: sorted topologically.
        sizes: of open dimensions.
        varying: inputs that change from batch to batch; what depends on one stays as it is.
    """
    size = tensor_bytes(model, sizes)
    outputs = {output.name for output in model.graph.output}
    sources: dict[str, onnx.NodeProto] = {}
    moving = set(varying)
    nodes: list[onnx.NodeProto] = []
    count = 0

    def own_copy(name: str) -> str:
        """Name of a tensor that only one reader has."""
        nonlocal count
        node = onnx.NodeProto()
        node.CopyFrom(sources[name])
        count += 1
        node.output[0] = node.name = f"{name}_again_{count}"
        node.input[:] = [own_copy(n) if n in sources else n for n in node.input]
        nodes.append(node)
        output: str = node.output[0]
        return output

    for node in model.graph.node:
        fixed = not moving.intersection(node.input)
        if not fixed:
            moving.update(node.output)
        if fixed and len(node.output) == 1 and not outputs.intersection(node.output):
            name = node.output[0]
            if size.get(name, 0) >= _LEAST:
                sources[name] = node
                continue
        copied = onnx.NodeProto()
        copied.CopyFrom(node)
        copied.input[:] = [own_copy(n) if n in sources else n for n in node.input]
        nodes.append(copied)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
