"""Norms: of the values themselves, and those of a batch that no convolution takes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from pocketune.deployment.tflite.flatbuffer import Tensor
from pocketune.deployment.tflite.translator import Translator, translates
from pocketune.deployment.tflite.values import Result, attributes, unsupported


@translates("LayerNormalization")
def layer_norm(t: Translator, node: onnx.NodeProto) -> None:
    """The last axes with mean 0 and variance 1, scaled and shifted; always in float32."""
    if any(node.output[1:]):
        raise unsupported(node, " with its mean and deviation")
    given, rank = attributes(node), len(t.shape(node.input[0]))
    affine = [t.real(t.value(name)).tensor for name in node.input[1:] if name]
    _normalize(t, node, range(given.get("axis", -1) % rank, rank), given, affine)


@translates("InstanceNormalization")
def instance_norm(t: Translator, node: onnx.NodeProto) -> None:
    """The same for all axes behind the channels, which a group norm has its groups for."""
    rank = len(t.shape(node.input[0]))
    scale, shift = (t.array(name).reshape(-1, *[1] * (rank - 2)) for name in node.input[1:])
    does = (scale != 1).any() or shift.any()
    affine = [t.constant("scale", scale), t.constant("shift", shift)] if does else []
    _normalize(t, node, range(2, rank), attributes(node), affine)


@translates("BatchNormalization")
def batch_norm(t: Translator, node: onnx.NodeProto) -> None:
    """A factor and a term for each channel; always in float32."""
    scale, shift, mean, variance = (t.array(name) for name in node.input[1:])
    factor = scale / np.sqrt(variance + attributes(node).get("epsilon", 1e-5))
    x = t.last(t.real(t.value(node.input[0])))
    y = x.tensor
    for kind, name, values in (
        ("MUL", f"{node.output[0]}/scaled", factor),
        ("ADD", node.output[0], shift - mean * factor),
    ):
        inputs = [y, t.constant(kind, values.astype(np.float32))]
        options = f"{kind.title()}Options"
        y = t.emit(kind, inputs, Result(name), y.shape, last=True, options=options).tensor


def _normalize(
    t: Translator,
    node: onnx.NodeProto,
    within: Sequence[int],
    given: dict[str, Any],
    affine: Sequence[Tensor],
) -> None:
    """The values within these axes with mean 0 and variance 1, times and plus the tensors given."""
    x = t.plain(t.real(t.value(node.input[0]))).tensor
    axes = t.integer_list("axes", within)
    epsilon = t.constant("epsilon", np.full((1,), given.get("epsilon", 1e-5), np.float32))

    def computed(step: str, kind: str, *inputs: Tensor, last: bool = False) -> Tensor:
        name = node.output[0] if last else f"{node.output[0]}/{step}"
        shape = np.broadcast_shapes(*(each.shape for each in inputs))
        options = "" if kind == "RSQRT" else f"{kind.title()}Options"
        return t.emit(kind, inputs, Result(name), shape, options=options).tensor

    def mean(step: str, values: Tensor) -> Tensor:
        shape = tuple(1 if axis in within else side for axis, side in enumerate(values.shape))
        result, options = Result(f"{node.output[0]}/{step}"), "ReducerOptions"
        inputs = [values, axes]
        return t.emit("MEAN", inputs, result, shape, options=options, keepDims=True).tensor

    centered = computed("centered", "SUB", x, mean("mean", x))
    variance = mean("variance", computed("squared", "MUL", centered, centered))
    inverse = computed("inverse", "RSQRT", computed("positive", "ADD", variance, epsilon))
    y = computed("normalized", "MUL", centered, inverse, last=not affine)
    for kind, tensor in zip(("MUL", "ADD"), affine, strict=False):
        y = computed(kind, kind, y, tensor, last=tensor is affine[-1])
