"""Transformers and other younger networks, adapted, accounted for and compiled.

`compile` itself compares five steps with PyTorch.
"""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.accounting import account
from pocketune.compiler import Calibration, compile
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.use.export import export
from pocketune.methods import (
    BiasAndLast,
    FewBitBackward,
    FullFineTune,
    LastLayer,
    LoRA,
    LowRankBackward,
    Method,
    NormAndLast,
    TopBlocks,
    adapt,
)

from ..networks.tiny import tiny
from .networks import BATCH
from .token_networks import (
    SIZE,
    Distances,
    Mixer,
    Unused,
    masked_transformer,
    merged_transformer,
    mixed_transformer,
    transformer,
)


@pytest.mark.parametrize(
    "method", [LastLayer(), BiasAndLast(), LoRA(2), FullFineTune()], ids=lambda m: m.name
)
def test_a_vision_transformer(method: Method, tmp_path: Path) -> None:
    adapted = adapt(transformer(), method, frozen_bits=8)
    assert account(adapted, batch=BATCH, size=SIZE).kept_bytes > 0
    kit = compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)
    assert kit.manifest.task.head == ("head.weight", "head.bias")


@pytest.mark.parametrize("method", [LastLayer(), LoRA(2)], ids=lambda m: m.name)
def test_an_exported_transformer_in_8_bits_in_a_session_without_options(
    method: Method, tmp_path: Path
) -> None:
    """Which would round what linear layers read, if the file dequantized their weights."""
    adapted = adapt(transformer(), method, frozen_bits=8)
    kit = compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)
    file = export(kit.path, tmp_path / "model.onnx")
    whole = [t for t in onnx.load(file).graph.initializer if t.data_type == onnx.TensorProto.INT8]
    assert len(whole) == 7  # those of fewer elements stay floats
    images = np.random.default_rng(0).integers(0, 255, (5, SIZE, SIZE, 3), dtype=np.uint8)
    (found,) = ort.InferenceSession(file).run(None, {"images": images})
    expected = OnnxEngine(kit, kit.state()).predict(images)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", [LastLayer(), FullFineTune(), LoRA(2)], ids=lambda m: m.name)
def test_images_behind_another_dimension(method: Method, tmp_path: Path) -> None:
    compile(adapt(merged_transformer(), method), tmp_path / "kit", batch=BATCH, size=SIZE)


class PixelsFirst(nn.Module):
    """The pixels of a map as tokens (H * W, N, C)."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 8, 8, 8), nn.LayerNorm(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).permute(2, 3, 0, 1).flatten(0, 1)
        scores: Tensor = self.head(self.norm(tokens).amax(0))
        return scores


def test_pixels_before_images(tmp_path: Path) -> None:
    compile(adapt(PixelsFirst(), FullFineTune()), tmp_path / "kit", batch=BATCH, size=SIZE)


@pytest.mark.parametrize("method", [LastLayer(), BiasAndLast()], ids=lambda m: m.name)
@pytest.mark.parametrize("network", [transformer, merged_transformer, mixed_transformer])
def test_a_batch_of_one_image(
    network: Callable[[], nn.Module], method: Method, tmp_path: Path
) -> None:
    """PyTorch copies other tensors, and multiplies with other operators, than with several."""
    kit = compile(adapt(network(), method), tmp_path / "kit", batch=1, size=SIZE)
    assert (kit.manifest.features is None) == isinstance(method, BiasAndLast)


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(12), nn.BatchNorm2d(12).eval()], ids=["", "fixed"])
def test_a_norm_before_the_tokens_of_a_single_image(norm: nn.Module, tmp_path: Path) -> None:
    network = transformer()
    network.patch_embed = nn.Sequential(network.patch_embed, norm)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the batch
        compile(adapt(network, FullFineTune()), tmp_path / "kit", batch=1, size=SIZE)


def test_a_frozen_transformer_in_integers(tmp_path: Path) -> None:
    adapted = adapt(transformer(), LastLayer(), frozen_bits=8)
    images = np.random.default_rng(0).integers(0, 255, (8, SIZE, SIZE, 3), dtype=np.uint8)
    calibration = Calibration(images)
    kit = compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE, calibration=calibration)
    assert kit.manifest.quantization is not None
    assert kit.manifest.quantization.activations == 8


@pytest.mark.parametrize("place", [0, 1, 3])
def test_dropout_in_a_frozen_block_without_convolutions_drops_nothing(
    place: int, tmp_path: Path
) -> None:
    network = adapt(transformer(), TopBlocks(blocks=1))
    network.blocks[0].mlp.insert(place, nn.Dropout(0.5))
    kit = compile(network, tmp_path / "kit", batch=BATCH, size=SIZE)
    assert not kit.manifest.masks


class Attends(nn.Module):
    """Tokens (N, T, 16) -> the same; drops weights in PyTorch's function."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.attn_drop = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        rate = self.attn_drop.p if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=rate)
        return x + y.transpose(1, 2).flatten(2)


class Encoder(nn.Module):
    """Images (N, 3, 32, 32) -> scores (N, 4)."""

    def __init__(self, blocks: nn.Module) -> None:
        super().__init__()
        self.patches, self.blocks, self.head = nn.Conv2d(3, 16, 8, 8), blocks, nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).mT
        scores: Tensor = self.head(self.blocks(tokens).mean(1))
        return scores


@pytest.mark.parametrize(
    ("method", "blocks"),
    [(LastLayer(), ()), (TopBlocks(1), (1,)), (FullFineTune(), (0, 1))],
    ids=str,
)
@pytest.mark.parametrize("kind", ["layers of PyTorch", "function of PyTorch"])
def test_attention_that_drops(
    method: Method, blocks: tuple[int, ...], kind: str, tmp_path: Path
) -> None:
    """With PyTorch's default rates; what is frozen drops nothing."""
    if kind == "layers of PyTorch":
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        encoder: nn.Module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        paths = [f"blocks.layers.{block}.self_attn" for block in blocks]
    else:
        encoder = nn.Sequential(Attends(), Attends())
        paths = [f"blocks.{block}" for block in blocks]
    kit = compile(adapt(Encoder(encoder), method), tmp_path / "kit", batch=2, size=32)
    drawn = [spec for spec in kit.manifest.masks if "supplied" in spec.name]
    assert [spec.name for spec in drawn] == [f"{p}.supplied_dropouts.calls.0.mask" for p in paths]
    assert all(spec.shape == (2, 2, 16, 16) for spec in drawn)


class Places(nn.Module):
    """Adds an embedding of each token's place."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.table(torch.arange(x.shape[1]))
        return y


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("method", [LastLayer(), FullFineTune()], ids=lambda m: m.name)
def test_embeddings_of_places(method: Method, batch: int, tmp_path: Path) -> None:
    network = Encoder(nn.Sequential(Places(), Attends()))
    kit = compile(adapt(network, method), tmp_path / "kit", batch=batch, size=32)
    assert ("blocks.0.table.weight" in kit.state()) == isinstance(method, FullFineTune)


class Masked(nn.MultiheadAttention):
    """Of tokens to those before them, of which the last never counts."""

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.arange(x.shape[1])
        last = (tokens == tokens[-1]).expand(len(x), -1)
        y: Tensor = super().forward(
            x, x, x, attn_mask=tokens > tokens[:, None], key_padding_mask=last, need_weights=False
        )[0]
        return x + y


@pytest.mark.parametrize("method", [LastLayer(), FullFineTune()], ids=lambda m: m.name)
def test_attention_of_pytorch_with_masks(method: Method, tmp_path: Path) -> None:
    blocks = nn.Sequential(*(Masked(16, 2, 0.1, batch_first=True) for _ in range(2)))
    kit = compile(adapt(Encoder(blocks), method), tmp_path / "kit", batch=2, size=32)
    assert bool(kit.manifest.masks) == isinstance(method, FullFineTune)


@pytest.mark.parametrize("method", [LastLayer(), BiasAndLast()], ids=lambda m: m.name)
def test_masks_of_minus_infinity(method: Method, tmp_path: Path) -> None:
    adapted = adapt(masked_transformer(), method, frozen_bits=8)
    compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)


@pytest.mark.parametrize("method", [BiasAndLast(), FullFineTune()], ids=lambda m: m.name)
def test_attention_of_pytorch_and_in_shifted_windows(method: Method, tmp_path: Path) -> None:
    adapted = adapt(mixed_transformer(), method)
    assert account(adapted, batch=BATCH, size=SIZE).kept_bytes > 0
    compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)


@pytest.mark.parametrize("method", [LastLayer(), TopBlocks(1), BiasAndLast()], ids=str)
def test_what_networks_of_hugging_face_have(method: Method, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = Unused()
    network.norm.bias = None  # which all but TopBlocks would train
    compile(adapt(network, method), tmp_path / "kit", batch=BATCH, size=SIZE)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("vit_tiny", LoRA(2) + LowRankBackward(2, 1)),
        ("vit_tiny", FullFineTune() + FewBitBackward(bits=2)),
        ("convnext_atto", FullFineTune()),
        ("convnext_atto", NormAndLast() + FewBitBackward()),
        ("mobilenet_v4_small", BiasAndLast() + FewBitBackward()),
        ("efficientnet_v2_s", FullFineTune() + FewBitBackward(bits=1)),
    ],
    ids=str,
)
def test_younger_networks(name: str, method: Method, tmp_path: Path) -> None:
    adapted = adapt(tiny(name), method, frozen_bits=8)
    assert account(adapted, batch=BATCH, size=SIZE).kept_bytes > 0
    compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)


@pytest.mark.parametrize("method", [LastLayer(), FullFineTune()], ids=lambda m: m.name)
@pytest.mark.parametrize("network", [Mixer, Distances])
def test_what_is_the_same_for_every_image_leaves_their_number_open(
    network: type[nn.Module], method: Method, tmp_path: Path
) -> None:
    """A kernel that is repeated for a product in batches, and encodings of positions."""
    torch.manual_seed(0)
    kit = compile(adapt(network(), method), tmp_path / "kit", batch=BATCH, size=SIZE)
    engine = OnnxEngine(kit, kit.state())
    images = np.random.default_rng(0).integers(0, 255, (5, SIZE, SIZE, 3), dtype=np.uint8)
    alone = np.concatenate([engine.predict(images[i : i + 1]) for i in range(5)])
    np.testing.assert_allclose(engine.predict(images), alone, rtol=1e-5, atol=1e-6)
