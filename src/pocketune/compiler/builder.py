"""Build an ONNX graph node by node."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 19
"""The first in which ONNX's own evaluator knows `DequantizeLinear` per channel. From 22 on, ONNX
Runtime 1.23 no longer puts convolutions into its blocked layout."""
IR_VERSION = 10

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
UINT8, BOOL = TensorProto.UINT8, TensorProto.BOOL

_MOVES = {"Slice", "Pad", "Transpose", "Expand", "Gather", "Concat"}


class GraphBuilder:
    """An ONNX graph under construction; tensors are identified by their names."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, NDArray[np.generic]] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._taken: set[str] = set()
        self._done: dict[tuple[str, tuple[str, ...], str], str] = {}
        self._made: set[str] = set()
        self._renamed: dict[str, str] = {}

    def fresh(self, hint: str) -> str:
        """A new tensor name that starts with `hint`."""
        name, count = hint, 1
        while name in self._taken:
            name, count = f"{hint}_{count}", count + 1
        self._taken.add(name)
        return name

    def add(
        self,
        op: str,
        *inputs: str,
        hint: str | None = None,
        shared: bool = True,
        **attributes: Any,
    ) -> str:
        """Append a node with one output and return the output's name.

        The same operator on the same inputs is appended once. Operators that only move elements
        are not shared: their large outputs would be alive from the forward to the backward pass.
        Neither are those with `shared=False`.
        """
        key = (op, inputs, repr(sorted(attributes.items())))
        if op in _MOVES or not shared or key not in self._done:
            self._done[key] = self.add_many(op, inputs, 1, hint=hint, **attributes)[0]
        return self._done[key]

    def add_many(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: int,
        hint: str | None = None,
        **attributes: Any,
    ) -> list[str]:
        """Append a node with several outputs and return their names."""
        names = [self.fresh(hint or op.lower()) for _ in range(outputs)]
        self._made.update(names)
        self.nodes.append(helper.make_node(op, list(inputs), names, name=names[0], **attributes))
        return names

    def emit(self, tensor: str, name: str, dtype: int, shape: Sequence[int | str]) -> None:
        """Make a tensor the graph output `name`; call it after all nodes are added.

        The output of a node is renamed to `name` in the model. Inputs, initializers and tensors
        that are an output already are copied.
        """
        if tensor not in self._made or tensor in self._renamed:
            (tensor,) = self.add_many("Identity", [tensor], 1)
        self._renamed[tensor] = name
        self._taken.add(name)
        self.outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def constant(
        self, value: NDArray[np.generic] | Sequence[float] | float, hint: str = "c"
    ) -> str:
        """Name of an initializer of this value; equal values share one.

        Whole numbers of Python are int64, as shapes and axes are, and others float32.
        """
        array = np.asarray(value)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = self.fresh(hint)
            self._constants[key] = name
            self.initializers[name] = array
        return self._constants[key]

    def input(self, name: str, dtype: int, shape: Sequence[int | str]) -> str:
        """Declare a graph input."""
        self._taken.add(name)
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def model(self, name: str) -> onnx.ModelProto:
        """The checked model, without unused nodes and initializers."""
        self._rename()
        nodes = live_nodes(self.nodes, {output.name for output in self.outputs})
        read = {tensor for node in nodes for tensor in node.input}
        graph = helper.make_graph(
            nodes,
            name,
            self.inputs,
            self.outputs,
            [
                numpy_helper.from_array(np.ascontiguousarray(v).reshape(v.shape), k)
                for k, v in self.initializers.items()
                if k in read
            ],
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="pocketune",
        )
        onnx.checker.check_model(model)
        return model

    def _rename(self) -> None:
        for node in self.nodes:
            for names in (node.input, node.output):
                names[:] = [self._renamed.get(name, name) for name in names]


def live_nodes(nodes: Sequence[onnx.NodeProto], outputs: set[str]) -> list[onnx.NodeProto]:
    """The nodes that the outputs depend on, in order."""
    needed, live = set(outputs), []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(node.input)
            live.append(node)
    return live[::-1]
