"""Titles of networks and methods."""

import pytest

from pocketune.kit.titles import full_title, network_title


@pytest.mark.parametrize(
    ("network", "title"),
    [
        ({"name": "resnet18", "width": 1.0}, "resnet18"),
        ({"name": "mobilenet_v2", "width": 0.35, "hidden": {"a": 1}}, "mobilenet_v2 0.35, pruned"),
        ({"name": "resnet18", "first_blocks": 5}, "resnet18, first 5 blocks"),
        (
            {"name": "deeplabv3", "backbone": "mobilenet_v2", "width": 0.5, "output_stride": 16},
            "deeplabv3 of mobilenet_v2 0.5, stride 16",
        ),
        ({}, "a network"),
    ],
)
def test_titles_tell_networks_apart(network, title):
    assert network_title(network) == title


@pytest.mark.parametrize("value", [3, "wide", [1], {"a": 1}, True, None])
@pytest.mark.parametrize("field", ["width", "hidden", "backbone", "first_blocks", "methods"])
def test_fields_of_any_kind_have_a_title(field, value):
    assert network_title({"name": "x", field: value})
    assert full_title({"name": "x", field: value})


def test_options_that_are_not_set_are_left_out():
    assert full_title({"name": "x", "bits": None, "top_k": 2}) == "x (top k 2)"


def test_a_sum_is_described_by_its_methods():
    terms = [{"name": "blocks", "blocks": 2}, {"name": "signed"}]
    assert full_title({"name": "sum", "methods": terms}) == "blocks (blocks 2) + signed"


def test_pruned_blocks_are_counted():
    network = {"name": "x", "classes": 3, "hidden": {"a": 4}, "branches": {"a": {}}}
    assert full_title(network) == "x (pruned in 1 block)"
