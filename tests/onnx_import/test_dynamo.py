"""Files of `torch.onnx.export(dynamo=True)`, whose operators follow the opset."""

from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

from pocketune.compiler import compile
from pocketune.errors import PocketuneError
from pocketune.methods import FullFineTune, adapt
from pocketune.networks import anatomy
from pocketune.onnx_import import load_onnx
from pocketune.weights import create_network

from ..networks.shallow import shallow
from ..networks.tiny import tiny
from .files import SIZE, dynamo_exported

pytest.importorskip("onnxscript", reason="the exporter needs onnxscript")


class Tokens(nn.Module):
    """A group norm and the attention of PyTorch's transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 16, 8, 8), nn.GroupNorm(4, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 5)
        for tensor in (self.norm.weight, self.norm.bias):
            nn.init.normal_(tensor)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.norm(self.patches(x)).flatten(2).transpose(1, 2)
        scores: torch.Tensor = self.head(self.encoder(tokens).mean(1))
        return scores


def images(count: int = 3) -> torch.Tensor:
    return torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(2))


def assert_same(loaded: nn.Module, original: nn.Module) -> None:
    with torch.no_grad():
        found, expected = loaded.eval()(images()), original.eval()(images())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("opset", [20, 21, 23])
def test_tokens_of_every_opset(opset: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    original = Tokens()
    file = dynamo_exported(original, tmp_path / "net.onnx", opset=opset)
    kinds = {each.op_type for each in onnx.load(file).graph.node}
    assert ("GroupNormalization" in kinds, "Attention" in kinds) == (opset > 20, opset > 22)
    loaded = load_onnx(file, size=SIZE)
    assert_same(loaded, original)
    if opset == 23:
        compile(adapt(loaded, FullFineTune()), tmp_path / "kit", batch=2, size=SIZE)


class Pooled(nn.Module):
    """A pool of a map whose channels were moved, which the exporter writes as indices."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 16, 8, 8), nn.LayerNorm(16)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        channels_last = self.norm(self.patches(x).permute(0, 2, 3, 1))
        scores: torch.Tensor = self.head(self.pool(channels_last.permute(0, 3, 1, 2)).flatten(1))
        return scores


def test_a_pool_of_a_permuted_map(tmp_path: Path) -> None:
    torch.manual_seed(0)
    file = dynamo_exported(original := Pooled(), tmp_path / "net.onnx", opset=20)
    assert any("as_strided" in node.name for node in onnx.load(file).graph.node)
    loaded = load_onnx(file, size=SIZE)
    assert_same(loaded, original)
    compile(adapt(loaded, FullFineTune()), tmp_path / "kit", batch=2, size=SIZE)


class Moved(nn.Module):
    """Parts that are written, sums of windows, products by a table, places along two axes."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 16, 8, 8), nn.Linear(16, 5)
        self.table = nn.Parameter(torch.randn(4, 16))
        self.places = torch.tensor([0, 2, 3]), torch.tensor([1, 1, 0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = self.patches(x)
        maps[:, :, 1:] = maps[:, :, 1:] * 2
        maps[:, :8] += 1
        windows = nn.functional.unfold(maps, 2, stride=2)
        maps = nn.functional.fold(windows.sigmoid(), maps.shape[2:], 2, stride=2)
        maps = maps + torch.einsum("nchw,hc->nwh", maps, self.table).unsqueeze(1)
        scores: torch.Tensor = self.head(maps[:, :, self.places[0], self.places[1]].mean(-1))
        return scores


def test_parts_windows_tables_and_places(tmp_path: Path) -> None:
    torch.manual_seed(0)
    file = dynamo_exported(original := Moved(), tmp_path / "net.onnx", opset=20)
    kinds = {each.op_type for each in onnx.load(file).graph.node}
    assert kinds >= {"ScatterND", "Col2Im", "Einsum", "GatherND"}
    loaded = load_onnx(file, size=SIZE)
    assert_same(loaded, original)
    compile(adapt(loaded, FullFineTune()), tmp_path / "kit", batch=2, size=SIZE)


def test_a_transformer(tmp_path: Path) -> None:
    original = tiny("vit_tiny")
    loaded = load_onnx(dynamo_exported(original, tmp_path / "net.onnx", opset=23), size=SIZE)
    assert_same(loaded, original)
    assert any(block.kind == "attention" for block in anatomy(loaded).blocks)


def test_a_convolutional_network(tmp_path: Path) -> None:
    torch.manual_seed(0)
    original = shallow(create_network("mobilenet_v2", width=0.1, classes=5))
    loaded = load_onnx(dynamo_exported(original, tmp_path / "net.onnx", opset=18), size=SIZE)
    assert_same(loaded, original)
    kinds = [block.kind for block in anatomy(loaded).blocks]
    assert kinds == [block.kind for block in anatomy(original).blocks]


@pytest.mark.parametrize("images", [None, 1])
def test_a_fixed_batch_is_named_with_the_remedy(images: int | None, tmp_path: Path) -> None:
    """The exporter writes the number of a single image into shapes, even if it is dynamic."""
    file = dynamo_exported(Tokens(), tmp_path / "net.onnx", opset=18, images=images)
    with pytest.raises(PocketuneError, match=r"a batch of 1 inside; .* dynamic_shapes=.*dynamic_a"):
        load_onnx(file, size=SIZE)
