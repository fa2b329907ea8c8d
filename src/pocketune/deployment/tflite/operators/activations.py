"""Functions of one value."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx

from pocketune.deployment.tflite.flatbuffer import Scales
from pocketune.deployment.tflite.patterns import is_sixth
from pocketune.deployment.tflite.translator import Translator, translates
from pocketune.deployment.tflite.values import (
    ACTIVATIONS,
    Result,
    attributes,
    unsupported,
)
from pocketune.deployment.tflite.weights import rounded

_PROBABILITIES = Scales.of(1 / 256, -128)
"""The scales in which integer operators give values from 0 to 1."""


@translates("Relu", "Clip")
def clip(t: Translator, node: onnx.NodeProto) -> None:
    """Bounds of values."""
    kind = t.activation(node)
    x, result = t.read(node, integers=kind is not None)
    if kind is not None:
        t.emit(kind, [x.tensor], result, x.tensor.shape, last=x.last)
        return
    low, high = t.bounds(node)
    steps = [(k, b) for k, b in (("MAXIMUM", low), ("MINIMUM", high)) if np.isfinite(b)]
    for step, bound in steps:
        constant = t.constant(step.lower(), np.full((1,), bound, np.float32))
        name = node.output[0] if step == steps[-1][0] else f"{node.output[0]}/low"
        x = t.emit(
            step,
            [x.tensor, constant],
            Result(name),
            x.tensor.shape,
            last=x.last,
            options="MaximumMinimumOptions",
        )


@translates("HardSwish")
def hard_swish(t: Translator, node: onnx.NodeProto) -> None:
    """X times its hard sigmoid."""
    _apply(t, node, "HARD_SWISH", options="HardSwishOptions")


@translates("Gelu")
def gelu(t: Translator, node: onnx.NodeProto) -> None:
    """X times the share of the standard normal distribution below it."""
    if attributes(node).get("approximate", b"none") != b"none":
        raise unsupported(node, " by an approximation")
    _apply(t, node, "GELU", options="GeluOptions")


@translates("HardSigmoid")
def hard_sigmoid(t: Translator, node: onnx.NodeProto) -> None:
    """X + 3 between 0 and 6, times a sixth; there is no operator for it."""
    if not is_sixth(node):
        raise unsupported(node, " other than x / 6 + 1 / 2")
    x, result = t.read(node)
    make = t.constant if result.scales is None else partial(rounded, t)
    one = (1,) * len(x.tensor.shape)
    sum_scales = Scales.of(6 / 255, -128) if result.scales is not None else None
    between = Result(f"{node.output[0]}/six", scales=sum_scales)
    shifted = t.emit(
        "ADD",
        [x.tensor, make("three", np.full(one, 3, np.float32))],
        between,
        x.tensor.shape,
        last=x.last,
        options="AddOptions",
        fusedActivationFunction=ACTIVATIONS.index("RELU6"),
    )
    t.emit(
        "MUL",
        [shifted.tensor, make("sixth", np.full(one, 1 / 6, np.float32))],
        result,
        x.tensor.shape,
        last=x.last,
        options="MulOptions",
    )


@translates("Sigmoid")
def sigmoid(t: Translator, node: onnx.NodeProto) -> None:
    """The logistic function."""
    _apply(t, node, "LOGISTIC", fixed=_PROBABILITIES)


def _apply(t: Translator, node: onnx.NodeProto, kind: str, **how: Any) -> None:
    """Translate a function of each value to one operator; `how` is as for `Translator.emit`."""
    x, result = t.read(node)
    t.emit(kind, [x.tensor], result, x.tensor.shape, last=x.last, **how)


@translates("Softmax")
def softmax(t: Translator, node: onnx.NodeProto) -> None:
    """Probabilities along the last axis."""
    rank = len(t.shape(node.input[0]))
    axis = attributes(node).get("axis", -1) % rank
    x, result = t.read(node)
    if axis == 1 and rank == 4:
        x = t.last(x)
    elif axis == rank - 1:
        x = t.plain(x)
    else:
        raise unsupported(node, f" along axis {axis}")
    t.emit(
        "SOFTMAX",
        [x.tensor],
        result,
        x.tensor.shape,
        last=x.last,
        fixed=_PROBABILITIES,
        options="SoftmaxOptions",
        beta=1.0,
    )
