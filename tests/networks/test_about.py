"""The declared facts of a network."""

import copy

import pytest
from torch import nn

from pocketune import LastLayer, adapt, create_network
from pocketune.networks import About, Normalization, about, set_about
from pocketune.networks.copies import copy_network


def test_nothing_is_declared_of_a_foreign_network() -> None:
    assert about(nn.Linear(2, 3)) == About()
    assert about(nn.Linear(2, 3)).normalization == Normalization.IMAGENET


def test_setting_one_fact_leaves_the_others() -> None:
    network = nn.Linear(2, 3)
    set_about(network, normalization=Normalization.HALF)
    set_about(network, frozen_bits=8)
    assert about(network) == About(normalization=Normalization.HALF, frozen_bits=8)


def test_a_fact_that_there_is_not_is_an_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        set_about(nn.Linear(2, 3), colour="red")


def test_an_attribute_of_that_name_on_a_foreign_network_is_no_declaration() -> None:
    network = nn.Linear(2, 3)
    network.about = "mine"  # type: ignore[assignment]
    assert about(network) == About()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, copy_network])
def test_copies_have_the_facts_and_do_not_share_later_ones(copied) -> None:
    network = nn.Linear(2, 3)
    set_about(network, frozen_bits=8)
    other = copied(network)
    set_about(other, frozen_bits=32)
    assert (about(network).frozen_bits, about(other).frozen_bits) == (8, 32)


def test_adapting_adds_to_the_facts_of_the_network() -> None:
    network = create_network("mcunet_5fps", classes=3)
    adapted = adapt(network, LastLayer())
    assert about(network).method is None
    assert about(adapted) == About(config=about(network).config, method=LastLayer(), frozen_bits=32)
