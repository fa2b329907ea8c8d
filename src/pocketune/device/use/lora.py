"""Add the low-rank updates of LoRA to the weights beside them, in a graph for export.

A layer and its update compute `W x + up(down(x))`. With the trained values as constants, this is
one layer of weight `W + up down` (Hu et al., ICLR 2022, section 4.1: no latency beside the
original network's).
"""

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LAYERS = {"Gemm", "Conv"}
_FLOAT32 = 1


def fold_lora(graph: Any) -> None:
    """Fold every update beside a float layer of a graph message, in place.

    Updates beside weights in 8 bits stay as they are. The nodes of folded ones stay too, and
    nothing reads what they compute.
    """
    folding = _Folding(graph)
    for node in [node for node in graph.node if node.op_type == "Add"]:
        folding.try_fold(node)


class _Folding:
    """What reads and makes each value of a graph."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._made = {name: node for node in graph.node for name in node.output}
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._reads = Counter(name for node in graph.node for name in node.input)

    def try_fold(self, add: Any) -> None:
        """Replace `layer + up(down)` by the layer, if this is what a node adds."""
        for one, other in (add.input, reversed(add.input)):
            layer, up = self._layer(one), self._layer(other)
            down = None if up is None else self._layer(up.input[0])
            if layer is None or up is None or down is None or layer.input[0] != down.input[0]:
                continue
            kernels = [self._kernel(each.input[1]) for each in (layer, up, down)]
            tensors = [tensor for tensor in kernels if tensor is not None]
            fits = len(tensors) == 3 and len(up.input) == len(down.input) == 2
            if fits and self._reads[layer.input[1]] == 1 and _are_pointwise(*tensors):
                _add_product(*tensors)
                layer.output[0] = add.output[0]
                self._graph.node.remove(add)
                return

    def _layer(self, name: str) -> Any | None:
        """The linear layer or convolution that makes a value which nothing else reads."""
        node = self._made.get(name)
        if node is None or node.op_type not in _LAYERS or self._reads[name] != 1:
            return None
        options = {attribute.name: attribute.i for attribute in node.attribute}
        return node if node.op_type == "Conv" or options == {"transB": 1} else None

    def _kernel(self, name: str) -> Any | None:
        """The constant behind a value, seen through a change of shape."""
        node = self._made.get(name)
        if node is not None and node.op_type == "Reshape":
            name = node.input[0]
        tensor = self._constants.get(name)
        floats = tensor is not None and tensor.data_type == _FLOAT32 and tensor.raw_data
        return tensor if floats else None


def _are_pointwise(weight: Any, up: Any, down: Any) -> bool:
    """Whether weights (out, in), (out, rank) and (rank, in) fit, with sides of 1 behind them."""
    shapes = [tuple(tensor.dims) for tensor in (weight, up, down)]
    flat = all(set(shape[2:]) <= {1} and len(shape) in (2, 4) for shape in shapes)
    (out, inputs, *_), (rows, rank, *_), (middle, columns, *_) = shapes
    return flat and (out, inputs, rank) == (rows, columns, middle)


def _add_product(weight: Any, up: Any, down: Any) -> None:
    product = _matrix(up).astype(np.float64) @ _matrix(down)
    weight.raw_data = (_matrix(weight) + product).astype("<f4").tobytes()


def _matrix(tensor: Any) -> NDArray[np.float32]:
    return np.frombuffer(tensor.raw_data, "<f4").reshape(tuple(tensor.dims)[:2])
