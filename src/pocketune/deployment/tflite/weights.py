"""Weights, biases and other constants as operators store them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from pocketune.arrays import FloatArray
from pocketune.deployment.tflite.flatbuffer import Scales, Tensor
from pocketune.deployment.tflite.translator import Translator


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights whose first axis is the output channels: float32, or int8 with a scale a channel."""

    values: NDArray[Any]
    scale: FloatArray | None


def has_integers(t: Translator, name: str, channels: int) -> bool:
    """Whether weights are stored as integers, so that their layer computes with integers.

    The quantizer leaves those of a layer in float32 that would lose too much accuracy.

    Args:
        t: The translator.
        name: The weights.
        channels: The axis of their output channels.
    """
    stored = t.stored(name)
    return stored is not None and (stored[1].size == 1 or stored[2] == channels)


def weights_of(t: Translator, name: str, order: Sequence[int], *, integers: bool) -> Weights:
    """A constant with its axes in this order, the first of them the output channels."""
    stored = t.stored(name)
    if stored is None or not integers:
        return Weights(t.array(name).transpose(order).astype(np.float32), None)
    values, scale, _ = stored
    ordered = values.transpose(order)
    return Weights(ordered, np.broadcast_to(scale.reshape(-1), len(ordered)).astype(np.float32))


def bias_of(t: Translator, node: onnx.NodeProto, count: int) -> FloatArray:
    """The bias of a Conv or a Gemm, or zeros."""
    if len(node.input) < 3 or not node.input[2]:
        return np.zeros(count, np.float32)
    bias: FloatArray = t.array(node.input[2]).astype(np.float32).reshape(-1)
    return np.broadcast_to(bias, count)


def layer_tensors(
    t: Translator, node: onnx.NodeProto, x: Tensor, weights: Weights, bias: FloatArray, axis: int
) -> tuple[Tensor, Tensor]:
    """The tensors of a layer's weights and bias.

    Args:
        t: The translator.
        node: The layer.
        x: What it reads.
        weights: Its weights as the operator stores them.
        bias: (channels,).
        axis: Of the output channels in the weights.
    """
    name = node.input[1]
    if weights.scale is None:
        return t.constant(name, weights.values), t.constant(f"{name}/bias", bias)
    assert x.scales is not None
    kernel = t.constant(name, weights.values, Scales(weights.scale, 0, axis))
    return kernel, sums(t, f"{name}/bias", bias, x.scales.scale * weights.scale)


def sums(t: Translator, name: str, values: FloatArray, scale: FloatArray) -> Tensor:
    """int32 constants that are added to sums of products."""
    limits = np.iinfo(np.int32)
    whole = np.round(values.astype(np.float64) / scale).clip(limits.min, limits.max)
    return t.constant(name, whole.astype(np.int32), Scales(scale.astype(np.float32)))


def rounded(t: Translator, name: str, values: FloatArray) -> Tensor:
    """int8 constants with one scale, for an operator of two values."""
    largest = float(np.abs(values).max())
    scale = largest / 127 if largest else 1.0
    whole = np.round(values / np.float32(scale)).astype(np.int8)
    return t.constant(name, whole, Scales.of(scale, 0))
