"""Norms that are computed from the values themselves; those of a batch are in the layers."""

from __future__ import annotations

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
    given = attributes(node)
    x = t.plain(t.real(t.value(node.input[0]))).tensor
    axis = given.get("axis", -1) % len(x.shape)
    axes = t.integer_list("axes", range(axis, len(x.shape)))
    epsilon = t.constant("epsilon", np.full((1,), given.get("epsilon", 1e-5), np.float32))

    def computed(step: str, kind: str, *inputs: Tensor, last: bool = False) -> Tensor:
        name = node.output[0] if last else f"{node.output[0]}/{step}"
        shape = np.broadcast_shapes(*(each.shape for each in inputs))
        options = "" if kind == "RSQRT" else f"{kind.title()}Options"
        return t.emit(kind, inputs, Result(name), shape, options=options).tensor

    def mean(step: str, values: Tensor) -> Tensor:
        shape = (*values.shape[:axis], *[1] * (len(values.shape) - axis))
        result, options = Result(f"{node.output[0]}/{step}"), "ReducerOptions"
        inputs = [values, axes]
        return t.emit("MEAN", inputs, result, shape, options=options, keepDims=True).tensor

    centered = computed("centered", "SUB", x, mean("mean", x))
    variance = mean("variance", computed("squared", "MUL", centered, centered))
    inverse = computed("inverse", "RSQRT", computed("positive", "ADD", variance, epsilon))
    normalized = computed("normalized", "MUL", centered, inverse)
    scale, *shift = (t.real(t.value(name)).tensor for name in node.input[1:] if name)
    scaled = computed("scaled", "MUL", normalized, scale, last=not shift)
    if shift:
        computed("shifted", "ADD", scaled, shift[0], last=True)
