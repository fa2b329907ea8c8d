"""Activation pruning of what other methods train: which layers, and what they keep."""

import json

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.accounting import account
from pocketune.errors import PocketuneError
from pocketune.filtering import FilteredConv2d
from pocketune.layers import MaskedReLU6, PrunedBatchNorm2d, PrunedConv2d, SignedReLU6
from pocketune.methods import (
    ActivationPruning,
    FullFineTune,
    GradientFilter,
    LastLayer,
    Method,
    SignedBackward,
    TinyTL,
    TopBlocks,
    adapt,
    method_from_dict,
    method_to_dict,
)
from pocketune.networks import anatomy
from pocketune.weights import create_network

from ..layers.kept import kept_bytes
from ..networks.small import small_mobilenet
from .names import layers_of

FULL = FullFineTune()


def test_every_layer_but_the_first_convolution() -> None:
    network = small_mobilenet()
    layers = anatomy(network).layers
    adapted = adapt(network, FULL + ActivationPruning(0.4))
    assert layers_of(adapted, PrunedConv2d) == {layer.conv for layer in layers[1:]}
    assert layers_of(adapted, PrunedBatchNorm2d) == {layer.norm for layer in layers}
    activations = {layer.activation for layer in layers if layer.activation}
    assert layers_of(adapted, MaskedReLU6) == activations
    assert {m.ratio for m in adapted.modules() if isinstance(m, PrunedConv2d)} == {0.4}


def test_negative_elements_are_zeros_where_a_relu_follows() -> None:
    network = create_network("resnet18", width=0.25)
    adapted = adapt(network, FULL + ActivationPruning())
    found = {
        name.removeprefix("layer2.0."): module.rectified
        for name, module in adapted.named_modules()
        if isinstance(module, PrunedBatchNorm2d) and name.startswith("layer2.0.")
    }
    assert found == {"bn1": True, "bn2": False, "downsample.1": False}  # two are added first
    adapted = adapt(small_mobilenet(), FULL + ActivationPruning())
    kinds = [m.rectified for m in adapted.modules() if isinstance(m, PrunedBatchNorm2d)]
    assert kinds == [layer.activation is not None for layer in anatomy(adapted).layers]


def test_an_h_swish_is_no_relu() -> None:
    """Its outputs from -3 to 0 are not zero, so negative elements count with their magnitude."""
    network = create_network("mobilenet_v3_small", width=0.35, classes=3)
    modules = dict(network.named_modules())
    adapted = adapt(network, FULL + ActivationPruning())
    for layer in anatomy(network).layers:
        norm = adapted.get_submodule(layer.norm or "")
        assert isinstance(norm, PrunedBatchNorm2d)
        assert norm.rectified == isinstance(modules.get(layer.activation or ""), nn.ReLU)


def test_only_what_is_trained() -> None:
    network = small_mobilenet()
    body = anatomy(network)
    adapted = adapt(network, TopBlocks(1) + ActivationPruning())
    layers = (*body.blocks[-1].layers, *body.feature_fusion)
    assert layers_of(adapted, PrunedConv2d) == {layer.conv for layer in layers}
    assert layers_of(adapted, PrunedBatchNorm2d) == {layer.norm for layer in layers}


def test_squeeze_excite_is_exact() -> None:
    network = create_network("mobilenet_v3_small", classes=3, width=0.35)
    adapted = adapt(network, FULL + ActivationPruning())
    convolutions = {layer.conv for layer in anatomy(network).layers[1:]}
    assert layers_of(adapted, PrunedConv2d) == convolutions


def test_what_another_method_replaces_stays() -> None:
    method = TopBlocks(2) + GradientFilter(layers=3) + SignedBackward() + ActivationPruning()
    adapted = adapt(small_mobilenet(), method)
    assert len(layers_of(adapted, FilteredConv2d)) == 3
    assert layers_of(adapted, PrunedConv2d)
    assert layers_of(adapted, SignedReLU6)


def test_nothing_is_dropped_with_a_ratio_of_0() -> None:
    adapted = adapt(small_mobilenet(), FULL + ActivationPruning(0.0))
    assert not layers_of(adapted, PrunedConv2d)
    assert layers_of(adapted, MaskedReLU6)


@pytest.mark.parametrize("method", [LastLayer(), TinyTL()], ids=str)
def test_refused_where_no_trained_layer_keeps_its_input(method: Method) -> None:
    with pytest.raises(PocketuneError, match="finds no trained convolution or batch norm"):
        adapt(small_mobilenet(), method + ActivationPruning())


def test_by_itself_it_is_refused() -> None:
    with pytest.raises(PocketuneError, match="trains nothing by itself; add it to another"):
        adapt(small_mobilenet(), ActivationPruning())


@pytest.mark.parametrize("ratio", [1, 1.5, -0.1, float("nan"), True, "half"])
def test_ratios_out_of_range(ratio: object) -> None:
    with pytest.raises(PocketuneError, match="must be a number from 0 to less than 1"):
        ActivationPruning(ratio)  # type: ignore[arg-type]


def test_outputs_are_estimated_where_that_has_fewer_dimensions() -> None:
    network = create_network("resnet18", width=0.25)
    exact, fewer = (
        adapt(network, FULL + ActivationPruning(0.5, epsilon=epsilon)) for epsilon in (None, 0.5)
    )
    found = {
        name: len(module.projection)
        for name, module in fewer.named_modules()
        if isinstance(module, PrunedConv2d) and module.projection is not None
    }
    assert found["layer1.0.conv1"] == 133  # 16 filters of 144 weights
    adapted = adapt(network, FULL + ActivationPruning(0.5, epsilon=0.5)).train()
    adapted(torch.randn(2, 3, 32, 32)).sum().backward()
    assert not any("_estimate" in vars(module) for module in adapted.modules())
    assert "layer2.0.downsample.0" not in found  # 32 filters of 16 weights
    assert exact.state_dict().keys() == fewer.state_dict().keys()


@pytest.mark.parametrize("epsilon", [0, 1.5, True, "half", [1]])
def test_errors_out_of_range(epsilon: object) -> None:
    with pytest.raises(PocketuneError, match=r"must be a number between 0 and 1\.5"):
        ActivationPruning(0.5, epsilon=epsilon)  # type: ignore[arg-type]


def test_an_estimate_needs_the_forward_pass() -> None:
    with pytest.raises(PocketuneError, match="leave out epsilon or forward"):
        ActivationPruning(0.5, forward=False, epsilon=0.5)


def test_to_plain_values_and_back() -> None:
    method = FULL + ActivationPruning(0.25, forward=False)
    assert method_from_dict(method_to_dict(method)) == method
    narrow = ActivationPruning(np.float32(0.25), epsilon=np.float32(0.5))
    assert json.loads(json.dumps(method_to_dict(narrow)))["epsilon"] == 0.5


@pytest.mark.parametrize(
    ("network", "forward"),
    [
        (small_mobilenet(), True),
        (small_mobilenet(), False),
        (create_network("resnet18", width=0.25), True),
    ],
)
def test_accounting_is_what_pytorch_keeps(network: nn.Module, forward: bool) -> None:
    adapted = adapt(network, FULL + ActivationPruning(0.7, forward=forward)).train()
    for module in adapted.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # of two copies, each draws its own mask
    images, labels = torch.randn(4, 3, 64, 64), torch.zeros(4, dtype=torch.long)

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels)

    found = account(adapted, batch=4, size=64)
    assert found.kept_bytes == kept_bytes(adapted, images, loss)
    whole = account(adapt(network, FULL), batch=4, size=64)
    assert found.kept_bytes < 0.6 * whole.kept_bytes


def test_most_elements_of_a_map_are_zero_after_its_norm() -> None:
    adapted = adapt(small_mobilenet(), FULL + ActivationPruning(0.75)).train()
    shares = []
    for module in adapted.modules():
        if isinstance(module, PrunedBatchNorm2d):
            module.register_forward_hook(
                lambda _, __, y: shares.append((y == 0).flatten(1).double().mean(1))
            )
    adapted(torch.randn(2, 3, 32, 32))
    assert len(shares) == len(anatomy(adapted).layers)
    assert all((share >= 0.74).all() for share in shares)
