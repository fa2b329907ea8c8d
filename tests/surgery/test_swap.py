"""Putting another module in a module's place."""

import pytest
from torch import nn

from pocketune.surgery import swap


def test_swaps_at_any_depth_and_leaves_the_rest() -> None:
    inner = nn.Sequential(nn.ReLU(), nn.Linear(2, 2))
    network = nn.Sequential(nn.Linear(2, 2), inner)
    first, last = network[0], inner[1]
    swap(network, {"1.0": lambda old: nn.Sequential(old, nn.Identity())})
    assert network[0] is first
    assert network[1] is inner
    assert inner[1] is last
    assert isinstance(inner[0][0], nn.ReLU)


@pytest.mark.parametrize("training", [True, False])
def test_new_module_is_in_the_mode_of_the_old(training: bool) -> None:
    network = nn.Sequential(nn.ReLU().train(training))
    swap(network, {"0": lambda _: nn.ReLU6()})
    assert network[0].training is training


def test_unknown_module_is_an_error_and_nothing_is_added() -> None:
    network = nn.Sequential(nn.ReLU())
    with pytest.raises(AttributeError):
        swap(network, {"nothing": lambda old: old})
    assert len(network) == 1
