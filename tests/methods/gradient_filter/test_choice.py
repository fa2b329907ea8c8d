"""Measuring where filtered gradients pay."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

from pocketune.errors import PocketuneError
from pocketune.methods import FilterChoice, GradientFilter, TopBlocks, adapt, measure_filters
from pocketune.networks import about
from pocketune.surgery import quantize_frozen
from pocketune.weights import create_network


def test_filters_where_it_is_no_slower_and_keeps_less() -> None:
    assert FilterChoice("a", 1.0, 0.9, 100, 25).filtered
    assert not FilterChoice("a", 1.0, 1.1, 100, 25).filtered
    assert not FilterChoice("a", 1.0, 0.9, 100, 100).filtered


def test_says_why() -> None:
    assert str(FilterChoice("conv", 1.25, 0.5, 4000, 1000)) == (
        "conv: filtered, since filtering takes 0.50 instead of 1.25 ms and keeps 1,000 instead "
        "of 4,000 bytes"
    )
    assert str(FilterChoice("conv", 0.5, 1.25, 4000, 1000)).startswith("conv: exact, since")


@pytest.mark.parametrize("padding", ["symmetric", "same"])
def test_measures_layers_as_they_run(padding: str) -> None:
    network = create_network("mobilenet_v2", width=0.35, padding=padding)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    layers = ("features.14.conv.1.0", "features.18.0")
    depthwise, fusion = measure_filters(network, layers, patch=2, batch=2, size=64)
    assert (depthwise.layer, fusion.layer) == layers
    assert min(depthwise.exact_ms, depthwise.filtered_ms, fusion.exact_ms, fusion.filtered_ms) > 0
    channels = network.get_submodule(layers[1]).in_channels
    assert fusion.exact_bytes == 4 * 2 * channels * 2 * 2  # maps of 2 x 2 pixels
    assert fusion.filtered_bytes == 4 * 2 * channels
    assert all(torch.equal(t, before[name]) for name, t in network.state_dict().items())


@pytest.mark.parametrize("bits", [8, 32])
def test_measures_kernels_of_any_kind(bits: int) -> None:
    network = create_network("mobilenet_v2", width=0.35).double()
    if bits == 8:
        quantize_frozen(network.requires_grad_(False))
    (fusion,) = measure_filters(network, ["features.18.0"], batch=1, size=64)
    channels = network.get_submodule("features.18.0").in_channels
    assert fusion.exact_bytes == 8 * channels * 2 * 2  # elements of 8 bytes


def test_auto_measures_a_network_with_kernels_of_int8() -> None:
    network = create_network("mobilenet_v2", width=0.35)
    quantize_frozen(network.requires_grad_(False))
    method = TopBlocks(1) + GradientFilter(layers="auto", batch=1, size=64)
    _, resolved = about(adapt(network, method)).method.methods
    assert isinstance(resolved.layers, tuple)


def test_refuses_a_layer_that_is_not_there() -> None:
    network = create_network("mobilenet_v2", width=0.35)
    with pytest.raises(PocketuneError, match=r"the network has no layer features\.99\.0"):
        measure_filters(network, ["features.99.0"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, "batch=0 must be a whole number"),
        ({"batch": -1}, "batch=-1 must be"),
        ({"size": 0}, "size=0 must be"),
        ({"size": True}, "size=True must be"),
        ({"patch": 0}, "patch=0 must be"),
        ({"bits": 4}, "bits=4 must be 8 or 32"),
        ({"layers": "features.18.0"}, r"must be a list of names; give \['features.18.0'\]"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    network = create_network("mobilenet_v2", width=0.35)
    with pytest.raises(PocketuneError, match=message):
        measure_filters(network, **{"layers": ["features.18.0"], **arguments})


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_measures_where_gradients_are_off(off: Callable[[], AbstractContextManager[None]]) -> None:
    network = create_network("mobilenet_v2", width=0.35)
    with off():
        (fusion,) = measure_filters(network, ["features.18.0"], batch=1, size=32)
        method = TopBlocks(1) + GradientFilter(layers="auto", batch=1, size=64)
        adapted = adapt(network, method)
    assert fusion.exact_bytes > 0
    assert isinstance(about(adapted).method.methods[1].layers, tuple)


def test_refuses_an_adapted_network() -> None:
    adapted = adapt(create_network("mobilenet_v2", width=0.35), GradientFilter(layers=2))
    with pytest.raises(PocketuneError, match=r"is adapted to GradientFilter.*original network"):
        measure_filters(adapted, ["features.18.0"])
