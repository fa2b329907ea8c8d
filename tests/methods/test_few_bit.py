"""Few-bit backward beside methods that the gradient of smooth activations passes through."""

import pytest
import torch
from torch import nn

from pocketune.accounting import account
from pocketune.errors import PocketuneError
from pocketune.layers import FewBitGELU, MaskedReLU6, SignedHardswish
from pocketune.layers.few_bit import FewBitActivation
from pocketune.methods import (
    BiasAndLast,
    FewBitBackward,
    FullFineTune,
    LastLayer,
    LoRA,
    Method,
    SignedBackward,
    Sum,
    TopBlocks,
    adapt,
    method_from_dict,
    method_to_dict,
)
from pocketune.weights import create_network

from ..compiler.token_networks import SIZE, transformer


def replaced(network: nn.Module, kind: type[nn.Module] = FewBitActivation) -> set[str]:
    return {name for name, module in network.named_modules() if isinstance(module, kind)}


@pytest.mark.parametrize("method", [FullFineTune(), BiasAndLast(), LoRA(2)], ids=str)
@pytest.mark.parametrize("turn", [1, -1])
def test_every_activation_where_all_blocks_are_trained(method: Method, turn: int) -> None:
    adapted = adapt(transformer(), Sum((method, FewBitBackward(2))[::turn]))
    assert replaced(adapted, FewBitGELU) == {"blocks.0.mlp.1", "blocks.1.mlp.1"}
    assert all(m.bits == 2 for m in adapted.modules() if isinstance(m, FewBitGELU))


def test_from_the_first_trained_block_on() -> None:
    adapted = adapt(transformer(), TopBlocks(1) + FewBitBackward())
    assert replaced(adapted) == {"blocks.1.mlp.1"}


def test_rectifiers_keep_one_bit_and_stay_exact() -> None:
    network = create_network("mobilenet_v2", classes=3, width=0.25)
    adapted = adapt(network, TopBlocks(1) + FewBitBackward())
    assert replaced(adapted, MaskedReLU6)
    assert not replaced(adapted)


@pytest.mark.parametrize("turn", [1, -1])
def test_signed_activations_come_first(turn: int) -> None:
    network = create_network("mobilenet_v3_small", classes=3, width=0.25)
    both = (SignedBackward(), FewBitBackward())[::turn]
    adapted = adapt(network, Sum((TopBlocks(1), *both)))
    alone = adapt(network, TopBlocks(1) + SignedBackward())
    assert replaced(adapted, SignedHardswish) == replaced(alone, SignedHardswish) != set()


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_the_accounted_bytes_are_the_bits(bits: int) -> None:
    """Beside trained linear layers, only the GELUs keep something else than before."""
    batch, elements = 8, 2 * 17 * 24  # of two GELUs: tokens and channels
    exact, few = (
        account(adapt(transformer(), method), batch=batch, size=SIZE)
        for method in (FullFineTune(), FullFineTune() + FewBitBackward(bits))
    )
    assert exact.kept_bytes - few.kept_bytes == batch * elements * (32 - bits) // 8


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
