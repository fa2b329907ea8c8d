"""Facts stay with a network and its copies, and images are normalized as they say."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from pocketune import LastLayer, adapt, create_network
from pocketune.errors import PocketuneError
from pocketune.networks import About, Normalization, about, normalize, set_about
from pocketune.networks.about import timm_normalization
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
    with pytest.raises(TypeError, match="color"):
        set_about(nn.Linear(2, 3), color="red")


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


IMAGES = torch.randint(0, 256, (2, 5, 4, 3), dtype=torch.uint8)


def test_pixels_become_channels_with_mean_and_deviation():
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
    expected = (IMAGES.permute(0, 3, 1, 2) / 255 - torch.tensor(mean).view(3, 1, 1)) / (
        torch.tensor(std).view(3, 1, 1)
    )
    found = Normalization(mean, std)(IMAGES)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_each_network_by_its_own_and_those_of_others_by_imagenet_s():
    network = create_network("mobilenet_v2", width=0.1, normalization=Normalization.HALF)
    assert torch.equal(normalize(network, IMAGES), Normalization.HALF(IMAGES))
    assert torch.equal(normalize(nn.Identity(), IMAGES), Normalization.IMAGENET(IMAGES))


def test_arrays_are_taken_as_well():
    other = nn.Identity()
    assert torch.equal(normalize(other, IMAGES.numpy()), normalize(other, IMAGES))


def test_networks_of_timm_declare_theirs_themselves() -> None:
    network = nn.Linear(2, 3)
    network.pretrained_cfg = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}  # type: ignore[assignment]
    assert about(network).normalization == Normalization.HALF
    set_about(network, frozen_bits=8)
    assert about(network) == About(normalization=Normalization.HALF, frozen_bits=8)
    set_about(network, normalization=Normalization.UNIT)
    assert about(network).normalization == Normalization.UNIT
    network.pretrained_cfg = {"mean": (0.5, 0.5, 0.5)}  # type: ignore[assignment]
    assert timm_normalization(network) is None
    network.pretrained_cfg = {"mean": None, "std": None}  # type: ignore[assignment]
    assert timm_normalization(network) is None
    network.pretrained_cfg = {"mean": (0.5,), "std": (0.5,)}  # type: ignore[assignment]
    assert timm_normalization(network) == Normalization.HALF


@pytest.mark.parametrize(
    ("mean", "std"),
    [
        ((0.5, 0.5), (1, 1, 1)),
        (0.5, (1, 1, 1)),
        (("a",) * 3, (1, 1, 1)),
        ((float("nan"), 0, 0), (1, 1, 1)),
        ((0, float("inf"), 0), (1, 1, 1)),
    ],
)
def test_a_normalization_has_three_means(mean: Any, std: Any) -> None:
    with pytest.raises(
        PocketuneError, match=r"mean=.* must be three numbers, for red, green and b"
    ):
        Normalization(mean, std)


@pytest.mark.parametrize("wrong", [0, -0.2, float("nan"), float("inf")])
def test_a_normalization_divides_by_positive_numbers(wrong: float) -> None:
    with pytest.raises(PocketuneError, match=r"std=.* must be three positive numbers, for red"):
        Normalization(std=(1, wrong, 1))


def test_the_name_of_a_normalization_is_none() -> None:
    with pytest.raises(PocketuneError, match="'half' is not a Normalization; give "):
        set_about(nn.Linear(2, 3), normalization="half")
