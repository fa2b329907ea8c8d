"""Activations that take several nodes in ONNX, as one operator each."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from pocketune.deployment.tflite.values import arrays_of, attributes, readers_of, replace_nodes

_GELU_OPSET = 20
"""The first that has Gelu; none of the operators of an exported model differs from 19."""


def join_hard_swish(model: onnx.ModelProto) -> None:
    """Write x * HardSigmoid(x) as HardSwish(x), in place."""
    graph = model.graph
    readers = readers_of(graph)
    for node in list(graph.node):
        if node.op_type != "HardSigmoid" or not is_sixth(node):
            continue
        (x,), after = node.input, readers.get(node.output[0], [])
        product = after[0] if len(after) == 1 else None
        if product is None or product.op_type != "Mul" or set(product.input) != {x, node.output[0]}:
            continue
        swish = helper.make_node("HardSwish", [x], [product.output[0]], name=product.name)
        replace_nodes(graph, [node, product], [swish])


def is_sixth(node: onnx.NodeProto) -> bool:
    """Whether a hard sigmoid is x / 6 + 1 / 2 between 0 and 1, as networks have it."""
    found = attributes(node)
    alpha, beta = found.get("alpha", 0.2), found.get("beta", 0.5)
    return bool(np.isclose(alpha, 1 / 6, atol=1e-6) and np.isclose(beta, 0.5))


def join_gelu(model: onnx.ModelProto) -> None:
    """Write x * 1/2 * (1 + Erf(x / sqrt(2))) as Gelu(x), in place."""
    graph, opset = model.graph, model.opset_import[0]
    pattern = _Gelu(graph)
    for node in [node for node in graph.node if node.op_type == "Erf"]:
        found = pattern.around(node)
        if found is None:
            continue
        x, product = found
        gelu = helper.make_node("Gelu", [x], [product.output[0]], name=product.name)
        replace_nodes(graph, [product], [gelu])
        opset.version = max(opset.version, _GELU_OPSET)
    _drop_unread(graph)


class _Gelu:
    """Finds the GELU around an error function, in whichever order its factors are multiplied."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._readers, self._arrays = readers_of(graph), arrays_of(graph)
        self._makers = {node.output[0]: node for node in graph.node}
        self._outputs = {output.name for output in graph.output}

    def around(self, erf: onnx.NodeProto) -> tuple[str, onnx.NodeProto] | None:
        """The input of the GELU and its last product; None if this is something else."""
        x, shifted = self._argument(erf), self._only_reader(erf.output[0], "Add")
        if x is None or shifted is None or self._number_beside(shifted, erf.output[0]) != 1:
            return None
        wanted = [x, shifted.output[0], 0.5]
        product = self._only_reader(shifted.output[0], "Mul")
        while product is not None:
            factors = self._factors(product, wanted[:2])
            if sorted(factors, key=str) == sorted(wanted, key=str):
                return x, product
            if len(factors) >= len(wanted):
                return None
            product = self._only_reader(product.output[0], "Mul")
        return None

    def _argument(self, erf: onnx.NodeProto) -> str | None:
        """The value whose quotient with the root of two an error function reads."""
        node = self._makers.get(erf.input[0])
        if node is None or node.op_type not in ("Div", "Mul"):
            return None
        root = 2**0.5 if node.op_type == "Div" else 2**-0.5
        for x in list(node.input)[: 1 if node.op_type == "Div" else 2]:
            number = self._number_beside(node, x)
            if number is not None and np.isclose(number, root, rtol=1e-6):
                return str(x)
        return None

    def _factors(self, product: onnx.NodeProto, whole: list[str]) -> list[str | float]:
        """What a product multiplies, itself of products unless they are among `whole`."""
        found: list[str | float] = []
        for name in product.input:
            node, number = self._makers.get(name), self._number(name)
            if number is not None:
                found.append(number)
            elif name not in whole and node is not None and node.op_type == "Mul":
                found += self._factors(node, whole)
            else:
                found.append(name)
        return found

    def _only_reader(self, name: str, kind: str) -> onnx.NodeProto | None:
        readers = self._readers.get(name, [])
        if len(readers) != 1 or readers[0].op_type != kind or name in self._outputs:
            return None
        return readers[0]

    def _number_beside(self, node: onnx.NodeProto, name: str) -> float | None:
        """The number that a node reads beside a value; None for anything else."""
        others = [each for each in node.input if each != name]
        return self._number(others[0]) if len(others) == 1 else None

    def _number(self, name: str) -> float | None:
        array = self._arrays.get(name)
        return float(array.reshape(())) if array is not None and array.size == 1 else None


def _drop_unread(graph: onnx.GraphProto) -> None:
    """Remove the nodes that no output needs, in place."""
    needed = {output.name for output in graph.output}
    for node in reversed(list(graph.node)):
        if needed.intersection(node.output):
            needed.update(node.input)
        else:
            graph.node.remove(node)
