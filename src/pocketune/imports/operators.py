"""The module for each operator of an ONNX file (https://onnx.ai/onnx/operators)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.imports.file import Array, Node, OnnxFile
from pocketune.imports.parts import (
    ConcatWithConstants,
    Function,
    IndexSelect,
    Reshape,
    WithConstant,
    tensor_of,
)
from pocketune.layers import Conv2d

Make = Callable[[Node, OnnxFile], nn.Module]
_makers: dict[str, Make] = {}


class NotSupported(PocketuneError):  # noqa: N818 (it is an answer, not a fault)
    """An operator, or an option of it, that has no module here."""


def make_module(node: Node, file: OnnxFile) -> nn.Module:
    """The module of a node; it takes the node's data inputs.

    Raises:
        NotSupported: there is none; the message names operator and node.
    """
    maker = _makers.get(node.kind)
    if maker is None:
        raise _refusal(node, file, "is not supported yet")
    return maker(node, file)


def _refusal(node: Node, file: OnnxFile, why: str) -> NotSupported:
    return NotSupported(f"{file.path}: the operator {node.kind} ({node.where}) {why}")


def _makes(*kinds: str) -> Callable[[Make], Make]:
    def register(maker: Make) -> Make:
        _makers.update(dict.fromkeys(kinds, maker))
        return maker

    return register


def constant(node: Node, place: int, file: OnnxFile) -> Array | None:
    """The value of an input that does not depend on the pixels; None if it is left out."""
    name = node.inputs[place] if place < len(node.inputs) else ""
    if not name:
        return None
    if name in node.data:
        raise _refusal(node, file, f"has an input {place + 1} that depends on the image")
    return file.once(name)


def _required(node: Node, place: int, file: OnnxFile) -> Array:
    found = constant(node, place, file)
    if found is None:
        raise _refusal(node, file, f"lacks its input {place + 1}")
    return found


def _given(node: Node, name: str, place: int, file: OnnxFile) -> list[int] | None:
    """Numbers that are an attribute in older opsets and an input in newer ones."""
    if name in node.attributes:
        return [int(each) for each in np.atleast_1d(node.attributes[name])]
    found = constant(node, place, file)
    return None if found is None else [int(each) for each in found.reshape(-1)]


@_makes("Conv")
def _conv(node: Node, file: OnnxFile) -> nn.Module:
    weight, bias = _required(node, 1, file), constant(node, 2, file)
    if weight.ndim != 4:
        raise _refusal(node, file, "is not two-dimensional")
    groups = int(node.attributes.get("group", 1))
    kernel, stride = weight.shape[2:], tuple(node.attributes.get("strides", (1, 1)))
    dilation = tuple(node.attributes.get("dilations", (1, 1)))
    before, after = _padding(node, file, kernel, stride, dilation)
    same = before != after and all(0 <= b - a <= 1 for a, b in zip(before, after, strict=True))
    if before != after and not (same and _is_same(node, file, kernel, stride, dilation)):
        raise _refusal(node, file, f"pads unequally, by {before} and {after}")
    made = Conv2d(
        weight.shape[1] * groups,
        weight.shape[0],
        kernel,
        stride=stride,
        padding=0 if same else before,
        dilation=dilation,
        groups=groups,
        bias=bias is not None,
        same_padding=same,
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
    pads = [0] * 4 if auto == b"VALID" else list(node.attributes.get("pads", [0] * 4))
    return tuple(pads[:2]), tuple(pads[2:])


def _same_totals(
    node: Node, file: OnnxFile, kernel: Pair, stride: Pair, dilation: Pair
) -> tuple[int, ...]:
    sides = file.shape(node.data[0])[1:]
    return tuple(
        max((-(-side // s) - 1) * s + d * (k - 1) + 1 - side, 0)
        for side, k, s, d in zip(sides, kernel, stride, dilation, strict=True)
    )


def _is_same(node: Node, file: OnnxFile, kernel: Pair, stride: Pair, dilation: Pair) -> bool:
    """Whether a convolution pads as TensorFlow's SAME does, which `Conv2d` can for any size."""
    before, after = _padding(node, file, kernel, stride, dilation)
    totals = tuple(a + b for a, b in zip(before, after, strict=True))
    return totals == _same_totals(node, file, kernel, stride, dilation)


@_makes("BatchNormalization")
def _batch_norm(node: Node, file: OnnxFile) -> nn.Module:
    scale, bias, mean, variance = (_required(node, place, file) for place in range(1, 5))
    kind = nn.BatchNorm2d if len(file.shape(node.output)) == 3 else nn.BatchNorm1d
    made = kind(len(scale), eps=float(node.attributes.get("epsilon", 1e-5)))
    made.weight.data, made.bias.data = tensor_of(scale), tensor_of(bias)
    made.running_mean, made.running_var = tensor_of(mean), tensor_of(variance)
    return made


@_makes("LayerNormalization")
def _layer_norm(node: Node, file: OnnxFile) -> nn.Module:
    scale, bias = _required(node, 1, file), constant(node, 2, file)
    made = nn.LayerNorm(scale.shape, float(node.attributes.get("epsilon", 1e-5)))
    made.weight.data = tensor_of(scale)
    made.bias.data = torch.zeros_like(made.weight) if bias is None else tensor_of(bias)
    return made


@_makes("InstanceNormalization")
def _instance_norm(node: Node, file: OnnxFile) -> nn.Module:
    scale, bias = _required(node, 1, file), _required(node, 2, file)
    kind = nn.InstanceNorm2d if len(file.shape(node.output)) == 3 else nn.InstanceNorm1d
    made = kind(len(scale), eps=float(node.attributes.get("epsilon", 1e-5)), affine=True)
    made.weight.data, made.bias.data = tensor_of(scale), tensor_of(bias)
    return made


@_makes("Gemm")
def _gemm(node: Node, file: OnnxFile) -> nn.Module:
    options = {"alpha": 1.0, "beta": 1.0, "transA": 0, **node.attributes}
    if (options["alpha"], options["beta"], options["transA"]) != (1.0, 1.0, 0):
        raise _refusal(node, file, "has factors or a transposed input")
    weight = _required(node, 1, file)
    return linear(weight if options.get("transB") else weight.T, constant(node, 2, file))


@_makes("MatMul")
def _matmul(node: Node, file: OnnxFile) -> nn.Module:
    if len(node.data) == 2:
        return Function("MatMul", torch.matmul)
    first = node.inputs[0] not in node.data
    value = _required(node, 0 if first else 1, file)
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


_PLAIN: dict[str, Callable[[], nn.Module]] = {
    "Relu": nn.ReLU,
    "Sigmoid": nn.Sigmoid,
    "Tanh": nn.Tanh,
    "HardSwish": nn.Hardswish,
    "Mish": nn.Mish,
    "Softplus": nn.Softplus,
    "Dropout": nn.Identity,  # exported for inference
    "Identity": nn.Identity,
    "GlobalAveragePool": partial(nn.AdaptiveAvgPool2d, 1),
    "GlobalMaxPool": partial(nn.AdaptiveMaxPool2d, 1),
    "Sqrt": partial(Function, "Sqrt", torch.sqrt),
    "Erf": partial(Function, "Erf", torch.erf),
    "Exp": partial(Function, "Exp", torch.exp),
    "Log": partial(Function, "Log", torch.log),
    "Neg": partial(Function, "Neg", torch.neg),
    "Abs": partial(Function, "Abs", torch.abs),
    "Reciprocal": partial(Function, "Reciprocal", torch.reciprocal),
}


@_makes(*_PLAIN)
def _plain(node: Node, file: OnnxFile) -> nn.Module:
    return _PLAIN[node.kind]()


@_makes("Clip")
def _clip(node: Node, file: OnnxFile) -> nn.Module:
    low, high = (_bound(node, name, place, file) for name, place in (("min", 1), ("max", 2)))
    if low is None or high is None:
        return Function("Clip", partial(torch.clamp, min=low, max=high))
    return nn.ReLU6() if (low, high) == (0, 6) else nn.Hardtanh(low, high)


def _bound(node: Node, name: str, place: int, file: OnnxFile) -> float | None:
    found = node.attributes.get(name)
    value = constant(node, place, file) if found is None else np.asarray(found)
    return None if value is None else float(value.reshape(-1)[0])


@_makes("HardSigmoid")
def _hard_sigmoid(node: Node, file: OnnxFile) -> nn.Module:
    alpha, beta = node.attributes.get("alpha", 0.2), node.attributes.get("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return nn.Hardsigmoid()
    return Function("HardSigmoid", lambda x: (alpha * x + beta).clamp(0, 1))


@_makes("LeakyRelu", "Elu")
def _slope(node: Node, file: OnnxFile) -> nn.Module:
    usual, kind = (0.01, nn.LeakyReLU) if node.kind == "LeakyRelu" else (1.0, nn.ELU)
    return kind(float(node.attributes.get("alpha", usual)))


@_makes("PRelu")
def _prelu(node: Node, file: OnnxFile) -> nn.Module:
    slope = _required(node, 1, file).reshape(-1)
    made = nn.PReLU(len(slope))
    made.weight.data = tensor_of(slope)
    return made


@_makes("Gelu")
def _gelu(node: Node, file: OnnxFile) -> nn.Module:
    return nn.GELU(approximate=node.attributes.get("approximate", b"none").decode())


@_makes("Softmax")
def _softmax(node: Node, file: OnnxFile) -> nn.Module:
    old, sides = file.opset < 13, file.values[node.output].ndim
    axis = int(node.attributes.get("axis", 1 if old else -1)) % sides
    if old and axis != sides - 1:  # older ones make the tensor a matrix first
        raise _refusal(node, file, "is not along the last axis")
    return nn.Softmax(axis)


@_makes("MaxPool", "AveragePool")
def _pool(node: Node, file: OnnxFile) -> nn.Module:
    kernel = tuple(node.attributes["kernel_shape"])
    stride = tuple(node.attributes.get("strides", (1,) * len(kernel)))
    before, after = _padding(node, file, kernel, stride, (1, 1))
    ceil = bool(node.attributes.get("ceil_mode", 0))
    if node.kind == "AveragePool":
        counts = bool(node.attributes.get("count_include_pad", 0))
        if before != after:
            raise _refusal(node, file, f"pads unequally, by {before} and {after}")
        rows, columns = before
        return nn.AvgPool2d(kernel, stride, (rows, columns), ceil, counts)
    dilation = tuple(node.attributes.get("dilations", (1, 1)))
    if before == after:
        return nn.MaxPool2d(kernel, stride, before, dilation, ceil_mode=ceil)
    pads = (before[1], after[1], before[0], after[0])
    padding = nn.ConstantPad2d(pads, -float("inf"))
    return nn.Sequential(padding, nn.MaxPool2d(kernel, stride, 0, dilation, ceil_mode=ceil))


@_makes("Pad")
def _pad(node: Node, file: OnnxFile) -> nn.Module:
    pads = _given(node, "pads", 1, file)
    value = constant(node, 2, file)
    if pads is None or node.attributes.get("mode", b"constant") != b"constant":
        raise _refusal(node, file, "does not pad by a constant")
    sides = len(pads) // 2
    pairs = [side for place in range(sides)[::-1] for side in (pads[place], pads[place + sides])]
    number = 0.0 if value is None or value.size == 0 else float(value.reshape(-1)[0])
    return Function("Pad", partial(functional.pad, pad=pairs, value=number))


@_makes("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand")
def _reshape(node: Node, file: OnnxFile) -> nn.Module:
    """All of them by the shape of their result, of which some sides count the images."""
    result, counts = file.values[node.output].shape, file.counts(node.output)
    given = file.counts(node.data[0])
    if not any(given) or not any(counts):
        raise _refusal(node, file, "mixes the images of a batch")
    expands = node.kind == "Expand"
    usual = [(1, *(0 for _ in sides[1:])) for sides in (given, counts)] == [given, counts]
    if usual and not expands:
        if len(result) == 2:
            return nn.Flatten()
        return nn.Unflatten(1, result[1:]) if len(given) == 2 else Reshape(result[1:])
    return Reshape(result, given=given, counts=counts, expands=expands)


@_makes("Transpose")
def _transpose(node: Node, file: OnnxFile) -> nn.Module:
    order = list(node.attributes.get("perm", range(file.values[node.data[0]].ndim)[::-1]))
    return Function("Transpose", partial(torch.permute, dims=order))


@_makes("Split")
def _split(node: Node, file: OnnxFile) -> nn.Module:
    """One output of it; see `file._parts`."""
    axis, start, count = (int(node.attributes[name]) for name in ("axis", "start", "count"))
    _keeps_images(node, file, [axis])
    return Function("Split", partial(torch.narrow, dim=axis, start=start, length=count))


@_makes("Slice")
def _slice(node: Node, file: OnnxFile) -> nn.Module:
    starts, ends = (_given(node, name, place, file) for name, place in (("starts", 1), ("ends", 2)))
    axes, steps = _given(node, "axes", 3, file), _given(node, "steps", 4, file)
    if starts is None or ends is None:
        raise _refusal(node, file, "has no limits")
    sides = file.values[node.data[0]].shape
    axes = list(range(len(starts))) if axes is None else [axis % len(sides) for axis in axes]
    steps = steps or [1] * len(starts)
    if min(steps) < 1:
        raise _refusal(node, file, "runs backward")
    places = [slice(None)] * len(sides)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        begin, stop, _ = slice(start, end).indices(sides[axis])
        if (begin, stop, step) != (0, sides[axis], 1):
            _keeps_images(node, file, [axis])
            places[axis] = slice(begin, stop, step)
    return Function("Slice", lambda x: x[tuple(places)])


@_makes("Gather")
def _gather(node: Node, file: OnnxFile) -> nn.Module:
    if node.inputs[0] not in node.data:
        raise _refusal(node, file, "takes its indices from the image")
    indices = _required(node, 1, file)
    axis = int(node.attributes.get("axis", 0)) % file.values[node.data[0]].ndim
    _keeps_images(node, file, [axis])
    if indices.ndim == 0:
        return Function("Gather", partial(torch.select, dim=axis, index=int(indices)))
    if indices.ndim != 1:
        raise _refusal(node, file, "has indices of several dimensions")
    return IndexSelect(axis, torch.tensor(indices) % file.values[node.data[0]].shape[axis])


def _keeps_images(node: Node, file: OnnxFile, axes: Sequence[int]) -> None:
    """Check that an operator along some axes does not mix the images of a batch."""
    counts = file.counts(node.data[0])
    if any(counts[axis] for axis in axes):
        raise _refusal(node, file, "works along the images of a batch")


_REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "ReduceMean": torch.mean,
    "ReduceSum": torch.sum,
    "ReduceMax": torch.amax,
    "ReduceL2": torch.linalg.vector_norm,
}


@_makes(*_REDUCTIONS)
def _reduce(node: Node, file: OnnxFile) -> nn.Module:
    axes = _given(node, "axes", 1, file)
    if axes is None:
        raise _refusal(node, file, "reduces over the images of a batch")
    _keeps_images(node, file, axes)
    keep = bool(node.attributes.get("keepdims", 1))
    return Function(node.kind, partial(_REDUCTIONS[node.kind], dim=axes, keepdim=keep))


@_makes("Einsum")
def _einsum(node: Node, file: OnnxFile) -> nn.Module:
    if len(node.data) != len(node.inputs):
        raise _refusal(node, file, "has a constant among its inputs")
    return Function("Einsum", partial(torch.einsum, node.attributes["equation"].decode()))


@_makes("Resize", "Upsample")
def _resize(node: Node, file: OnnxFile) -> nn.Module:
    sides = file.values[node.output].shape
    if len(sides) != 4 or sides[:2] != file.values[node.data[0]].shape[:2]:
        raise _refusal(node, file, "resizes something else than rows and columns")
    mode = node.attributes.get("mode", b"nearest").decode()
    corners = node.attributes.get("coordinate_transformation_mode", b"half_pixel").decode()
    size = (int(sides[2]), int(sides[3]))
    if mode == "nearest":
        return Function("Resize", partial(functional.interpolate, size=size))
    if mode not in ("linear", "cubic"):
        raise _refusal(node, file, f"has the mode {mode}")
    kind = "bilinear" if mode == "linear" else "bicubic"
    aligned = corners == "align_corners"
    resize = partial(functional.interpolate, size=size, mode=kind, align_corners=aligned)
    return Function("Resize", resize)


@_makes("DepthToSpace")
def _depth_to_space(node: Node, file: OnnxFile) -> nn.Module:
    if node.attributes.get("mode", b"DCR") != b"CRD":
        raise _refusal(node, file, "has the order DCR")
    return nn.PixelShuffle(int(node.attributes["blocksize"]))


@_makes("Concat")
def _concat(node: Node, file: OnnxFile) -> nn.Module:
    axis = int(node.attributes["axis"]) % file.values[node.output].ndim
    _keeps_images(node, file, [axis])
    if len(node.data) == len(node.inputs):
        return Function("Concat", lambda *inputs: torch.cat(inputs, axis))
    constants = [None if n in node.data else tensor_of(file.once(n)) for n in node.inputs]
    return ConcatWithConstants(axis, constants)


@_makes("Cast")
def _cast(node: Node, file: OnnxFile) -> nn.Module:
    if file.values[node.output].dtype != np.float32:
        raise _refusal(node, file, "makes something else than float32")
    return nn.Identity()


_ELEMENTWISE: dict[str, Callable[[Any, Any], Any]] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Div": torch.div,
    "Pow": torch.pow,
    "Min": torch.minimum,
    "Max": torch.maximum,
}


@_makes(*_ELEMENTWISE)
def _elementwise(node: Node, file: OnnxFile) -> nn.Module:
    function = _ELEMENTWISE[node.kind]
    if len(node.inputs) != 2:
        raise _refusal(node, file, "has another number of inputs than two")
    if len(node.data) == 2:
        return Function(node.kind, function)
    first = node.inputs[0] not in node.data
    value = _required(node, 0 if first else 1, file)
    counts = file.counts(node.output)[-value.ndim :] if value.ndim else ()
    if any(count and side > 1 for count, side in zip(counts, value.shape, strict=True)):
        raise _refusal(node, file, "has a constant for each image of a batch")
    return WithConstant(function, tensor_of(value), first=first)
