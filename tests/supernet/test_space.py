"""Spaces and sub-networks as data."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from tests.supernet.small import MODULES, configs, rng, space

from pocketune.errors import PocketuneError
from pocketune.networks import anatomy
from pocketune.supernet import Space, SubnetConfig
from pocketune.weights.saved import build

FULL = space(**MODULES, first="reduced")


@given(configs(FULL))
@settings(max_examples=20, deadline=None)
def test_spaces_and_configs_survive_json(config: SubnetConfig) -> None:
    assert SubnetConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert Space.from_dict(json.loads(json.dumps(FULL.to_dict()))) == FULL


def test_the_published_space_has_five_stages_of_up_to_four_blocks_and_a_last_one() -> None:
    full = Space()
    assert full.blocks == 21
    assert full.largest.depths == (4,) * 5
    assert full.smallest.kernels == (3,) * 21
    assert full.active(full.smallest) == [0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20]


def test_the_smallest_modules_have_the_most_groups() -> None:
    assert set(FULL.smallest.module_groups) == {4}
    assert set(FULL.largest.module_groups) == {2}
    assert set(FULL.largest.module_kernels) == {5}


def test_drawn_sub_networks_are_of_the_space_and_of_all_kinds() -> None:
    drawn = [FULL.sample(rng(seed)) for seed in range(30)]
    for config in drawn:
        FULL.check(config)
    for name in ("depths", "kernels", "expansions", "module_groups", "module_kernels"):
        choices = getattr(FULL, name)
        assert {config_value for c in drawn for config_value in getattr(c, name)} == set(choices)
    assert {config.size for config in drawn} == set(FULL.sizes)
    assert FULL.sample(rng(3)) == drawn[3]


def test_choices_without_effect_make_no_other_sub_network() -> None:
    largest, shallow = FULL.largest, replace(FULL.largest, depths=(1,) * 5)
    other = list(shallow.kernels)
    other[1] = 3  # a block that does not run
    assert FULL.canonical(replace(shallow, kernels=tuple(other))) == FULL.canonical(shallow)
    reduced = replace(largest, kernels=(5, *largest.kernels[1:]))
    assert FULL.canonical(reduced) == FULL.canonical(largest)
    last = replace(largest, module_kernels=(*largest.module_kernels[:-1], 3))
    assert FULL.canonical(last) == FULL.canonical(largest), "5 does not fit on the last maps"
    first = replace(largest, module_kernels=(3, *largest.module_kernels[1:]))
    assert FULL.canonical(first) != FULL.canonical(largest)


@given(configs(FULL))
@settings(max_examples=20, deadline=None)
def test_equal_canonical_configs_are_equal_networks(config: SubnetConfig) -> None:
    canonical = FULL.canonical(config)
    FULL.check(canonical)
    assert FULL.canonical(canonical) == canonical
    assert FULL.network_config(canonical) == FULL.network_config(config)


def test_a_sub_network_has_the_blocks_that_its_config_says() -> None:
    config = replace(
        FULL.largest,
        depths=(1, 2, 1, 2, 1),
        kernels=(7, 3, 5, *FULL.largest.kernels[3:]),
        module_groups=(4,) * FULL.blocks,
    )
    with torch.device("meta"):
        network = build(FULL.network_config(config))
    blocks = anatomy(network).blocks
    assert len(blocks) == 1 + 7 + 1
    reduced, second = blocks[1], blocks[2]
    assert [layer.role for layer in reduced.layers] == ["expand", "project"]
    assert not reduced.residual
    depthwise = second.layer("depthwise")
    assert depthwise is not None
    assert network.get_submodule(depthwise.conv).kernel_size == (5, 5)
    assert network.get_submodule("features.2.branch.conv1").groups == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": "vgg"}, "channels='vgg' must be one of"),
        ({"width": 0}, "width=0 must be a number above 0"),
        ({"depths": ()}, r"depths=\(\) must be whole numbers above 0"),
        ({"kernels": (3, 4)}, "kernels and module_kernels must be odd"),
        ({"expansions": (1, 3)}, "expansions must be above 1"),
        ({"module_groups": (2,)}, "need both module_groups and module_kernels"),
        ({"module_groups": (3,), "module_kernels": (3,)}, "must be 1, 2, 4 or 8"),
        ({"sizes": ("96",)}, "sizes=.* must be whole numbers above 0"),
        ({"first": "none"}, "first='none' must be one of"),
    ],
)
def test_a_space_that_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        space(**options)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"size": 64}, r"no images of 64 px; choose from \(32, 48\)"),
        ({"depths": (3,) * 5}, r"no depths of 3; choose from \(1, 2\)"),
        ({"kernels": (3,) * 4}, "kernels .* must have 11 numbers, not 4"),
        ({"module_groups": (2,) * 11}, "module_groups .* must have 0 numbers, not 11"),
    ],
)
def test_a_sub_network_of_another_space_is_refused(
    changed: dict[str, object], message: str
) -> None:
    plain = space()
    with pytest.raises(PocketuneError, match=message):
        plain.check(replace(plain.smallest, **changed))


def test_a_config_that_is_not_understood_is_refused() -> None:
    with pytest.raises(PocketuneError, match="is not understood: its keys are"):
        SubnetConfig.from_dict({"depths": [2]})
    with pytest.raises(PocketuneError, match="description of a space is not understood"):
        Space.from_dict({"breadth": 2})
