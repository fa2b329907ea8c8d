"""Rounding, and operators of two values."""

from __future__ import annotations

import numpy as np
import onnx

from pocketune.deployment.tflite.flatbuffer import Scales, Tensor
from pocketune.deployment.tflite.prepare import CHANNELS
from pocketune.deployment.tflite.translator import Translator, translates
from pocketune.deployment.tflite.values import (
    ACTIVATIONS,
    LAST,
    Result,
    Value,
    along,
    attributes,
    ordered,
    unsupported,
)
from pocketune.deployment.tflite.weights import rounded, sums

_ELEMENTWISE = {"Add": "ADD", "Sub": "SUB", "Mul": "MUL", "Div": "DIV"}


@translates("QuantizeLinear")
def quantize(t: Translator, node: onnx.NodeProto) -> None:
    """Round a value, or give its integers other scales."""
    x, scales = t.value(node.input[0]), t.scales(node)
    if x.integers and x.tensor.scales is not None and x.tensor.scales.same(scales):
        t.put(node.output[0], x)
        return
    result = Result(node.output[0], scales=scales)
    t.emit("QUANTIZE", [x.tensor], result, x.tensor.shape, last=x.last)


@translates("DequantizeLinear")
def dequantize(t: Translator, node: onnx.NodeProto) -> None:
    """Nothing, as long as the readers compute with integers."""
    name = node.input[0]
    if not t.is_constant(name):
        t.put(node.output[0], t.value(name))
        return
    whole, scale = t.array(name), t.array(node.input[1])
    axis = attributes(node).get("axis", 1)
    if len(node.input) > 2 and t.array(node.input[2]).any():
        zero = along(t.array(node.input[2]), axis, whole.ndim)
        whole = whole.astype(np.int32) - zero.astype(np.int32)
    elif whole.dtype == np.uint8:
        whole = whole.astype(np.int32)
    t.add_quantized(node.output[0], whole, scale, axis)


@translates("Cast")
def cast(t: Translator, node: onnx.NodeProto) -> None:
    """From pixels to float32, which their integers stand for as they are."""
    if attributes(node)["to"] != onnx.TensorProto.FLOAT:
        raise unsupported(node, " to other than float32")
    t.put(node.output[0], t.value(node.input[0]))


@translates(*_ELEMENTWISE)
def elementwise(t: Translator, node: onnx.NodeProto) -> None:
    """Sums, differences, products and quotients, with broadcasting."""
    if _normalization(t, node):
        return
    kind = _ELEMENTWISE[node.op_type]
    values = [t.value(name) for name in node.input if not t.is_constant(name)]
    integers = kind != "DIV" and all(value.integers for value in values)
    result = t.result(node, integers=integers, activation=True)
    shape = t.shape(node.output[0])
    last = any(value.last for value in values)
    inputs = [_operand(t, name, result, len(shape), last=last) for name in node.input]
    t.emit(
        kind,
        inputs,
        result,
        ordered(shape, LAST) if last else shape,
        last=last,
        options=f"{kind.title()}Options",
        fusedActivationFunction=ACTIVATIONS.index(result.activation),
    )


def _operand(t: Translator, name: str, result: Result, rank: int, *, last: bool) -> Tensor:
    if t.is_constant(name):
        array = t.array(name).astype(np.float32)
        array = array.reshape((1,) * (rank - array.ndim) + array.shape)
        array = array.transpose(LAST) if last else array
        return rounded(t, name, array) if result.scales is not None else t.constant(name, array)
    value = t.as_for(t.value(name), result)
    if not last or value.last:
        return value.tensor
    return t.last(Value(t.of_rank(value.tensor, rank))).tensor


def _normalization(t: Translator, node: onnx.NodeProto) -> bool:
    """Pixels, scaled and shifted by channels, then rounded, as a layer that rounds only once."""
    pixels = [name for name in node.input if not t.is_constant(name)]
    if node.op_type != "Mul" or len(pixels) != 1:
        return False
    x = t.value(pixels[0])
    shifting = t.next(node.output[0], "Add")
    if x.tensor.dtype != np.uint8 or not x.last or shifting is None:
        return False
    rounding = t.next(shifting.output[0], "QuantizeLinear")
    terms = [name for name in shifting.input if t.is_constant(name)]
    if rounding is None or not terms:
        return False
    factor = t.array(next(name for name in node.input if t.is_constant(name))).reshape(-1)
    shift = np.broadcast_to(t.array(terms[0]).reshape(-1), CHANNELS).astype(np.float32)
    if factor.size not in (1, CHANNELS) or not factor.all():
        return False
    scale = np.broadcast_to(np.abs(factor) / 127, CHANNELS).astype(np.float32)
    signs = np.broadcast_to(np.sign(factor) * 127, CHANNELS).astype(np.int8)
    centered = Tensor("images/int8", x.tensor.shape, np.dtype(np.int8), Scales.of(1.0, -128))
    t.graph.add("QUANTIZE", [x.tensor], centered)
    kernel = t.constant("images/scale", signs.reshape(1, 1, 1, -1), Scales(scale, 0, 3))
    result = t.result(shifting, integers=True)
    t.skip(shifting)
    t.emit(
        "DEPTHWISE_CONV_2D",
        [centered, kernel, sums(t, "images/shift", shift, scale)],
        result,
        x.tensor.shape,
        last=True,
        options="DepthwiseConv2DOptions",
        padding=1,
        strideW=1,
        strideH=1,
        depthMultiplier=1,
    )
    return True
