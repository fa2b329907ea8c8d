"""Kits of networks with filtered gradients: checked against PyTorch, and smaller."""

from pathlib import Path

import pytest
from torch import nn

from pocketune.compiler import compile
from pocketune.filtering import FilteredConv2d, filter_convolution
from pocketune.layers import StandardizedConv2d
from pocketune.layers.conv import Conv2d
from pocketune.methods import GradientFilter, Method, TinyTL, TopBlocks, adapt
from pocketune.surgery import swap
from pocketune.weights import create_network

from ..networks.shallow import shallow
from .networks import tiny


def unfiltered(adapted: nn.Module) -> nn.Module:
    """The same network, trained in the same parameters, with exact gradients."""

    def exact(conv: nn.Module) -> nn.Module:
        assert isinstance(conv, FilteredConv2d)
        return Conv2d.from_convolution(conv)

    filtered = [n for n, m in adapted.named_modules() if isinstance(m, FilteredConv2d)]
    assert filtered
    swap(adapted, dict.fromkeys(filtered, exact))
    return adapted


def step_bytes(network: nn.Module, out: Path, size: int) -> int:
    """Predicted peak of the training step; `compile` has compared five steps with PyTorch."""
    kit = compile(network, out, batch=4, size=size)
    return kit.manifest.graphs["step"].memory


@pytest.mark.parametrize(
    "method",
    [
        GradientFilter(layers=4),
        GradientFilter(4, layers=3, alignment="reference"),
        GradientFilter(layers=4, bits=8),
        TopBlocks(blocks=1) + GradientFilter(3, layers="trained"),
    ],
    ids=str,
)
def test_a_foreign_network(method: Method, tmp_path: Path) -> None:
    adapted = adapt(tiny(), method)
    filtered = step_bytes(adapted, tmp_path / "filtered", 16)
    assert filtered < step_bytes(unfiltered(adapted), tmp_path / "exact", 16)


def test_standardized_filters_that_pad_like_tensorflow(tmp_path: Path) -> None:
    """`compile` compares five steps with PyTorch, of pads, standardized filters and averages."""
    network = shallow(create_network("mobilenet_v2", width=0.35, padding="same", classes=3))
    adapted = adapt(network, TopBlocks(blocks=4) + TinyTL(norm="group", lite_residual=False))
    strided = "features.7.conv.1.0"
    swap(adapted, {strided: filter_convolution})
    conv = adapted.get_submodule(strided)
    assert isinstance(conv, FilteredConv2d) and isinstance(conv, StandardizedConv2d)
    assert conv.same_padding
    compile(adapted, tmp_path, batch=1, size=32)


@pytest.mark.parametrize("alignment", ["paper", "reference"])
def test_strides_and_shortcuts(alignment: str, tmp_path: Path) -> None:
    """The features are the first filtered layer's input and what the frozen shortcut makes of it.

    The patch sums are frozen too, but follow from the input.
    """
    network = create_network("resnet18", width=0.25, classes=3)
    adapted = adapt(network, GradientFilter(layers=4, alignment=alignment))
    kit = compile(adapted, tmp_path, batch=4, size=64)
    assert kit.manifest.features == (64 * 4 * 4 + 128 * 2 * 2,)
