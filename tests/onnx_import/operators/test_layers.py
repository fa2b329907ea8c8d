"""Layers with weights, norms and pooling."""

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper
from torch import nn

from pocketune.compiler import compile
from pocketune.errors import PocketuneError
from pocketune.methods import FullFineTune, adapt
from pocketune.onnx_import import load_onnx
from pocketune.onnx_import.operators.layers import linear

from ..files import HEAD, head, written
from .cases import Case, X, check, ints

node = helper.make_node
MATRIX = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
POSITIONS = np.random.default_rng(2).standard_normal((1, 24, 8)).astype(np.float32)
CASES: dict[str, Case] = {
    "response norm": (
        [node("LRN", ["x"], ["d"], size=3, alpha=0.5, beta=0.6, bias=1.5)],
        {},
        nn.functional.local_response_norm(X, 3, alpha=0.5, beta=0.6, k=1.5),
    ),
    "pool without dilations": (
        [node("AveragePool", ["x"], ["d"], kernel_shape=[2, 2], dilations=[1, 1])],
        {"opset": 19},
        nn.functional.avg_pool2d(X, 2, 1),
    ),
    "products": (
        [node("MatMul", ["a", "x"], ["l"]), node("MatMul", ["l", "b"], ["d"])],
        {"a": np.eye(8, dtype=np.float32) * 2, "b": np.ones((3, 8, 4), np.float32)},
        2 * X.sum(3, keepdim=True).expand(-1, -1, -1, 4),
    ),
    "layer norm of several axes": (
        [node("LayerNormalization", ["x", "a"], ["d"], axis=1)],
        {"a": np.arange(8, dtype=np.float32)},
        nn.functional.layer_norm(X, (3, 8, 8)) * torch.arange(8),
    ),
    "much padding": (
        [node("MaxPool", ["x"], ["d"], kernel_shape=[3, 3], pads=[2, 2, 2, 2])],
        {},
        nn.functional.max_pool2d(nn.functional.pad(X, (2,) * 4, value=-np.inf), 3, 1),
    ),
    "instance norm": (
        [node("InstanceNormalization", ["x", "a", "b"], ["d"])],
        {"a": np.array([1, 2, 3], np.float32), "b": np.array([0, 1, 0], np.float32)},
        nn.functional.instance_norm(
            X, weight=torch.tensor([1.0, 2, 3]), bias=torch.tensor([0, 1.0, 0])
        ),
    ),
    "convolution of a row": (
        [
            node("Reshape", ["x", "s"], ["l"]),
            node("Conv", ["l", "a", "b"], ["d"], pads=[2, 2], strides=[3], dilations=[2]),
        ],
        {"s": ints(0, 3, 64), "a": MATRIX[:6].reshape(4, 3, 4), "b": MATRIX[0, :4]},
        nn.functional.conv1d(
            X.flatten(2),
            torch.tensor(MATRIX[:6].reshape(4, 3, 4)),
            torch.tensor(MATRIX[0, :4]),
            stride=3,
            padding=2,
            dilation=2,
        ),
    ),
    "transposed convolution": (
        [node("ConvTranspose", ["x", "a", "b"], ["d"], strides=[2, 2], pads=[1, 0, 1, 0])],
        {"a": np.arange(36, dtype=np.float32).reshape(3, 3, 2, 2) / 9, "b": np.float32([1, 2, 3])},
        nn.functional.conv_transpose2d(
            X, torch.arange(36.0).view(3, 3, 2, 2) / 9, torch.tensor([1.0, 2, 3]), 2, (1, 0)
        ),
    ),
    "positions of tokens behind a layer": (
        [
            node("Reshape", ["x", "t"], ["tokens"]),
            node("MatMul", ["tokens", "a"], ["m"]),
            node("Add", ["m", "p"], ["d"]),
        ],
        {"t": ints(0, 24, 8), "a": MATRIX, "p": POSITIONS},
        X.reshape(2, 24, 8) @ torch.tensor(MATRIX) + torch.tensor(POSITIONS),
    ),
    "as many tokens as outputs": (
        [
            node("Reshape", ["x", "t"], ["tokens"]),
            node("MatMul", ["tokens", "a"], ["m"]),
            node("Add", ["m", "p"], ["d"]),
        ],
        {"t": ints(0, 24, 8), "a": np.tile(MATRIX, 3), "p": POSITIONS[..., :1]},
        X.reshape(2, 24, 8) @ torch.tensor(MATRIX).tile(3) + torch.tensor(POSITIONS[..., :1]),
    ),
    "a number behind a layer": (
        [node("MatMul", ["x", "a"], ["m"]), node("Add", ["m", "p"], ["d"])],
        {"a": MATRIX, "p": np.float32(3)},
        X @ torch.tensor(MATRIX) + 3,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_layers(case: str, tmp_path: Path) -> None:
    check(CASES[case], tmp_path)


def test_group_norm(tmp_path: Path) -> None:
    """Opset 18 has one too, which onnx itself refuses as deprecated."""
    scale, bias = np.arange(6, dtype=np.float32).reshape(2, 3)
    nodes = [node("GroupNormalization", ["x", "a", "b"], ["d"], num_groups=1), *head("d")]
    constants = HEAD | {"a": scale, "b": bias}
    loaded = load_onnx(written(tmp_path / "net.onnx", nodes, constants, opset=21), size=8)
    maps = nn.functional.group_norm(X, 1, torch.tensor(scale), torch.tensor(bias))
    expected = maps.mean((2, 3)) @ torch.ones(3, 2)
    torch.testing.assert_close(loaded.eval()(X), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(PocketuneError, match="GroupNormalization is deprecated"):
        load_onnx(written(tmp_path / "net.onnx", nodes, constants, opset=18), size=8)


def test_a_gradient_passes_through_a_response_norm(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "k"], ["c"]), node("LRN", ["c"], ["d"], size=3, alpha=0.5)]
    constants = {"k": np.random.default_rng(0).standard_normal((3, 3, 1, 1), np.float32)}
    file = written(tmp_path / "net.onnx", [*nodes, *head("d")], {**HEAD, **constants})
    adapted = adapt(load_onnx(file, size=8), FullFineTune())
    compile(adapted, tmp_path / "kit", batch=2, size=8)  # which compares it with the network


def test_a_transposed_weight_can_be_saved() -> None:
    """safetensors takes contiguous tensors only."""
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = linear(weight.T, None)
    assert made.weight.is_contiguous()
