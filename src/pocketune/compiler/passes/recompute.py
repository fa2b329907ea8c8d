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
    sources: dict[str, onnx.NodeProto] = {}
    moving = set(varying)
    nodes: list[onnx.NodeProto] = []
    copies: dict[str, tuple[str, int]] = {}
    count = 0

    def near_copy(name: str) -> str:
        """Name of a copy made at most a few nodes ago, or of a new one."""
        nonlocal count
        copied, made = copies.get(name, ("", -_NEAR))
        if len(nodes) - made < _NEAR:
            return copied
        node = onnx.NodeProto()
        node.CopyFrom(sources[name])
        count += 1
        copied = derived("again", str(count))
        node.output[0] = node.name = copied
        size[copied] = size[name]
        node.input[:] = [near_copy(n) if n in sources else n for n in node.input]
        nodes.append(node)
        copies[name] = copied, len(nodes)
        return copied

    for node in model.graph.node:
        fixed = not moving.intersection(node.input)
        if not fixed:
            moving.update(node.output)
        if fixed and len(node.output) == 1 and not outputs.intersection(node.output):
            name = node.output[0]
            if size.get(name, 0) >= _LEAST:
                sources[name] = node
                continue
        kept = onnx.NodeProto()
        kept.CopyFrom(node)
        kept.input[:] = [near_copy(n) if n in sources else n for n in node.input]
        nodes.append(kept)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
