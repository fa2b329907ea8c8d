"""Transformers in files: attention, and norms of tokens."""

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper
from torch import nn

from pocketune.compiler import compile
from pocketune.errors import PocketuneError
from pocketune.methods import FullFineTune, LastLayer, adapt
from pocketune.networks import anatomy
from pocketune.onnx_import import load_onnx

from ..networks.tiny import tiny
from .files import CLASSES, HEAD, SIZE, assert_close, exported, head, images, written

node = helper.make_node


class Attending(nn.Module):
    """PyTorch's own attention, over the tokens of a convolution."""

    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 8, 8, 8), nn.Linear(8, CLASSES)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = (
            self.patches(x)
            .flatten(2)
            .permute(*((0, 2, 1) if self.attention.batch_first else (2, 0, 1)))
        )
        mixed = tokens + self.attention(tokens, tokens, tokens)[0]
        scores: torch.Tensor = self.head(mixed.mean(1 if self.attention.batch_first else 0))
        return scores


class Encoding(nn.Module):
    """Layers of a transformer over the tokens of a convolution."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.patches, self.layers, self.head = nn.Conv2d(3, 8, 8, 8), layers, nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        scores: torch.Tensor = self.head(self.layers(tokens).mean(1))
        return scores


class TestTransformers:
    """Attention splits, transposes and joins tensors in which the batch is not always first."""

    @pytest.mark.parametrize("name", ["vit_tiny", "convnext_atto"])
    def test_ours(self, name: str, tmp_path: Path) -> None:
        original = tiny(name).eval()
        loaded = load_onnx(exported(original, tmp_path / "net.onnx"), size=SIZE).eval()
        assert_close(loaded(images()), original(images()))
        kinds = [block.kind for block in anatomy(loaded).blocks]
        assert kinds == [block.kind for block in anatomy(original).blocks]
        assert any(isinstance(module, nn.LayerNorm) for module in loaded.modules())
        assert loaded.train()(images(5)).shape == (5, 3)

    @pytest.mark.parametrize("batch_first", [True, False])
    def test_attention_of_pytorch(self, batch_first: bool, tmp_path: Path) -> None:
        original = Attending(batch_first=batch_first).eval()
        loaded = load_onnx(exported(original, tmp_path / "net.onnx"), size=SIZE).eval()
        assert_close(loaded(images()), original(images()))
        for method in (LastLayer(), FullFineTune()):
            compile(adapt(loaded, method), tmp_path / method.name, batch=2, size=SIZE)

    def test_attention_and_mlp_with_norms_behind_them_are_a_block(self, tmp_path: Path) -> None:
        encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        original = Encoding(nn.TransformerEncoder(encoder, 3, enable_nested_tensor=False)).eval()
        loaded = load_onnx(exported(original, tmp_path / "net.onnx"), size=SIZE).eval()
        assert_close(loaded(images()), original(images()))
        assert [block.kind for block in anatomy(loaded).blocks] == ["attention"] * 3

    def test_a_softmax_of_old_opsets_is_along_the_last_axis(self, tmp_path: Path) -> None:
        nodes = [node("Softmax", ["x"], ["d"], axis=1), *head("d")]
        with pytest.raises(PocketuneError, match=r"Softmax .* is not along the last axis"):
            load_onnx(written(tmp_path / "net.onnx", nodes, HEAD, opset=12), size=8)
        nodes = [node("Softmax", ["x"], ["d"], axis=3), *head("d")]
        loaded = load_onnx(written(tmp_path / "net.onnx", nodes, HEAD, opset=12), size=8)
        x = torch.randn(2, 3, 8, 8)
        expected = x.softmax(3).mean((2, 3)) @ torch.ones(3, 2)
        torch.testing.assert_close(loaded(x), expected, rtol=1e-4, atol=1e-4)


def test_a_layer_norm_of_old_opsets_can_be_trained_through(tmp_path: Path) -> None:
    """It is a mean, a difference, a square and so on, between two layers."""
    nodes = [
        node("Conv", ["x", "k"], ["c0"]),
        node("ReduceMean", ["c0"], ["m"], axes=[1]),
        node("Sub", ["c0", "m"], ["c"]),
        node("Pow", ["c", "two"], ["s"]),
        node("ReduceMean", ["s"], ["v"], axes=[1]),
        node("Sqrt", ["v"], ["r"]),
        node("Div", ["c", "r"], ["d"]),
        node("Sigmoid", ["d"], ["e"]),
        *head("e"),
    ]
    kernel = torch.randn(3, 3, 1, 1, generator=torch.Generator().manual_seed(1)).numpy()
    constants = {"k": kernel, "two": np.float32([2]), **HEAD}
    file = written(tmp_path / "net.onnx", nodes, constants, opset=14)
    compile(adapt(load_onnx(file, size=8), FullFineTune()), tmp_path / "kit", batch=2, size=8)
