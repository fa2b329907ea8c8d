"""Signed activations for other methods: where the gradient passes, and nowhere else."""

import pytest
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import SignedReLU6
from pocketune.methods import (
    BiasAndLast,
    LastLayer,
    Method,
    MobileTL,
    SignedBackward,
    TopBlocks,
    adapt,
    method_from_dict,
    method_to_dict,
)
from pocketune.networks import create_network


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


def test_none_where_the_gradient_passes_none(network):
    assert signed(network, LastLayer() + SignedBackward()) == set()


def test_what_another_method_replaces_stays(network):
    both = MobileTL(blocks=2, signed=False) + SignedBackward()
    assert activations(network, both) == activations(network, MobileTL(blocks=2, signed=False))


def test_to_plain_values_and_back():
    method = TopBlocks(blocks=1) + SignedBackward()
    assert method_from_dict(method_to_dict(method)) == method


def test_by_itself_it_is_refused(network):
    with pytest.raises(PocketuneError, match="trains nothing by itself: add it to a method"):
        adapt(network, SignedBackward())
