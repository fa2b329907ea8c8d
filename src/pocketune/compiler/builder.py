"""Build an ONNX graph node by node."""

from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
IR_VERSION = 10


class GraphBuilder:
    """An ONNX graph under construction; every tensor is known by its name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, NDArray[np.generic]] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._taken: set[str] = set()

    def fresh(self, hint: str) -> str:
        """A tensor name that nothing has yet, starting with `hint`."""
        name, count = hint, 1
        while name in self._taken:
            name, count = f"{hint}_{count}", count + 1
        self._taken.add(name)
        return name

    def add(self, op: str, *inputs: str, hint: str | None = None, **attributes: object) -> str:
        """Append a node with one output and return the output's name."""
        return self.add_many(op, inputs, 1, hint=hint, **attributes)[0]

    def add_many(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: int,
        hint: str | None = None,
        **attributes: object,
    ) -> list[str]:
        """Append a node with several outputs and return their names."""
        names = [self.fresh(hint or op.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=names[0], **attributes))
        return names

    def rename_output(self, old: str, new: str) -> None:
        """Call a node's output `new`, here and wherever it is read."""
        self._taken.add(new)
        for node in self.nodes:
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if name == old:
                        names[i] = new

    def constant(self, value: NDArray[np.generic] | Sequence[int] | float, hint: str = "c") -> str:
        """Name of an initializer of this value; equal values share one."""
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

    def output(self, name: str, dtype: int, shape: Sequence[int | str]) -> None:
        """Declare a graph output."""
        self.outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def produces(self, name: str) -> bool:
        """Whether a node, and not an input or an initializer, makes this tensor."""
        return any(name in node.output for node in self.nodes)

    def model(self, name: str) -> onnx.ModelProto:
        """The checked model, with what nothing reads left out."""
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


def live_nodes(nodes: Sequence[onnx.NodeProto], outputs: set[str]) -> list[onnx.NodeProto]:
    """The nodes that the outputs depend on, in order."""
    needed, live = set(outputs), []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(node.input)
            live.append(node)
    return live[::-1]


FLOAT, INT64, UINT8, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.BOOL
