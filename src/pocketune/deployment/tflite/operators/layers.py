"""Convolutions, linear layers and pooling."""

from __future__ import annotations

import numpy as np
import onnx

from pocketune.deployment.tflite.flatbuffer import Tensor
from pocketune.deployment.tflite.translator import Translator, translates
from pocketune.deployment.tflite.values import (
    ACTIVATIONS,
    Result,
    Value,
    attributes,
    unsupported,
)
from pocketune.deployment.tflite.weights import (
    Weights,
    bias_of,
    has_integers,
    layer_tensors,
    weights_of,
)

_SAME, _VALID = 0, 1


@translates("Conv")
def conv(t: Translator, node: onnx.NodeProto) -> None:
    """A convolution; a depthwise one has an operator of its own."""
    given, shape = attributes(node), t.shape(node.input[1])
    if len(shape) != 4:
        raise unsupported(node, f" of {len(shape) - 2} dimensions")
    x, result = t.read(node, integers=has_integers(t, node.input[1], 0), activation=True)
    x = t.last(x)
    groups, dilations = given.get("group", 1), given.get("dilations", [1, 1])
    channels = x.tensor.shape[3]
    window = tuple((k - 1) * d + 1 for k, d in zip(shape[2:], dilations, strict=True))
    source, padding, strides = _padded(t, node, x, window, 0)
    kernel = weights_of(t, node.input[1], (0, 2, 3, 1), integers=result.scales is not None)
    options = {
        "padding": padding,
        "strideH": strides[0],
        "strideW": strides[1],
        "dilationHFactor": dilations[0],
        "dilationWFactor": dilations[1],
        "fusedActivationFunction": ACTIVATIONS.index(result.activation),
    }
    bias = bias_of(t, node, shape[0])
    depthwise = groups == channels and groups > 1
    if depthwise:
        kernel = Weights(kernel.values.transpose(3, 1, 2, 0), kernel.scale)
        options["depthMultiplier"] = shape[0] // channels
    weights, sums = layer_tensors(t, node, source, kernel, bias, 3 if depthwise else 0)
    _, out, height, width = t.shape(node.output[0])
    t.emit(
        "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D",
        [source, weights, sums],
        result,
        (1, height, width, out),
        last=True,
        version=6 if groups > 1 and not depthwise else None,
        options="DepthwiseConv2DOptions" if depthwise else "Conv2DOptions",
        **options,
    )


@translates("Gemm")
def gemm(t: Translator, node: onnx.NodeProto) -> None:
    """A linear layer."""
    given = attributes(node)
    if given.get("transA", 0) or given.get("alpha", 1.0) != 1 or given.get("beta", 1.0) != 1:
        raise unsupported(node, " with factors or a transposed input")
    _linear(t, node, transposed=bool(given.get("transB", 0)))


@translates("MatMul")
def matmul(t: Translator, node: onnx.NodeProto) -> None:
    """A linear layer without bias, or a product of matrices."""
    left, right = node.input
    if t.is_constant(right) and len(t.shape(right)) == 2 and not t.is_constant(left):
        _linear(t, node, transposed=False)
        return
    values = [t.plain(t.real(t.value(name))).tensor for name in node.input]
    shape = t.shape(node.output[0])
    values = [t.of_rank(value, len(shape)) for value in values]
    options = "BatchMatMulOptions"
    t.emit("BATCH_MATMUL", values, Result(node.output[0]), shape, options=options)


def _linear(t: Translator, node: onnx.NodeProto, *, transposed: bool) -> None:
    if not t.is_constant(node.input[1]):
        raise unsupported(node, " of two inputs")
    order = (0, 1) if transposed else (1, 0)
    integers = has_integers(t, node.input[1], order[0])
    x, result = t.read(node, integers=integers, activation=True)
    x = t.plain(x)
    kernel = weights_of(t, node.input[1], order, integers=result.scales is not None)
    bias = bias_of(t, node, len(kernel.values))
    weights, sums = layer_tensors(t, node, x.tensor, kernel, bias, 0)
    shape = t.shape(node.output[0])
    t.emit(
        "FULLY_CONNECTED",
        [x.tensor, weights, sums],
        result,
        shape,
        version=5 if len(shape) > 2 and result.scales is None else None,
        options="FullyConnectedOptions",
        fusedActivationFunction=ACTIVATIONS.index(result.activation),
        keepNumDims=len(shape) > 2,
    )


@translates("MaxPool", "AveragePool")
def pool(t: Translator, node: onnx.NodeProto) -> None:
    """The largest or the mean of each window; integers keep their scales."""
    given, largest = attributes(node), node.op_type == "MaxPool"
    window = tuple(given["kernel_shape"])
    if len(window) != 2 or set(given.get("dilations", [1])) != {1} or given.get("ceil_mode", 0):
        raise unsupported(node, " of other than plain windows of two dimensions")
    if not largest and any(given.get("pads", [0])):
        raise unsupported(node, " with padding")
    x = t.last(t.value(node.input[0]))
    if not x.integers:
        x = t.real(x)
    lowest = -np.inf if x.tensor.dtype == np.float32 else -128
    source, padding, strides = _padded(t, node, x, window, lowest)
    _, channels, height, width = t.shape(node.output[0])
    t.emit(
        "MAX_POOL_2D" if largest else "AVERAGE_POOL_2D",
        [source],
        Result(node.output[0], scales=x.tensor.scales),
        (1, height, width, channels),
        last=True,
        options="Pool2DOptions",
        padding=padding,
        strideH=strides[0],
        strideW=strides[1],
        filterHeight=window[0],
        filterWidth=window[1],
    )


def _padded(
    t: Translator, node: onnx.NodeProto, x: Value, window: tuple[int, ...], filling: float
) -> tuple[Tensor, int, list[int]]:
    """The input, the kind of padding and the strides of an operator with windows.

    TensorFlow Lite's "same" padding is ONNX's only for some sizes; elsewhere the image is padded
    first, with 0 or with values that never are the largest.
    """
    given = attributes(node)
    strides = list(given.get("strides", [1, 1]))
    if given.get("auto_pad", b"NOTSET") != b"NOTSET":
        raise unsupported(node, " with padding by name")
    pads = list(given.get("pads", [0, 0, 0, 0]))
    if not any(pads):
        return x.tensor, _VALID, strides
    sides = list(zip(pads[:2], pads[2:], strict=True))
    if sides == [_same(*each) for each in zip(x.tensor.shape[1:3], window, strides, strict=True)]:
        return x.tensor, _SAME, strides
    shape = x.tensor.shape
    height, width = (size + sum(side) for size, side in zip(shape[1:3], sides, strict=True))
    padded = Tensor(
        f"{x.tensor.name}/padded",
        (shape[0], height, width, shape[3]),
        x.tensor.dtype,
        x.tensor.scales,
    )
    amounts = t.constant("pads", np.array([(0, 0), *sides, (0, 0)], np.int32))
    inputs, kind, options = [x.tensor, amounts], "PAD", "PadOptions"
    if filling:
        inputs.append(t.constant("lowest", np.full((1,), filling, x.tensor.dtype)))
        inputs[-1].scales = x.tensor.scales
        kind, options = "PADV2", "PadV2Options"
    return t.graph.add(kind, inputs, padded, options=options), _VALID, strides


def _same(size: int, window: int, stride: int) -> tuple[int, int]:
    """What TensorFlow Lite adds before and behind for "same" padding."""
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2
