"""Functions of single elements."""

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper
from torch import nn

from .cases import Case, X, check, ints

node = helper.make_node
CASES: dict[str, Case] = {
    "bounds of opset 10": (
        [node("Clip", ["x"], ["d"], min=-0.5, max=0.5)],
        {"opset": 10},
        X.clamp(-0.5, 0.5),
    ),
    "no bound": ([node("Clip", ["x"], ["d"])], {}, X),
    "slopes": (
        [node("PRelu", ["x", "a"], ["d"])],
        {"a": np.array([0.1, 0.2, 0.3], np.float32).reshape(3, 1, 1)},
        nn.functional.prelu(X, torch.tensor([0.1, 0.2, 0.3])),
    ),
    "one bound": (
        [node("Clip", ["x", "zero"], ["d"])],
        {},
        X.clamp(min=0),
    ),
    "equal bounds": (
        [node("Clip", ["x", "a", "a"], ["c"]), node("Add", ["x", "c"], ["d"])],
        {"a": np.float32(1)},
        X + 1,
    ),
    "lower bound above the upper": (
        [node("Clip", ["x", "a", "zero"], ["c"]), node("Add", ["x", "c"], ["d"])],
        {"a": np.float32(1)},
        X,
    ),
    "dropout of inference": (
        [node("Dropout", ["x", "a", "b"], ["d"])],
        {"a": np.float32(0.3), "b": np.array(False)},
        X,
    ),
    "pools of tokens": (
        [
            node("Reshape", ["x", "a"], ["t"]),
            node("GlobalAveragePool", ["t"], ["p"]),
            node("GlobalMaxPool", ["t"], ["q"]),
            node("Add", ["p", "q"], ["s"]),
            node("Unsqueeze", ["s", "b"], ["d"]),
        ],
        {"a": ints(0, 3, -1), "b": ints(3)},
        (X.mean((2, 3), keepdim=True) + X.amax((2, 3), keepdim=True)),
    ),
    "selu": ([node("Selu", ["x"], ["d"])], {}, nn.functional.selu(X)),
    "celu": ([node("Celu", ["x"], ["d"], alpha=2.0)], {}, nn.functional.celu(X, 2)),
    "softsign": ([node("Softsign", ["x"], ["d"])], {}, nn.functional.softsign(X)),
    "log softmax": ([node("LogSoftmax", ["x"], ["d"], axis=1)], {}, X.log_softmax(1)),
    "swish": ([node("Swish", ["x"], ["d"])], {"opset": 24}, nn.functional.silu(X)),
    "sharp swish": (
        [node("Swish", ["x"], ["d"], alpha=2.0)],
        {"opset": 24},
        X * (2 * X).sigmoid(),
    ),
    "whole numbers": (
        [
            node("Floor", ["x"], ["f"]),
            node("Mul", ["x", "a"], ["m"]),
            node("Round", ["m"], ["r"]),
            node("Sub", ["f", "r"], ["d"]),
        ],
        {"a": np.float32(10)},
        X.floor() - (X * 10).round(),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_activations(case: str, tmp_path: Path) -> None:
    check(CASES[case], tmp_path)
