"""LBP-WHT beside methods that train linear layers and 1x1 convolutions."""

from pathlib import Path

import pytest
import torch
from torch import nn

from pocketune.accounting import account
from pocketune.compiler import compile
from pocketune.errors import PocketuneError
from pocketune.layers import LowRankConv2d, LowRankLinear
from pocketune.methods import (
    BiasAndLast,
    FullFineTune,
    GradientFilter,
    LastLayer,
    LoRA,
    LowRankBackward,
    Method,
    TopBlocks,
    adapt,
    method_from_dict,
    method_to_dict,
)

from ..compiler.networks import BATCH, tiny
from ..compiler.token_networks import SIZE, transformer
from .names import layers_of

METHOD = LowRankBackward(order=4, rank=2)
"""On a grid of 4 x 4 tokens: 3 bases, and the class token."""


def replaced(network: nn.Module) -> set[str]:
    return layers_of(network, LowRankConv2d, LowRankLinear)


def linear_layers(block: int) -> set[str]:
    return {f"blocks.{block}.{name}" for name in ("attn.qkv", "attn.proj", "mlp.0", "mlp.2")}


EVERY = linear_layers(0) | linear_layers(1)


@pytest.mark.parametrize(
    ("method", "layers"),
    [
        (FullFineTune(), EVERY),
        (LoRA(2), {f"{name}.branch.{part}" for name in EVERY for part in ("down", "up")}),
        (LoRA(2, train_down=False), {f"{name}.branch.up" for name in EVERY}),
    ],
    ids=("full", "lora", "lora up"),
)
def test_trained_layers_are_replaced(method: Method, layers: set[str]) -> None:
    assert replaced(adapt(transformer(), method + METHOD)) == layers


def test_frozen_linear_layers_are_replaced_if_asked_for() -> None:
    method = BiasAndLast() + LowRankBackward(4, 2, frozen=True)
    assert replaced(adapt(transformer(), method)) == EVERY
    method = LoRA(2) + LowRankBackward(4, 2, frozen=True)
    assert replaced(adapt(transformer(), method)) > EVERY


def test_linear_layers_below_the_first_trained_block_are_left_alone() -> None:
    """No gradient passes them, and their weights may be stored in 8 bits."""
    method = TopBlocks(1)
    frozen = adapt(transformer(), method + LowRankBackward(4, 2, frozen=True))
    assert replaced(frozen) == replaced(adapt(transformer(), method + METHOD)) < EVERY


def test_pointwise_convolutions_are_replaced_but_for_those_of_another_method() -> None:
    network = tiny()
    trained = TopBlocks(1)
    assert replaced(adapt(network, trained + METHOD)) == {
        *("blocks.1.expand.0", "blocks.1.project.0"),
        *(f"blocks.1.excite.{name}" for name in ("fc1", "fc2")),
    }
    filtered = GradientFilter(layers=("blocks.1.expand.0",))
    assert "blocks.1.expand.0" not in replaced(adapt(network, trained + filtered + METHOD))


def test_a_step_keeps_and_computes_less() -> None:
    exact, low = (
        account(adapt(transformer(), method), batch=BATCH, size=SIZE)
        for method in (FullFineTune(), FullFineTune() + METHOD)
    )
    assert low.kept_bytes < 0.9 * exact.kept_bytes
    assert low.flops.forward < 1.1 * exact.flops.forward
    assert low.flops.backward < 0.8 * exact.flops.backward


@pytest.mark.parametrize(
    "method",
    [FullFineTune() + METHOD, BiasAndLast() + LowRankBackward(4, 2, frozen=True), LoRA(2) + METHOD],
    ids=["full", "bias", "lora"],
)
def test_a_compiled_step(method: Method, tmp_path: Path) -> None:
    compile(adapt(transformer(), method), tmp_path / "kit", batch=BATCH, size=SIZE)


def test_compiled_convolutions(tmp_path: Path) -> None:
    network = adapt(tiny(), FullFineTune() + LowRankBackward(8, 3))
    compile(network, tmp_path / "kit", batch=BATCH, size=16)


def test_it_has_a_description() -> None:
    method = LowRankBackward(4, 3, frozen=True)
    assert method_from_dict(method_to_dict(method)) == method


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (METHOD, "trains nothing by itself"),
        (LastLayer() + METHOD, "finds no trained linear layer or 1x1 convolution"),
    ],
    ids=["alone", "beside the classifier"],
)
def test_nothing_to_do_is_refused(method: Method, message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        adapt(transformer(), method)


def test_options_are_checked() -> None:
    with pytest.raises(PocketuneError, match="order=3 must be a power of two"):
        LowRankBackward(order=3)
    with pytest.raises(PocketuneError, match="frozen=1 must be True or False"):
        LowRankBackward(frozen=1)  # type: ignore[arg-type]


def test_an_adapted_network_predicts_as_before() -> None:
    network = transformer().eval()
    images = torch.randn(2, 3, SIZE, SIZE)
    adapted = adapt(network, FullFineTune() + METHOD).eval()
    torch.testing.assert_close(adapted(images), network(images))
