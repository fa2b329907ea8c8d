"""Functions of single elements, and softmax."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import nn

from pocketune.onnx_import.file import Node, OnnxFile
from pocketune.onnx_import.operators.registry import constant, makes, refusal, required
from pocketune.onnx_import.parts import Function, tensor_of

_PLAIN: dict[str, Callable[[], nn.Module]] = {
    "Relu": nn.ReLU,
    "Sigmoid": nn.Sigmoid,
    "Tanh": nn.Tanh,
    "HardSwish": nn.Hardswish,
    "Mish": nn.Mish,
    "Softplus": nn.Softplus,
    "Softsign": nn.Softsign,
    "Identity": nn.Identity,
    "Sqrt": partial(Function, "Sqrt", torch.sqrt),
    "Erf": partial(Function, "Erf", torch.erf),
    "Exp": partial(Function, "Exp", torch.exp),
    "Log": partial(Function, "Log", torch.log),
    "Neg": partial(Function, "Neg", torch.neg),
    "Abs": partial(Function, "Abs", torch.abs),
    "Reciprocal": partial(Function, "Reciprocal", torch.reciprocal),
    "Floor": partial(Function, "Floor", torch.floor),
    "Round": partial(Function, "Round", torch.round),
}


@makes(*_PLAIN)
def _plain(node: Node, file: OnnxFile) -> nn.Module:
    return _PLAIN[node.kind]()


@makes("Dropout")
def _dropout(node: Node, file: OnnxFile) -> nn.Module:
    training = constant(node, 2, file)
    if training is not None and training.any():
        raise refusal(node, file, "is one of training; export the network for inference")
    return nn.Identity()


@makes("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(node: Node, file: OnnxFile) -> nn.Module:
    """Of maps (N, C, H, W), or of tokens (N, C, T)."""
    is_mean = node.kind == "GlobalAveragePool"
    if file.values[node.data[0]].ndim == 4:
        return nn.AdaptiveAvgPool2d(1) if is_mean else nn.AdaptiveMaxPool2d(1)
    reduce = torch.mean if is_mean else torch.amax
    return Function(node.kind, partial(reduce, dim=2, keepdim=True))


@makes("Clip")
def _clip(node: Node, file: OnnxFile) -> nn.Module:
    low, high = (_bound(node, name, place, file) for name, place in (("min", 1), ("max", 2)))
    if low is None and high is None:
        return nn.Identity()
    if low is None or high is None or low >= high:  # the last gives the upper bound everywhere
        return Function("Clip", partial(torch.clamp, min=low, max=high))
    return nn.ReLU6() if (low, high) == (0, 6) else nn.Hardtanh(low, high)


def _bound(node: Node, name: str, place: int, file: OnnxFile) -> float | None:
    found = node.attributes.get(name)
    value = constant(node, place, file) if found is None else np.asarray(found)
    return None if value is None else float(value.reshape(-1)[0])


@makes("HardSigmoid")
def _hard_sigmoid(node: Node, file: OnnxFile) -> nn.Module:
    alpha, beta = node.attributes.get("alpha", 0.2), node.attributes.get("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return nn.Hardsigmoid()
    return Function("HardSigmoid", lambda x: (alpha * x + beta).clamp(0, 1))


@makes("LeakyRelu", "Elu", "Celu")
def _slope(node: Node, file: OnnxFile) -> nn.Module:
    kind = {"LeakyRelu": nn.LeakyReLU, "Elu": nn.ELU, "Celu": nn.CELU}[node.kind]
    return kind(float(node.attributes.get("alpha", 0.01 if node.kind == "LeakyRelu" else 1.0)))


_ALPHA, _GAMMA = 1.6732632423543772, 1.0507009873554805
"""The factors of SELU (Klambauer et al., 2017)."""


@makes("Selu")
def _selu(node: Node, file: OnnxFile) -> nn.Module:
    alpha, gamma = node.attributes.get("alpha", _ALPHA), node.attributes.get("gamma", _GAMMA)
    if abs(alpha - _ALPHA) + abs(gamma - _GAMMA) > 1e-5:
        raise refusal(node, file, "has factors of its own")
    return nn.SELU()


@makes("Swish")
def _swish(node: Node, file: OnnxFile) -> nn.Module:
    alpha = float(node.attributes.get("alpha", 1.0))
    return nn.SiLU() if alpha == 1 else Function("Swish", lambda x: x * (alpha * x).sigmoid())


@makes("PRelu")
def _prelu(node: Node, file: OnnxFile) -> nn.Module:
    slope, channels = required(node, 1, file), file.shape(node.output)[0]
    sides = (1, channels, *(1 for _ in file.shape(node.output)[1:]))
    if slope.size > 1 and (1,) * (len(sides) - slope.ndim) + slope.shape != sides:
        raise refusal(node, file, "has another slope than one for each channel")
    made = nn.PReLU(slope.size)
    made.weight.data = tensor_of(slope.reshape(-1))
    return made


@makes("Gelu")
def _gelu(node: Node, file: OnnxFile) -> nn.Module:
    return nn.GELU(approximate=node.attributes.get("approximate", b"none").decode())


@makes("Softmax", "LogSoftmax")
def _softmax(node: Node, file: OnnxFile) -> nn.Module:
    old, sides = file.opset < 13, file.values[node.output].ndim
    axis = int(node.attributes.get("axis", 1 if old else -1)) % sides
    if old and axis != sides - 1:  # older ones make the tensor a matrix first
        raise refusal(node, file, "is not along the last axis")
    return nn.Softmax(axis) if node.kind == "Softmax" else nn.LogSoftmax(axis)


@makes("Cast")
def _cast(node: Node, file: OnnxFile) -> nn.Module:
    kind = file.values[node.output].dtype
    if kind != np.float32:
        raise refusal(node, file, f"makes {kind}; export the network in float32")
    return nn.Identity()
