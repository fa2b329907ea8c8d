"""Signed activations for other methods: where the gradient passes, and nowhere else."""

import pytest
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import SignedReLU, SignedReLU6
from pocketune.methods import (
    BiasAndLast,
    LastLayer,
    Method,
    MobileTL,
    SignedBackward,
    Sum,
    TopBlocks,
    adapt,
    method_from_dict,
    method_to_dict,
)
from pocketune.weights import create_network


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return create_network("mcunet_5fps", classes=3)


def activations(network: nn.Module, method: Method) -> dict[str, type[nn.Module]]:
    adapted = adapt(network, method)
    names = [name for name, module in network.named_modules() if isinstance(module, nn.ReLU6)]
    return {name: type(adapted.get_submodule(name)) for name in names}


def signed(network: nn.Module, method: Method) -> set[str]:
    return {name for name, kind in activations(network, method).items() if kind is SignedReLU6}


def test_from_the_first_trained_block_on(network):
    found = signed(network, TopBlocks(blocks=2) + SignedBackward())
    assert found == signed(network, MobileTL(blocks=2))
    assert len(found) == 4


def test_the_order_of_the_sum_does_not_matter(network):
    first, second = TopBlocks(blocks=2), SignedBackward()
    assert signed(network, first + second) == signed(network, second + first)


def test_all_of_them_where_everything_is_trained(network):
    kinds = activations(network, BiasAndLast() + SignedBackward())
    assert set(kinds.values()) == {SignedReLU6}


def test_refused_where_the_gradient_passes_none(network):
    with pytest.raises(PocketuneError, match=r"SignedBackward\(\) finds no ReLU, ReLU6 or h-swish"):
        adapt(network, LastLayer() + SignedBackward())


@pytest.mark.parametrize("turn", [1, -1])
def test_what_another_method_replaces_exactly_becomes_signed(network, turn):
    exact = MobileTL(blocks=2, signed=False)
    both = Sum((exact, SignedBackward())[::turn])
    assert activations(network, both) == activations(network, MobileTL(blocks=2))


def test_without_hard_swish():
    network = create_network("mobilenet_v3_small", classes=3)
    exact = MobileTL(blocks=1, signed=False, hard_swish=False)
    adapted, alike = (
        adapt(network, method)
        for method in (exact + SignedBackward(), MobileTL(blocks=1, hard_swish=False))
    )
    kinds = [[type(module) for module in made.modules()] for made in (adapted, alike)]
    assert kinds[0] == kinds[1]
    assert SignedReLU in kinds[0]


def test_to_plain_values_and_back():
    method = TopBlocks(blocks=1) + SignedBackward()
    assert method_from_dict(method_to_dict(method)) == method


def test_by_itself_it_is_refused(network):
    with pytest.raises(PocketuneError, match="trains nothing by itself; add it to another"):
        adapt(network, SignedBackward())
