"""Operators of ONNX with what they become in TensorFlow Lite, alone and a few together."""

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

RNG = np.random.default_rng(0)
node = helper.make_node


def normal(*shape: int, scale: float = 0.4) -> np.ndarray:
    return (scale * RNG.normal(size=shape)).astype(np.float32)


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@dataclass
class Case:
    """Nodes from `x` (1, 3, 8, 8) to `logits`, and the operators that they become.

    Attributes:
        kinds: The operators in integers between the normalization and the last DEQUANTIZE.
        last: Whether the result has its channels last.
        quanta: How far integers may be off from ONNX Runtime's rounding of every step.
    """

    nodes: list[onnx.NodeProto]
    shape: tuple[int, ...]
    kinds: list[str]
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    last: bool = True
    quanta: float = 1.01


def conv(weight: np.ndarray, shape, kinds, *, bias: bool = True, after=(), **attributes) -> Case:
    constants = {"w": weight, "b": normal(len(weight))} if bias else {"w": weight}
    names = ["logits"] if not after else ["y"]
    nodes = [node("Conv", ["x", *constants], names, **attributes)]
    nodes += [node(kind, ["y", *given], ["logits"]) for kind, *given in after]
    if "high" in (given[-1] for _, *given in after if given):
        constants |= {"low": np.float32(0).reshape(()), "high": np.float32(6).reshape(())}
    return Case(nodes, shape, kinds, constants)


LINEAR = {"axes": whole(2, 3), "w": normal(5, 3), "b": normal(5)}
POOLED = node("ReduceMean", ["x", "axes"], ["pooled"], keepdims=0)

CASES = {
    "conv 1x1": conv(normal(5, 3, 1, 1), (1, 5, 8, 8), ["CONV_2D"]),
    "conv without bias": conv(normal(5, 3, 1, 1), (1, 5, 8, 8), ["CONV_2D"], bias=False),
    "conv same": conv(normal(5, 3, 3, 3), (1, 5, 8, 8), ["CONV_2D"], pads=[1, 1, 1, 1]),
    "conv stride, padded on both sides": conv(
        normal(5, 3, 3, 3), (1, 5, 4, 4), ["PAD", "CONV_2D"], pads=[1, 1, 1, 1], strides=[2, 2]
    ),
    "conv stride, padded behind": conv(
        normal(5, 3, 3, 3), (1, 5, 4, 4), ["CONV_2D"], pads=[0, 0, 1, 1], strides=[2, 2]
    ),
    "conv of another height": conv(
        normal(4, 3, 3, 1), (1, 4, 4, 8), ["PAD", "CONV_2D"], pads=[1, 0, 1, 0], strides=[2, 1]
    ),
    "conv dilated": conv(
        normal(5, 3, 3, 3), (1, 5, 8, 8), ["CONV_2D"], pads=[2, 2, 2, 2], dilations=[2, 2]
    ),
    "conv relu": conv(normal(5, 3, 3, 3), (1, 5, 6, 6), ["CONV_2D"], after=[("Relu",)]),
    "conv relu6": conv(
        normal(5, 3, 3, 3, scale=2), (1, 5, 6, 6), ["CONV_2D"], after=[("Clip", "low", "high")]
    ),
    "depthwise": conv(
        normal(3, 1, 3, 3), (1, 3, 8, 8), ["DEPTHWISE_CONV_2D"], group=3, pads=[1, 1, 1, 1]
    ),
    "depthwise, two outputs a channel": conv(
        normal(6, 1, 5, 5), (1, 6, 4, 4), ["DEPTHWISE_CONV_2D"], group=3
    ),
    "grouped": Case(
        [
            node("Conv", ["x", "a"], ["y"]),
            node("Conv", ["y", "w", "b"], ["logits"], group=2, pads=[1, 1, 1, 1]),
        ],
        (1, 6, 8, 8),
        ["CONV_2D", "CONV_2D"],
        {"a": normal(4, 3, 1, 1), "w": normal(6, 2, 3, 3), "b": normal(6)},
        quanta=2.01,
    ),
    "residual sum": Case(
        [node("Conv", ["x", "w"], ["y"]), node("Add", ["x", "y"], ["logits"])],
        (1, 3, 8, 8),
        ["CONV_2D", "ADD"],
        {"w": normal(3, 3, 1, 1)},
        quanta=2.01,
    ),
    "sum, relu": Case(
        [
            node("Conv", ["x", "w"], ["y"]),
            node("Add", ["x", "y"], ["z"]),
            node("Relu", ["z"], ["logits"]),
        ],
        (1, 3, 8, 8),
        ["CONV_2D", "ADD"],
        {"w": normal(3, 3, 1, 1)},
        quanta=2.01,
    ),
    "squeeze and excitation": Case(
        [
            node("ReduceMean", ["x", "axes"], ["pooled"], keepdims=1),
            node("Conv", ["pooled", "w", "b"], ["y"]),
            node("HardSigmoid", ["y"], ["gate"], alpha=1 / 6, beta=0.5),
            node("Mul", ["x", "gate"], ["logits"]),
        ],
        (1, 3, 8, 8),
        ["MEAN", "CONV_2D", "ADD", "MUL", "MUL"],
        {"axes": whole(2, 3), "w": normal(3, 3, 1, 1), "b": normal(3)},
        quanta=4.01,
    ),
    "swish": Case(
        [
            node("Conv", ["x", "w"], ["y"]),
            node("Sigmoid", ["y"], ["gate"]),
            node("Mul", ["y", "gate"], ["logits"]),
        ],
        (1, 4, 8, 8),
        ["CONV_2D", "LOGISTIC", "MUL"],
        {"w": normal(4, 3, 1, 1)},
        quanta=3.01,
    ),
    "hard-swish": Case(
        [node("Conv", ["x", "w"], ["y"]), node("HardSwish", ["y"], ["logits"])],
        (1, 4, 8, 8),
        ["CONV_2D", "HARD_SWISH"],
        {"w": normal(4, 3, 1, 1, scale=2)},
        quanta=2.01,
    ),
    "gelu": Case(
        [node("Conv", ["x", "w"], ["y"]), node("Gelu", ["y"], ["logits"])],
        (1, 4, 8, 8),
        ["CONV_2D", "GELU"],
        {"w": normal(4, 3, 1, 1, scale=2)},
        quanta=2.01,
    ),
    "one of two rows": Case(
        [
            node("Conv", ["x", "a"], ["y"], strides=[4, 4]),
            node("Reshape", ["y", "sides"], ["rows"]),
            node("Gather", ["rows", "place"], ["row"], axis=1),
            node("Gemm", ["row", "w"], ["logits"], transB=1),
        ],
        (1, 5),
        ["CONV_2D", "TRANSPOSE", "RESHAPE", "GATHER", "QUANTIZE", "FULLY_CONNECTED"],
        {"a": normal(4, 3, 4, 4), "sides": whole(1, 2, 8), "w": normal(5, 8)}
        | {"place": np.array(-1)},
        last=False,
        quanta=3.01,
    ),
    "hard sigmoid": Case(
        [node("HardSigmoid", ["x"], ["logits"], alpha=1 / 6, beta=0.5)],
        (1, 3, 8, 8),
        ["ADD", "MUL"],
        quanta=2.01,
    ),
    "mean of pixels": Case(
        [node("ReduceMean", ["x", "axes"], ["logits"], keepdims=0)],
        (1, 3),
        ["MEAN"],
        {"axes": whole(2, 3)},
        last=False,
    ),
    "mean of channels": Case(
        [node("ReduceMean", ["x", "axes"], ["logits"], keepdims=1)],
        (1, 1, 8, 8),
        ["MEAN"],
        {"axes": whole(1)},
    ),
    "linear": Case(
        [POOLED, node("Gemm", ["pooled", "w", "b"], ["logits"], transB=1)],
        (1, 5),
        ["MEAN", "FULLY_CONNECTED"],
        LINEAR,
        last=False,
        quanta=2.01,
    ),
    "linear, inputs first": Case(
        [POOLED, node("Gemm", ["pooled", "w", "b"], ["logits"])],
        (1, 5),
        ["MEAN", "FULLY_CONNECTED"],
        {**LINEAR, "w": normal(3, 5)},
        last=False,
        quanta=2.01,
    ),
    "product with a matrix": Case(
        [POOLED, node("MatMul", ["pooled", "w"], ["logits"])],
        (1, 5),
        ["MEAN", "FULLY_CONNECTED"],
        {"axes": whole(2, 3), "w": normal(3, 5)},
        last=False,
        quanta=2.01,
    ),
    "max pool": Case(
        [
            node("Conv", ["x", "w"], ["y"]),
            node("MaxPool", ["y"], ["logits"], kernel_shape=[2, 2], strides=[2, 2]),
        ],
        (1, 4, 4, 4),
        ["CONV_2D", "MAX_POOL_2D"],
        {"w": normal(4, 3, 1, 1)},
    ),
    "max pool, padded": Case(
        [
            node("Conv", ["x", "w", "b"], ["y"]),
            node("MaxPool", ["y"], ["logits"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        ],
        (1, 4, 4, 4),
        ["CONV_2D", "PADV2", "MAX_POOL_2D"],
        {"w": normal(4, 3, 1, 1), "b": np.full(4, -9, np.float32)},  # the padding is not 0
    ),
    "side by side": Case(
        [node("Conv", ["x", "w"], ["y"]), node("Concat", ["x", "y"], ["logits"], axis=1)],
        (1, 5, 8, 8),
        ["CONV_2D", "QUANTIZE", "CONCATENATION"],
        {"w": normal(2, 3, 1, 1, scale=0.1)},
        quanta=1.51,
    ),
    "flattened image": Case(
        [
            node("Conv", ["x", "a"], ["y"], strides=[4, 4]),
            node("Reshape", ["y", "sides"], ["flat"]),
            node("Gemm", ["flat", "w"], ["logits"], transB=1),
        ],
        (1, 5),
        ["CONV_2D", "TRANSPOSE", "RESHAPE", "FULLY_CONNECTED"],
        {"a": normal(2, 3, 4, 4), "sides": whole(1, -1), "w": normal(5, 8)},
        last=False,
        quanta=2.01,
    ),
    "back and forth": Case(
        [
            node("Conv", ["x", "v"], ["a"]),
            node("Transpose", ["a"], ["y"], perm=[0, 2, 3, 1]),
            node("Transpose", ["y"], ["z"], perm=[0, 3, 1, 2]),
            node("Conv", ["z", "w"], ["logits"]),
        ],
        (1, 4, 8, 8),
        ["CONV_2D", "CONV_2D"],
        {"v": normal(2, 3, 1, 1), "w": normal(4, 2, 1, 1)},
        quanta=2.01,
    ),
}

FLOAT_CASES = {
    **CASES,
    "average pool": Case(
        [node("AveragePool", ["x"], ["logits"], kernel_shape=[2, 2], strides=[2, 2])],
        (1, 3, 4, 4),
        [],
    ),
    "other bounds": Case(
        [node("Clip", ["x", "low", "high"], ["logits"])],
        (1, 3, 8, 8),
        [],
        {"low": np.float32(-0.5).reshape(()), "high": np.float32(0.7).reshape(())},
    ),
    "one bound": Case(
        [node("Clip", ["x", "low"], ["logits"])],
        (1, 3, 8, 8),
        [],
        {"low": np.float32(-0.5).reshape(())},
    ),
    "difference and quotient by channels": Case(
        [node("Sub", ["c", "x"], ["y"]), node("Div", ["y", "d"], ["logits"])],
        (1, 3, 8, 8),
        [],
        {"c": normal(3, 1, 1), "d": np.array([1, 2, 4], np.float32).reshape(1, 3, 1, 1)},
    ),
    "probabilities of pixels": Case([node("Softmax", ["x"], ["logits"], axis=1)], (1, 3, 8, 8), []),
    "probabilities": Case(
        [POOLED, node("Softmax", ["pooled"], ["logits"], axis=1)],
        (1, 3),
        [],
        {"axes": whole(2, 3)},
        last=False,
    ),
    "resized by matrices": Case(
        [node("MatMul", ["up", "x"], ["logits"])],
        (1, 3, 11, 8),
        [],
        {"up": normal(11, 8)},
        last=False,
    ),
    "global average": Case([node("GlobalAveragePool", ["x"], ["logits"])], (1, 3, 1, 1), []),
    "layer norm": Case(
        [node("LayerNormalization", ["x", "w", "b"], ["logits"], axis=-1, epsilon=1e-6)],
        (1, 3, 8, 8),
        [],
        {"w": normal(8), "b": normal(8)},
        last=False,
    ),
    "layer norm of channels": Case(
        [
            node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1]),
            node("LayerNormalization", ["y", "w"], ["z"], axis=-1),
            node("Transpose", ["z"], ["logits"], perm=[0, 3, 1, 2]),
        ],
        (1, 3, 8, 8),
        [],
        {"w": normal(3)},
    ),
    "layer norm of a map": Case(
        [node("LayerNormalization", ["x", "w", "b"], ["logits"], axis=1)],
        (1, 3, 8, 8),
        [],
        {"w": normal(3, 8, 8), "b": normal(3, 8, 8)},
        last=False,
    ),
    "instance norm": Case(
        [node("InstanceNormalization", ["x", "w", "b"], ["logits"], epsilon=1e-3)],
        (1, 3, 8, 8),
        [],
        {"w": normal(3), "b": normal(3)},
        last=False,
    ),
    "group norm": Case(
        [
            node("Concat", ["x", "x"], ["wide"], axis=1),
            node("Reshape", ["wide", "groups"], ["grouped"]),
            node("InstanceNormalization", ["grouped", "one", "zero"], ["normalized"]),
            node("Reshape", ["normalized", "maps"], ["whole"]),
            node("BatchNormalization", ["whole", "w", "b", "mean", "variance"], ["logits"]),
        ],
        (1, 6, 8, 8),
        [],
        {
            "groups": whole(1, 2, -1),
            "maps": whole(1, 6, 8, 8),
            "w": normal(6),
            "b": normal(6),
            "mean": normal(6),
            "variance": normal(6) ** 2 + 1,
            "one": np.ones(2, np.float32),
            "zero": np.zeros(2, np.float32),
        },
    ),
    "attention": Case(
        [
            node("Reshape", ["x", "sides"], ["rows"]),
            node("Transpose", ["rows"], ["tokens"], perm=[0, 2, 1]),
            node("MatMul", ["tokens", "w"], ["qkv"]),
            node("Split", ["qkv"], ["q", "k", "v"], axis=-1, num_outputs=3),
            node("Transpose", ["k"], ["turned"], perm=[0, 2, 1]),
            node("MatMul", ["q", "turned"], ["scores"]),
            node("Softmax", ["scores"], ["shares"], axis=-1),
            node("MatMul", ["shares", "v"], ["logits"]),
        ],
        (1, 64, 4),
        [],
        {"sides": whole(1, 3, -1), "w": normal(3, 12)},
        last=False,
    ),
    "a part": Case(
        [node("Slice", ["x", "from", "to", "axes"], ["logits"])],
        (1, 2, 8, 5),
        [],
        {"from": whole(1, -6), "to": whole(9, -1), "axes": whole(1, 3)},
        last=False,
    ),
    "rows of values": Case(
        [
            node("Reshape", ["x", "sides"], ["rows"]),
            node("Transpose", ["rows"], ["tokens"], perm=[0, 2, 1]),
            node("MatMul", ["tokens", "w"], ["y"]),
            node("Add", ["y", "b"], ["logits"]),
        ],
        (1, 64, 5),
        [],
        {"sides": whole(1, 3, -1), "w": normal(3, 5), "b": normal(5)},
        last=False,
    ),
}
