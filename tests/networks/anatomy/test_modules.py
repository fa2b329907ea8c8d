"""Kinds of layers, and what belongs to a convolution."""

import pytest
from torch import nn

from pocketune.networks.anatomy.modules import (
    conv_layers,
    explain_cumulative_average,
    is_activation,
    is_convolution,
    is_depthwise,
    is_norm,
    is_pointwise,
    is_spatial,
)


def conv(inputs: int, outputs: int, kernel: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False)


@pytest.mark.parametrize(
    ("module", "convolution", "norm", "activation"),
    [
        (nn.Conv2d(2, 2, 1), True, False, False),
        (nn.Conv1d(2, 2, 1), False, False, False),
        (nn.ConvTranspose2d(2, 2, 1), True, False, False),
        (nn.Linear(2, 2), False, False, False),
        (nn.BatchNorm2d(2), False, True, False),
        (nn.GroupNorm(1, 2), False, True, False),
        (nn.LayerNorm(2), False, False, False),
        (nn.SiLU(), False, False, True),
        (nn.Softmax(1), False, False, False),
        (type("HardSwishJit", (nn.Module,), {})(), False, False, True),
        (type("BatchNormReLU", (nn.BatchNorm2d,), {})(2), False, True, False),
    ],
)
def test_kinds_of_layers(
    module: nn.Module, convolution: bool, norm: bool, activation: bool
) -> None:
    assert is_convolution(module) is convolution
    assert is_norm(module) is norm
    assert is_activation(module) is activation


def test_a_container_called_like_an_activation_is_none() -> None:
    holder = type("ActivationAndMore", (nn.Sequential,), {})
    assert is_activation(holder())
    assert not is_activation(holder(nn.Linear(2, 2)))


@pytest.mark.parametrize(
    ("made", "pointwise", "depthwise", "spatial"),
    [
        (conv(4, 4), True, False, False),
        (conv(4, 4, 3, 4), False, True, False),
        (conv(4, 4, 1, 4), False, True, False),
        (conv(4, 8, 3, 4), False, False, True),
        (conv(4, 4, 3, 2), False, False, True),
        (conv(1, 1, 3), False, False, True),
        (conv(4, 4, 1, 2), False, False, False),
        (nn.Conv2d(4, 4, (1, 3)), False, False, True),
    ],
)
def test_kinds_of_convolutions(
    made: nn.Conv2d, pointwise: bool, depthwise: bool, spatial: bool
) -> None:
    assert (is_pointwise(made), is_depthwise(made), is_spatial(made)) == (
        pointwise, depthwise, spatial,
    )  # fmt: skip


def test_only_the_first_norm_and_the_first_activation_belong_to_a_convolution() -> None:
    modules = [nn.ReLU(), conv(2, 2), nn.BatchNorm2d(2), nn.ReLU(), nn.BatchNorm2d(2), nn.SiLU()]
    (layer,) = conv_layers((str(i), module) for i, module in enumerate(modules))
    assert (layer.path, layer.norm, layer.activation) == ("1", "2", "3")


def test_a_norm_that_weighs_by_its_count_of_batches_is_named() -> None:
    network = nn.Sequential(nn.BatchNorm2d(2), nn.BatchNorm1d(2, momentum=None))
    assert "the batch norm 1 has momentum=None" in str(explain_cumulative_average(network))
    network[1].momentum = 0.1
    assert explain_cumulative_average(network) is None
