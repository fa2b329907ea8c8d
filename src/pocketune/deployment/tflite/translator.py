"""From ONNX to TensorFlow Lite: values, layouts and integers.

ONNX has images as (N, C, H, W), TensorFlow Lite as (N, H, W, C). A value of the first kind keeps
its name and gets a tensor of the second; nothing is transposed while the model runs, unless an
operator needs the first order. Integers between QuantizeLinear and DequantizeLinear stay integers:
an operator whose inputs are integers and whose output is made integers computes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import shape_inference

from pocketune.arrays import FloatArray
from pocketune.deployment.tflite.flatbuffer import Graph, Scales, Tensor
from pocketune.deployment.tflite.values import (
    FIRST,
    LAST,
    Result,
    Value,
    along,
    arrays_of,
    ordered,
    readers_of,
    unsupported,
)
from pocketune.errors import PocketuneError

_INT8_OF_UINT8 = 128

Translation = Callable[["Translator", onnx.NodeProto], None]
TRANSLATIONS: dict[str, Translation] = {}
"""How each operator of ONNX is translated."""


def translates(*kinds: str) -> Callable[[Translation], Translation]:
    """Register a translation of operators."""

    def register(function: Translation) -> Translation:
        TRANSLATIONS.update(dict.fromkeys(kinds, function))
        return function

    return register


class Translator:
    """Translates one model, of one image at a time.

    Args:
        model: ONNX, in float32 or with QuantizeLinear and DequantizeLinear, as
            `prepared_model` leaves it.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = shape_inference.infer_shapes(model, data_prop=True)
        graph = self.model.graph
        self.graph = Graph()
        self._readers = readers_of(graph)
        self._outputs = {output.name for output in graph.output}
        self._arrays: dict[str, NDArray[Any]] = arrays_of(graph)
        self._quantized: dict[str, tuple[NDArray[Any], FloatArray, int]] = {}
        self._values: dict[str, Value] = {}
        self._real: dict[Tensor, Tensor] = {}
        self._joined: set[str] = set()
        self._shapes = {
            info.name: tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
            for info in (*graph.value_info, *graph.input, *graph.output)
        }

    def translate(self) -> bytes:
        """The flatbuffer, from uint8 `images` (1, S, S, 3) to float32 `logits`.

        Raises:
            PocketuneError: An operator has no translation; it is named.
        """
        (source,), (output,) = self.model.graph.input, self.model.graph.output
        pixels = Tensor(source.name, self.shape(source.name), np.dtype(np.uint8), Scales.of(1.0, 0))
        self._values[source.name] = Value(pixels)
        for node in self.model.graph.node:
            if node.output[0] in self._joined:
                continue
            if node.op_type not in TRANSLATIONS:
                raise unsupported(node, "")
            TRANSLATIONS[node.op_type](self, node)
        result = self.real(self.value(output.name)).tensor
        result.name = output.name
        return self.graph.pack(pixels, result)

    # What the ONNX graph says.

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value in ONNX."""
        if name in self._arrays:
            return self._arrays[name].shape
        shape = self._shapes.get(name, (0,))
        if 0 in shape:
            raise PocketuneError(f"the shape of {name} is not known before the model runs")
        return shape

    def is_constant(self, name: str) -> bool:
        """Whether the values are known now."""
        return name in self._arrays

    def array(self, name: str) -> NDArray[Any]:
        """The values of a constant; real ones where they are stored as integers."""
        return self._arrays[name]

    def next(self, name: str, *kinds: str) -> onnx.NodeProto | None:
        """The node that alone reads a value, if it is of one of these kinds."""
        readers = self._readers.get(name, [])
        if len(readers) != 1 or name in self._outputs or readers[0].op_type not in kinds:
            return None
        return readers[0]

    def stored(self, name: str) -> tuple[NDArray[np.int8], FloatArray, int] | None:
        """The integers of a constant, their scales and the axis of these; None for float32."""
        return self._quantized.get(name)

    def add_quantized(self, name: str, values: NDArray[Any], scale: FloatArray, axis: int) -> None:
        """Remember a constant that is stored as integers around 0, and its real values."""
        real = values.astype(np.float32) * along(scale, axis, values.ndim)
        self._arrays[name] = real.astype(np.float32)
        if values.dtype == np.int8:
            self._quantized[name] = values, scale, axis

    # Values.

    def value(self, name: str) -> Value:
        """The tensor of a value; constants become tensors here."""
        if name not in self._values:
            array = self._arrays[name]
            self._values[name] = Value(self.constant(name, array.astype(np.float32)))
        return self._values[name]

    def put(self, name: str, value: Value) -> None:
        """Give a value its tensor."""
        self._values[name] = value

    def constant(self, name: str, values: NDArray[Any], scales: Scales | None = None) -> Tensor:
        """A tensor whose values are known."""
        return Tensor(name, values.shape, values.dtype, scales, values)

    def real(self, value: Value) -> Value:
        """The value in float32."""
        tensor = value.tensor
        if tensor.dtype == np.float32:
            return value
        if tensor not in self._real:
            floats = Tensor(f"{tensor.name}/float", tensor.shape, np.dtype(np.float32))
            self._real[tensor] = self.graph.add("DEQUANTIZE", [tensor], floats)
        return Value(self._real[tensor], value.last)

    def read(
        self, node: onnx.NodeProto, *, integers: bool = True, activation: bool = False
    ) -> tuple[Value, Result]:
        """The first value that a node reads, as its operator does, and the result.

        Args:
            node: The node, which computes with integers if it reads some.
            integers: Whether it can compute with integers.
            activation: As for `result`.
        """
        x = self.value(node.input[0])
        result = self.result(node, integers=integers and x.integers, activation=activation)
        return self.as_for(x, result), result

    def as_for(self, value: Value, result: Result) -> Value:
        """The value as the operator of a result reads it."""
        return value if result.scales is not None else self.real(value)

    def last(self, value: Value) -> Value:
        """The value with its channels last."""
        return value if value.last else Value(self._ordered(value, LAST), last=True)

    def plain(self, value: Value) -> Value:
        """The value in the order of ONNX."""
        return Value(self._ordered(value, FIRST)) if value.last else value

    def _ordered(self, value: Value, order: tuple[int, ...]) -> Tensor:
        x = value.tensor
        y = Tensor(f"{x.name}/ordered", ordered(x.shape, order), x.dtype, x.scales)
        spatial = x.shape[1:3] if value.last else x.shape[2:]
        return self.reshaped(x, y) if spatial == (1, 1) else self.transposed(x, y, order)

    def transposed(self, x: Tensor, y: Tensor, order: Sequence[int]) -> Tensor:
        """The same numbers with the axes in another order."""
        inputs = [x, self.integer_list("order", order)]
        return self.graph.add("TRANSPOSE", inputs, y, options="TransposeOptions")

    def of_rank(self, x: Tensor, rank: int) -> Tensor:
        """The same numbers behind as many axes of length 1 as it takes."""
        shape = (1,) * (rank - len(x.shape)) + x.shape
        if shape == x.shape:
            return x
        if x.data is not None:
            return self.constant(x.name, x.data.reshape(shape))
        return self.reshaped(x, Tensor(f"{x.name}/shaped", shape, x.dtype, x.scales))

    def reshaped(self, x: Tensor, y: Tensor) -> Tensor:
        """The same numbers in another shape."""
        wanted = self.integer_list("shape", y.shape)
        return self.graph.add(
            "RESHAPE", [x, wanted], y, options="ReshapeOptions", newShape=list(y.shape)
        )

    def integer_list(self, name: str, values: Sequence[int]) -> Tensor:
        """A shape, axes or the like."""
        return self.constant(name, np.array(values, np.int32))

    # Results.

    def result(self, node: onnx.NodeProto, *, integers: bool, activation: bool = False) -> Result:
        """What a node computes, together with the activation and the rounding that follow.

        Args:
            node: The node.
            integers: Whether it can compute with integers, which it does if they are asked for.
            activation: Whether it can apply an activation on the way.
        """
        name, applied, joined = node.output[0], "NONE", []
        if activation and (after := self.next(name, "Relu", "Clip")) is not None:
            kind = self.activation(after)
            if kind is not None:
                name, applied = after.output[0], kind
                joined.append(name)
        scales = None
        if integers and (rounding := self.next(name, "QuantizeLinear")) is not None:
            scales, name = self.scales(rounding), rounding.output[0]
            joined.append(name)
        self._joined.update(joined)
        return Result(name, applied, scales)

    def skip(self, node: onnx.NodeProto) -> None:
        """Leave out a node that another one computes on the way."""
        self._joined.add(node.output[0])

    def activation(self, node: onnx.NodeProto) -> str | None:
        """The name of a Relu or Clip that operators apply on the way; None for others."""
        if node.op_type == "Relu":
            return "RELU"
        low, high = self.bounds(node)
        named = {(0.0, 6.0): "RELU6", (-1.0, 1.0): "RELU_N1_TO_1", (0.0, np.inf): "RELU"}
        return named.get((low, high))

    def bounds(self, node: onnx.NodeProto) -> tuple[float, float]:
        """The bounds of a Clip."""
        given = [*node.input[1:], "", ""][:2]
        low, high = (
            float(self.array(name).reshape(())) if name else default
            for name, default in zip(given, (-np.inf, np.inf), strict=True)
        )
        return low, high

    def scales(self, node: onnx.NodeProto) -> Scales:
        """Those that a QuantizeLinear or DequantizeLinear of activations has, for int8."""
        scale = self.array(node.input[1])
        zero = self.array(node.input[2]) if len(node.input) > 2 else np.uint8(0)
        if scale.size != 1 or zero.dtype not in (np.uint8, np.int8):
            raise unsupported(node, " of other than 8 bits and one scale")
        offset = _INT8_OF_UINT8 if zero.dtype == np.uint8 else 0
        return Scales.of(float(scale.reshape(())), int(np.reshape(zero, ())) - offset)

    def emit(
        self,
        kind: str,
        inputs: Sequence[Tensor],
        result: Result,
        shape: Sequence[int],
        *,
        last: bool = False,
        fixed: Scales | None = None,
        version: int | None = None,
        options: str = "",
        **fields: Any,
    ) -> Value:
        """Append an operator that computes a result.

        Args:
            kind: The operator.
            inputs: What it reads.
            result: What it computes.
            shape: The shape of the tensor, channels last if `last`.
            last: Whether the channels are last.
            fixed: The only scales that the operator can compute integers in, used instead of the
                result's: readers take those of the tensor.
            version: As for `Graph.add`.
            options: As for `Graph.add`.
            fields: The options.
        """
        scales = None if result.scales is None else fixed or result.scales
        dtype = np.dtype(np.int8 if scales is not None else np.float32)
        output = Tensor(result.name, tuple(shape), dtype, scales)
        self.graph.add(kind, inputs, output, version=version, options=options, **fields)
        made = Value(output, last)
        self._values[result.name] = made
        return made
