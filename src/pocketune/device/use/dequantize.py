"""Weights in 8 bits as products, in a graph for export.

A runtime computes products of constants when it opens a file. ONNX Runtime does not compute a
DequantizeLinear then: it would do so in each inference, and round what a linear layer with such a
weight reads to 8 bits, too.
"""

from typing import Any

_FLOAT32, _INT8 = 1, 3
_INTEGER = 2  # the type of an attribute


def dequantize_as_products(graph: Any) -> None:
    """Write `DequantizeLinear(whole, scale)` of constants as `Cast(whole) * scale`, in place.

    Those with an offset stay: a layer between them and dequantized maps computes with integers.

    Args:
        graph: A graph message.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    nodes: list[Any] = []
    for node in graph.node:
        whole = constants.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if whole is None or whole.data_type != _INT8 or len(node.input) != 2:
            nodes.append(node)
            continue
        scale, (weight,) = constants[node.input[1]], node.output
        column = f"{weight}/scale"
        graph.initializer.add(
            name=column,
            data_type=_FLOAT32,
            dims=_column(len(whole.dims), node, scale),
            raw_data=scale.raw_data,
        )
        cast = type(node)(op_type="Cast", name=f"{weight}/cast", input=[whole.name])
        cast.output.append(f"{weight}/whole")
        cast.attribute.add(name="to", i=_FLOAT32, type=_INTEGER)
        product = type(node)(op_type="Mul", name=weight, input=[*cast.output, column])
        product.output.append(weight)
        nodes.extend((cast, product))
    del graph.node[:]
    graph.node.extend(nodes)


def _column(rank: int, node: Any, scale: Any) -> list[int]:
    """The shape in which a scale is multiplied with a tensor of this rank."""
    axis = next((each.i for each in node.attribute if each.name == "axis"), 1)
    return [*scale.dims, *[1] * (rank - 1 - axis)] if scale.dims else []
