"""Layers with weights, and pooling."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from pocketune.layers import Conv2d
from pocketune.onnx_import.file import Node, OnnxFile
from pocketune.onnx_import.operators.registry import constant, makes, refusal, required
from pocketune.onnx_import.parts import Function, LocalResponseNorm, WithConstant, tensor_of
from pocketune.onnx_import.values import Array


@makes("Conv")
def _conv(node: Node, file: OnnxFile) -> nn.Module:
    weight, bias = required(node, 1, file), constant(node, 2, file)
    if weight.ndim not in (3, 4):
        raise refusal(node, file, "is not of one or two dimensions")
    groups = int(node.attributes.get("group", 1))
    kernel, ones = weight.shape[2:], (1,) * (weight.ndim - 2)
    stride = tuple(node.attributes.get("strides", ones))
    dilation = tuple(node.attributes.get("dilations", ones))
    before, after = _padding(node, file, kernel, stride, dilation)
    same = (weight.ndim == 4 and before != after) and _is_same(
        before, after, _same_totals(node, file, kernel, stride, dilation)
    )
    if before != after and not same:
        raise refusal(node, file, f"pads unequally, by {before} and {after}")
    channels = weight.shape[1] * groups, weight.shape[0]
    made: nn.Conv1d | Conv2d
    options: dict[str, Any] = {
        "stride": stride,
        "padding": 0 if same else before,
        "dilation": dilation,
        "groups": groups,
        "bias": bias is not None,
    }
    if weight.ndim == 3:
        made = nn.Conv1d(*channels, kernel, **options)
    else:
        made = Conv2d(*channels, kernel, same_padding=same, **options)
    made.weight.data = tensor_of(weight)
    if bias is not None:
        assert made.bias is not None
        made.bias.data = tensor_of(bias)
    return made


@makes("ConvTranspose")
def _conv_transpose(node: Node, file: OnnxFile) -> nn.Module:
    weight, bias = required(node, 1, file), constant(node, 2, file)
    options = {name: tuple(v) for name, v in node.attributes.items() if isinstance(v, list)}
    pads = options.get("pads", (0, 0, 0, 0))
    unusual = weight.ndim != 4 or pads[:2] != pads[2:] or "output_shape" in options
    if unusual or node.attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        raise refusal(node, file, "is not two-dimensional, or pads unequally")
    groups = int(node.attributes.get("group", 1))
    made = nn.ConvTranspose2d(
        weight.shape[0],
        weight.shape[1] * groups,
        weight.shape[2:],
        stride=options.get("strides", (1, 1)),
        padding=pads[:2],
        output_padding=options.get("output_padding", (0, 0)),
        groups=groups,
        bias=bias is not None,
        dilation=options.get("dilations", (1, 1)),
    )
    made.weight.data = tensor_of(weight)
    if bias is not None:
        assert made.bias is not None
        made.bias.data = tensor_of(bias)
    return made


Pair = Sequence[int]


def _padding(
    node: Node, file: OnnxFile, kernel: Pair, stride: Pair, dilation: Pair
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Zeros before and after, for rows and columns."""
    auto = node.attributes.get("auto_pad", b"NOTSET")
    if auto in (b"SAME_UPPER", b"SAME_LOWER"):
        totals = _same_totals(node, file, kernel, stride, dilation)
        less, more = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        return (less, more) if auto == b"SAME_UPPER" else (more, less)
    zeros = [0] * 2 * len(kernel)
    pads = zeros if auto == b"VALID" else list(node.attributes.get("pads", zeros))
    return tuple(pads[: len(kernel)]), tuple(pads[len(kernel) :])


def _same_totals(
    node: Node, file: OnnxFile, kernel: Pair, stride: Pair, dilation: Pair
) -> tuple[int, ...]:
    """Zeros of TensorFlow's SAME on both sides together, for rows and columns."""
    sides = file.shape(node.data[0])[1:]
    return tuple(
        max((-(-side // s) - 1) * s + d * (k - 1) + 1 - side, 0)
        for side, k, s, d in zip(sides, kernel, stride, dilation, strict=True)
    )


def _is_same(before: Pair, after: Pair, totals: Pair) -> bool:
    """Whether a convolution pads as TensorFlow's SAME does, which `Conv2d` can for any size.

    Where a total is odd, one zero more is behind.
    """
    pairs = zip(before, after, totals, strict=True)
    return all(a + b == total and 0 <= b - a <= 1 for a, b, total in pairs)


@makes("BatchNormalization")
def _batch_norm(node: Node, file: OnnxFile) -> nn.Module:
    if node.attributes.get("training_mode", 0):
        raise refusal(node, file, "is one of training; export the network for inference")
    scale, bias, mean, variance = (required(node, place, file) for place in range(1, 5))
    kind = nn.BatchNorm2d if len(file.shape(node.output)) == 3 else nn.BatchNorm1d
    made = kind(len(scale), eps=float(node.attributes.get("epsilon", 1e-5)))
    made.weight.data, made.bias.data = tensor_of(scale), tensor_of(bias)
    made.running_mean, made.running_var = tensor_of(mean), tensor_of(variance)
    return made


@makes("LRN")
def _local_response_norm(node: Node, file: OnnxFile) -> nn.Module:
    shape = file.shape(node.output)
    if len(shape) != 3:
        raise refusal(node, file, "is not two-dimensional")
    return LocalResponseNorm(
        shape[0],
        int(node.attributes["size"]),
        float(node.attributes.get("alpha", 1e-4)),
        float(node.attributes.get("beta", 0.75)),
        float(node.attributes.get("bias", 1.0)),
    )


@makes("LayerNormalization")
def _layer_norm(node: Node, file: OnnxFile) -> nn.Module:
    scale, bias = required(node, 1, file), constant(node, 2, file)
    values = file.values[node.output].shape
    sides = values[int(node.attributes.get("axis", -1)) % len(values) :]
    if np.broadcast_shapes(scale.shape, sides) != sides:
        raise refusal(node, file, "has a scale for more than what it normalizes")
    made = nn.LayerNorm(sides, float(node.attributes.get("epsilon", 1e-5)))
    made.weight.data = tensor_of(np.broadcast_to(scale, sides))
    made.bias.data = tensor_of(np.broadcast_to(0 * scale if bias is None else bias, sides))
    return made


@makes("InstanceNormalization")
def _instance_norm(node: Node, file: OnnxFile) -> nn.Module:
    scale, bias = required(node, 1, file), required(node, 2, file)
    kind = nn.InstanceNorm2d if len(file.shape(node.output)) == 3 else nn.InstanceNorm1d
    made = kind(len(scale), eps=float(node.attributes.get("epsilon", 1e-5)), affine=True)
    made.weight.data, made.bias.data = tensor_of(scale), tensor_of(bias)
    return made


@makes("GroupNormalization")
def _group_norm(node: Node, file: OnnxFile) -> nn.Module:
    scale, bias = required(node, 1, file), required(node, 2, file)
    groups, channels = int(node.attributes["num_groups"]), file.shape(node.output)[0]
    made = nn.GroupNorm(groups, channels, float(node.attributes.get("epsilon", 1e-5)))
    made.weight.data, made.bias.data = tensor_of(scale), tensor_of(bias)
    return made


@makes("Gemm")
def _gemm(node: Node, file: OnnxFile) -> nn.Module:
    options = {"alpha": 1.0, "beta": 1.0, "transA": 0, **node.attributes}
    if (options["alpha"], options["beta"], options["transA"]) != (1.0, 1.0, 0):
        raise refusal(node, file, "has factors or a transposed input")
    weight = required(node, 1, file)
    return linear(weight if options.get("transB") else weight.T, constant(node, 2, file))


@makes("MatMul")
def _matmul(node: Node, file: OnnxFile) -> nn.Module:
    if len(node.data) == 2:
        return Function("MatMul", torch.matmul)
    first = node.inputs[0] not in node.data
    value = required(node, 0 if first else 1, file)
    if first or value.ndim != 2:
        return WithConstant(torch.matmul, tensor_of(value), first=first)
    return linear(value.T, None)


def linear(weight: Array, bias: Array | None) -> nn.Linear:
    """The layer of weight (out, in)."""
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    made.weight.data = tensor_of(weight)
    if bias is not None:
        made.bias.data = tensor_of(np.broadcast_to(bias.reshape(-1), weight.shape[:1]))
    return made


@makes("MaxPool", "AveragePool")
def _pool(node: Node, file: OnnxFile) -> nn.Module:
    kernel = tuple(node.attributes["kernel_shape"])
    if len(kernel) != 2:
        raise refusal(node, file, "is not two-dimensional")
    stride = tuple(node.attributes.get("strides", (1,) * len(kernel)))
    dilation = tuple(node.attributes.get("dilations", (1, 1)))
    before, after = _padding(node, file, kernel, stride, dilation)
    ceil = bool(node.attributes.get("ceil_mode", 0))
    # PyTorch pads both sides alike, and by half a kernel at most
    pads = before == after and all(
        2 * pad <= side for pad, side in zip(before, kernel, strict=True)
    )
    if node.kind == "AveragePool":
        counts = bool(node.attributes.get("count_include_pad", 0))
        if dilation != (1, 1):
            raise refusal(node, file, "has dilations")
        if not pads:
            raise refusal(node, file, f"pads by {before} and {after}")
        rows, columns = before
        return nn.AvgPool2d(kernel, stride, (rows, columns), ceil, counts)
    if pads:
        return nn.MaxPool2d(kernel, stride, before, dilation, ceil_mode=ceil)
    padding = nn.ConstantPad2d((before[1], after[1], before[0], after[0]), -float("inf"))
    return nn.Sequential(padding, nn.MaxPool2d(kernel, stride, 0, dilation, ceil_mode=ceil))
