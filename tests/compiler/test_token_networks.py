"""Transformers and other younger networks, adapted, accounted for and compiled.

`compile` itself compares five steps with PyTorch.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pocketune.accounting import account
from pocketune.compiler import Calibration, compile
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.errors import PocketuneError
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
    masked_transformer,
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


def test_a_frozen_transformer_in_integers(tmp_path: Path) -> None:
    adapted = adapt(transformer(), LastLayer(), frozen_bits=8)
    images = np.random.default_rng(0).integers(0, 255, (8, SIZE, SIZE, 3), dtype=np.uint8)
    calibration = Calibration(images)
    kit = compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE, calibration=calibration)
    assert kit.manifest.quantization is not None
    assert kit.manifest.quantization.activations == 8


@pytest.mark.parametrize("place", [0, 1, 3])
def test_dropout_in_a_frozen_block_without_convolutions_is_refused(
    place: int, tmp_path: Path
) -> None:
    network = adapt(transformer(), TopBlocks(blocks=1))
    network.blocks[0].mlp.insert(place, nn.Dropout(0.5))
    with pytest.raises(PocketuneError, match=rf"dropout in a frozen .*blocks\.0\.mlp\.{place};"):
        compile(network, tmp_path / "kit", batch=BATCH, size=SIZE)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", [LastLayer(), BiasAndLast()], ids=lambda m: m.name)
def test_masks_of_minus_infinity(method: Method, tmp_path: Path) -> None:
    adapted = adapt(masked_transformer(), method, frozen_bits=8)
    compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)


@pytest.mark.parametrize("method", [BiasAndLast(), FullFineTune()], ids=lambda m: m.name)
def test_attention_of_pytorch_and_in_shifted_windows(method: Method, tmp_path: Path) -> None:
    adapted = adapt(mixed_transformer(), method)
    assert account(adapted, batch=BATCH, size=SIZE).kept_bytes > 0
    compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)


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
