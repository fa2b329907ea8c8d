"""The description of a network: what it takes, what it refuses, and that it stays as it was."""

import copy
import json
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.networks import About, NetworkConfig, Normalization, about, set_about


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"classes": 3, "width": 0.35, "padding": "same", "feature_fusion": False},
        {"hidden": {"features.1": 22}},
        {"branches": {"features.2": {"inputs": 16, "outputs": 24}}},
        {"subnet": {"depths": [2, 2, 3, 4, 2], "first": "reduced"}},
    ],
    ids=str,
)
def test_json_and_back(options: dict[str, Any]) -> None:
    config = NetworkConfig("mobilenet_v2", **options)
    assert NetworkConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_what_is_empty_is_not_written() -> None:
    assert set(NetworkConfig("mine").to_dict()) == {
        "name",
        "classes",
        "width",
        "padding",
        "feature_fusion",
    }
    pruned = NetworkConfig("mine", hidden={"a": 3}).to_dict()
    assert "hidden" in pruned and "branches" not in pruned


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 0}, "classes=0 must be a whole number of at least 1"),
        ({"classes": 2.5}, "classes=2.5 must be"),
        ({"classes": True}, "classes=True must be"),
        ({"width": 0}, "width=0 must be a number above 0 and up to 10"),
        ({"width": 10.5}, "width=10.5 must be"),
        ({"width": float("nan")}, "width=nan must be"),
        ({"width": "1"}, "width='1' must be"),
        ({"padding": "valid"}, "padding='valid' must be one of symmetric, same"),
        ({"norm": "layer"}, "norm='layer' must be one of batch, group"),
        ({"standardized": 1}, "standardized=1 must be True or False"),
        ({"hidden": {"a": 2.5}}, "must give a whole number for each block"),
        ({"hidden": {"a": True}}, "must give a whole number for each block"),
        ({"hidden": {"a": "8"}}, "must give a whole number for each block"),
        ({"hidden": [8]}, "must give a whole number for each block"),
        ({"subnet": [2, 3]}, "must map choices to their values"),
    ],
    ids=str,
)
def test_what_no_network_can_have_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        NetworkConfig("mobilenet_v2", **options)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "no name"),
        ({"classes": 3}, "no name"),
        ({"name": "resnet18", "shade": 3, "color": 1}, "unknown color, shade"),
    ],
)
def test_a_description_that_is_not_understood(values: dict[str, Any], message: str) -> None:
    with pytest.raises(PocketuneError, match=f"is not understood: {message}"):
        NetworkConfig.from_dict(values)


def test_numbers_of_numpy_are_numbers() -> None:
    config = NetworkConfig(
        "mobilenet_v2",
        classes=np.int64(3),  # type: ignore[arg-type]
        width=np.float32(0.5),  # type: ignore[arg-type]
        hidden={"features.1": np.int32(22)},  # type: ignore[dict-item]
        head_channels=np.int64(8),  # type: ignore[arg-type]
        output_stride=np.int64(16),  # type: ignore[arg-type]
    )
    plain = {"hidden": {"features.1": 22}, "head_channels": 8, "output_stride": 16}
    assert config == NetworkConfig("mobilenet_v2", 3, 0.5, **plain)  # type: ignore[arg-type]
    assert json.loads(json.dumps(config.to_dict())).items() >= plain.items()


def test_a_config_does_not_change_with_what_it_was_made_from() -> None:
    hidden, branches = {"a": 3}, {"b": {"inputs": 4}}
    config = NetworkConfig("mine", hidden=hidden, branches=branches)
    hidden["a"] = 5
    branches["b"]["inputs"] = 7
    assert config == NetworkConfig("mine", hidden={"a": 3}, branches={"b": {"inputs": 4}})


def test_a_changed_copy_leaves_the_first_alone() -> None:
    config = NetworkConfig("mine", hidden={"a": 3})
    assert replace(config, classes=7).hidden == config.hidden == {"a": 3}
    assert config.classes == 1000


FACTS = {
    "config": NetworkConfig("mine", hidden={"a": 3}),
    "normalization": Normalization.HALF,
    "frozen_bits": 8,
    "filter_chains": (("a", "b"), ("c",)),
    "is_side_branch": True,
}


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_every_fact_survives_a_copy(copied: Any) -> None:
    network = nn.Linear(2, 3)
    set_about(network, **FACTS)
    assert about(copied(network)) == About(**FACTS)


def test_facts_are_no_part_of_the_state_and_none_of_the_children_s() -> None:
    network = nn.Sequential(nn.Linear(2, 3))
    before = list(network.state_dict())
    set_about(network, **FACTS)
    assert list(network.state_dict()) == before
    assert about(network[0]) == About()
    network.load_state_dict(nn.Sequential(nn.Linear(2, 3)).state_dict())
    assert about(network) == About(**FACTS)
    assert about(network.to(torch.float64)) == About(**FACTS)


def test_a_fact_that_is_declared_again_replaces_the_one_before() -> None:
    network = nn.Linear(2, 3)
    set_about(network, frozen_bits=8)
    first = about(network)
    set_about(network, frozen_bits=32, is_side_branch=True)
    assert about(network) == About(is_side_branch=True)
    assert first.frozen_bits == 8  # facts that were read do not change


def test_deep_copies_share_no_mapping_of_the_config() -> None:
    network = nn.Linear(2, 3)
    set_about(network, **FACTS)
    other = about(copy.deepcopy(network)).config
    assert other is not None
    assert other.hidden is not FACTS["config"].hidden  # type: ignore[attr-defined]


@pytest.mark.parametrize("normalization", [Normalization.IMAGENET, Normalization.HALF])
def test_black_and_white_pixels(normalization: Normalization) -> None:
    images = torch.stack([torch.zeros(2, 3, 3), torch.full((2, 3, 3), 255.0)]).to(torch.uint8)
    black, white = normalization(images).unbind(0)
    for channel, (mean, std) in enumerate(zip(normalization.mean, normalization.std, strict=True)):
        torch.testing.assert_close(black[channel], torch.full((2, 3), -mean / std))
        torch.testing.assert_close(white[channel], torch.full((2, 3), (1 - mean) / std))


def test_norms_are_written_where_they_are_not_the_usual_ones() -> None:
    config = NetworkConfig("mine", norm="group", standardized=True)
    assert config.to_dict().items() >= {"norm": "group", "standardized": True}.items()
    assert NetworkConfig.from_dict(config.to_dict()) == config
