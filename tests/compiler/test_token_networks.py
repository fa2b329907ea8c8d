"""Transformers and other younger networks, adapted, accounted for and compiled.

`compile` itself compares five steps with PyTorch.
"""

from pathlib import Path

import numpy as np
import pytest

from pocketune.accounting import account
from pocketune.compiler import Calibration, compile
from pocketune.methods import (
    BiasAndLast,
    FullFineTune,
    LastLayer,
    LoRA,
    LowRankBackward,
    Method,
    adapt,
)

from ..networks.tiny import tiny
from .networks import BATCH
from .token_networks import SIZE, mixed_transformer, transformer


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


@pytest.mark.parametrize("method", [BiasAndLast(), FullFineTune()], ids=lambda m: m.name)
def test_attention_of_pytorch_and_in_shifted_windows(method: Method, tmp_path: Path) -> None:
    adapted = adapt(mixed_transformer(), method)
    assert account(adapted, batch=BATCH, size=SIZE).kept_bytes > 0
    compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("vit_tiny", LoRA(2) + LowRankBackward(2, 1)),
        ("convnext_atto", FullFineTune()),
        ("efficientnet_v2_s", FullFineTune()),
        ("mobilenet_v4_small", BiasAndLast()),
    ],
    ids=str,
)
def test_younger_networks(name: str, method: Method, tmp_path: Path) -> None:
    adapted = adapt(tiny(name), method, frozen_bits=8)
    assert account(adapted, batch=BATCH, size=SIZE).kept_bytes > 0
    compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)
