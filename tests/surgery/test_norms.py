"""Group norms in the places of batch norms, and kernels that are standardized."""

import copy

import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import Conv2d, GroupNorm, StandardizedConv2d
from pocketune.layers.weight_standardization import standardize
from pocketune.networks import anatomy
from pocketune.networks.architectures.parts import ConvNormActivation, PlainNetwork
from pocketune.surgery import kernels_before_norms, settle_kernels, use_norms
from pocketune.weights import create_network

from ..networks.small import small_mobilenet


def grouped() -> nn.Module:
    torch.manual_seed(0)
    network = small_mobilenet()
    use_norms(network, "group", standardized=True)
    return network


def test_every_norm_and_kernel_is_replaced_and_keeps_its_parameters() -> None:
    network = small_mobilenet()
    parameters = dict(network.named_parameters())
    body = anatomy(network)
    use_norms(network, "group", standardized=True)
    assert anatomy(network) == body
    assert all(p is parameters[name] for name, p in network.named_parameters())
    for layer in body.layers:
        assert isinstance(network.get_submodule(layer.conv), StandardizedConv2d)
        assert isinstance(network.get_submodule(str(layer.norm)), GroupNorm)


def test_each_can_be_had_without_the_other() -> None:
    network = small_mobilenet()
    use_norms(network, "group", standardized=False)
    assert kernels_before_norms(network) == [layer.conv for layer in anatomy(network).layers]
    other = small_mobilenet()
    use_norms(other, "batch", standardized=True)
    assert kernels_before_norms(other) == []
    assert not any(isinstance(module, GroupNorm) for module in other.modules())


def test_what_has_no_norm_or_a_bias_is_not_standardized() -> None:
    """Squeeze-and-excitation has biases, and a gate of LR-ASPP no norm."""
    network = create_network("lraspp", classes=3, norm="group", standardized=True)
    kinds = {path: type(m) for path, m in network.named_modules() if isinstance(m, nn.Conv2d)}
    plain = [path for path, kind in kinds.items() if kind is not StandardizedConv2d]
    assert plain
    assert all("fc" in path or "head" in path or "classifier" in path for path in plain)


def test_frozen_kernels_are_settled_and_trained_ones_are_not() -> None:
    network = grouped().eval()
    before = copy.deepcopy(network)
    trained = "features.3.conv.0.0.weight"
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name == trained)
    settle_kernels(network)
    kinds = {n: type(m) for n, m in network.named_modules() if isinstance(m, nn.Conv2d)}
    assert kinds.pop("features.3.conv.0.0") is StandardizedConv2d
    assert set(kinds.values()) == {Conv2d}
    frozen = "features.2.conv.1.0.weight"
    expected = standardize(before.get_parameter(frozen))
    torch.testing.assert_close(network.get_parameter(frozen), expected)
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(network(images), before(images))


def test_channels_without_groups_are_refused_by_name() -> None:
    stem = ConvNormActivation(3, 17, 3)
    network = PlainNetwork([stem], nn.Sequential(nn.Linear(17, 3)))
    with pytest.raises(PocketuneError, match=r"layer features.0.1: 17 channels cannot be divided"):
        use_norms(network, "group", standardized=True)
    assert isinstance(network.features[0][1], nn.BatchNorm2d)
