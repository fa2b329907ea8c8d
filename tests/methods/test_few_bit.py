"""Few-bit backward beside methods that the gradient of smooth activations passes through."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.accounting import account
from pocketune.errors import PocketuneError
from pocketune.layers import FewBitGELU, FewBitLayerNorm, MaskedReLU6, SignedHardswish
from pocketune.layers.few_bit import FewBitActivation
from pocketune.methods import (
    BiasAndLast,
    FewBitBackward,
    FullFineTune,
    LastLayer,
    LoRA,
    Method,
    NormAndLast,
    SignedBackward,
    Sum,
    TopBlocks,
    adapt,
    method_from_dict,
    method_to_dict,
)
from pocketune.surgery import swap
from pocketune.weights import create_network

from ..compiler.token_networks import SIZE, transformer
from ..networks.tiny import tiny
from .names import layers_of


@pytest.mark.parametrize("method", [FullFineTune(), BiasAndLast(), LoRA(2)], ids=str)
@pytest.mark.parametrize("turn", [1, -1])
def test_every_activation_where_all_blocks_are_trained(method: Method, turn: int) -> None:
    adapted = adapt(transformer(), Sum((method, FewBitBackward(2))[::turn]))
    assert layers_of(adapted, FewBitGELU) == {"blocks.0.mlp.1", "blocks.1.mlp.1"}
    assert all(m.bits == 2 for m in adapted.modules() if isinstance(m, FewBitGELU))


def test_from_the_first_trained_block_on() -> None:
    adapted = adapt(transformer(), TopBlocks(1) + FewBitBackward())
    assert layers_of(adapted, FewBitActivation) == {"blocks.1.mlp.1"}


class GELU(nn.Module):
    """As timm's."""

    __module__ = "timm.layers.activations"

    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(x)


def test_timms_own_activations() -> None:
    network = transformer()
    swap(network, {"blocks.0.mlp.1": lambda _: GELU()})
    adapted = adapt(network, FullFineTune() + FewBitBackward(2))
    assert layers_of(adapted, FewBitGELU) == {"blocks.0.mlp.1", "blocks.1.mlp.1"}


def test_rectifiers_keep_one_bit_and_stay_exact() -> None:
    network = create_network("mobilenet_v2", classes=3, width=0.25)
    adapted = adapt(network, TopBlocks(1) + FewBitBackward())
    assert layers_of(adapted, MaskedReLU6)
    assert not layers_of(adapted, FewBitActivation)


@pytest.mark.parametrize("turn", [1, -1])
def test_signed_activations_come_first(turn: int) -> None:
    network = create_network("mobilenet_v3_small", classes=3, width=0.25)
    both = (SignedBackward(), FewBitBackward())[::turn]
    adapted = adapt(network, Sum((TopBlocks(1), *both)))
    alone = adapt(network, TopBlocks(1) + SignedBackward())
    assert layers_of(adapted, SignedHardswish) == layers_of(alone, SignedHardswish) != set()


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_the_accounted_bytes_are_the_bits(bits: int) -> None:
    """Beside trained linear layers, only the GELUs keep something else than before."""
    batch, elements = 8, 2 * 17 * 24  # of two GELUs: tokens and channels
    exact, few = (
        account(adapt(transformer(), method), batch=batch, size=SIZE)
        for method in (FullFineTune(), FullFineTune() + FewBitBackward(bits))
    )
    assert exact.kept_bytes - few.kept_bytes == batch * elements * (32 - bits) // 8


@pytest.mark.parametrize(
    ("method", "deviations"), [(BiasAndLast(), 5), (NormAndLast(), 4)], ids=str
)
def test_layer_norms_keep_eight_bits_where_no_matrix_is_trained(
    method: Method, deviations: int
) -> None:
    """Where only norms are trained, the gradient ends at the first, which needs no deviation."""
    exact, few = (adapt(transformer(), m) for m in (method, method + FewBitBackward(8)))
    names = {f"blocks.{i}.norm{j}" for i in (0, 1) for j in (1, 2)} | {"norm"}
    assert layers_of(few, FewBitLayerNorm) == names
    batch, tokens, width = 8, 17, 12
    elements = tokens * 5 * width + tokens * 2 * 2 * width  # of norms and GELUs
    statistics = 4 * tokens * (2 * 5 - deviations)
    kept = [account(network, batch=batch, size=SIZE).kept_bytes for network in (exact, few)]
    assert kept[0] - kept[1] == batch * (3 * elements + statistics)


@pytest.mark.parametrize(
    "method", [FullFineTune(), LoRA(2), TopBlocks(1), TopBlocks(1) + BiasAndLast()], ids=str
)
def test_layer_norms_are_exact_beside_trained_matrices(method: Method) -> None:
    assert not layers_of(adapt(transformer(), method + FewBitBackward(8)), FewBitLayerNorm)


def test_layer_norms_over_the_channels_of_maps() -> None:
    adapted = adapt(tiny("convnext_atto"), BiasAndLast() + FewBitBackward())
    norms = {n: m for n, m in adapted.named_modules() if isinstance(m, FewBitLayerNorm)}
    assert {name for name, norm in norms.items() if not norm.channels_first} == {"head.norm"}
    assert "stages.0.blocks.0.norm" in norms


def test_an_adapted_network_predicts_as_before() -> None:
    network, images = transformer().eval(), torch.randn(2, 3, SIZE, SIZE)
    adapted = adapt(network, FullFineTune() + FewBitBackward(1)).eval()
    torch.testing.assert_close(adapted(images), network(images))


def test_gradients_come_nearer_with_every_bit() -> None:
    images = torch.randn(8, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))

    def gradients(method: Method) -> torch.Tensor:
        adapted = adapt(transformer(), method)
        adapted(images).square().mean().backward()
        return torch.cat([p.grad.flatten() for p in adapted.parameters() if p.grad is not None])

    exact = gradients(FullFineTune())
    errors = [
        float((gradients(FullFineTune() + FewBitBackward(bits)) - exact).norm() / exact.norm())
        for bits in (1, 2, 4, 8)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[2] < 0.1
    assert errors[3] < 0.02


def test_it_has_a_description() -> None:
    method = TopBlocks(1) + FewBitBackward(bits=2)
    assert method_from_dict(method_to_dict(method)) == method


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (FewBitBackward(), "trains nothing by itself"),
        (LastLayer() + FewBitBackward(), r"FewBitBackward\(\) finds no GELU"),
    ],
    ids=["alone", "beside the classifier"],
)
def test_nothing_to_do_is_refused(method: Method, message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        adapt(transformer(), method)


def test_bits_are_checked() -> None:
    with pytest.raises(PocketuneError, match="bits=3 must be 1, 2, 4 or 8"):
        FewBitBackward(bits=3)


class LayerNorm(nn.LayerNorm):
    """Over the channels of maps, under the name of one over the last dimension."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(4, 4, 3, padding=1), LayerNorm(4), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.act(self.norm(self.conv(x)))
        return result


def test_layer_norms_of_users_stay_as_they_are() -> None:
    layers = nn.Conv2d(3, 4, 3), Residual(), Residual(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    network = nn.Sequential(*layers, nn.Linear(4, 3))
    adapted = adapt(network, NormAndLast() + FewBitBackward())
    images = torch.rand(2, 3, 6, 6)
    assert not layers_of(adapted, FewBitLayerNorm)
    torch.testing.assert_close(adapted.eval()(images), network.eval()(images))
