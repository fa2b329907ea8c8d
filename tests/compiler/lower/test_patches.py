"""Filtered gradients compiled to ONNX."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pocketune.filtering import FilteredConv2d, PooledActivation
from pocketune.filtering.gradients import from_int8, in_int8, to_int8
from pocketune.filtering.patches import Patches, patch_mean, patch_spread
from pocketune.layers import MaskedReLU6, SignedReLU

from ...filtering.filter_formulas import grid
from ..lowering import ALWAYS_ROWS, NEVER_ROWS, check_function, leaf, operators

axes = st.tuples(  # length, size, start, count
    st.integers(1, 9), st.integers(1, 5), st.integers(-6, 6), st.integers(1, 4)
)
layouts = st.sampled_from([ALWAYS_ROWS, NEVER_ROWS])


@settings(max_examples=25)
@given(down=axes, across=axes, divisor=st.sampled_from([None, 1, 6]), layout=layouts)
def test_pools(
    down: tuple[int, ...], across: tuple[int, ...], divisor: int | None, layout: int
) -> None:
    def function(x: Tensor) -> list[Tensor]:
        return [patch_mean(x, grid(down, across), divisor)]

    x = leaf(2, 3, down[0], across[0], grad=False)
    check_function(function, [x], rows_max_pixels=layout)


@settings(max_examples=25)
@given(down=axes, across=axes, layout=layouts)
def test_spreads(down: tuple[int, ...], across: tuple[int, ...], layout: int) -> None:
    def function(values: Tensor) -> list[Tensor]:
        return [patch_spread(values, grid(down, across), (down[0], across[0]))]

    values = leaf(2, 3, down[3], across[3], grad=False)
    check_function(function, [values], rows_max_pixels=layout)


LAYERS = {
    "dense": {"kernel_size": 3, "padding": 1},
    "pointwise": {"kernel_size": 1},
    "strided": {"kernel_size": 3, "padding": 1, "stride": 2},
    "depthwise": {"kernel_size": 5, "padding": 2, "groups": 8, "out_channels": 8},
    "strided depthwise": {
        "kernel_size": 3,
        "padding": 1,
        "stride": 2,
        "groups": 8,
        "out_channels": 8,
    },
    "grouped": {"kernel_size": 3, "padding": 1, "groups": 2},
    "dilated": {"kernel_size": 3, "padding": 4, "dilation": 4},
    "dilated depthwise": {
        "kernel_size": 3,
        "padding": 4,
        "dilation": 4,
        "groups": 8,
        "out_channels": 8,
    },
    "slightly dilated": {"kernel_size": 3, "padding": 2, "dilation": 2},
    "unpadded": {"kernel_size": 5},
}


@pytest.mark.parametrize("layout", [ALWAYS_ROWS, NEVER_ROWS], ids=["rows", "plain"])
@pytest.mark.parametrize("alignment", ["natural", "paper", "reference"])
@pytest.mark.parametrize("patch", [2, 3])
@pytest.mark.parametrize("kind", LAYERS)
def test_layers(kind: str, patch: int, alignment: str, layout: int) -> None:
    options = {"in_channels": 8, "out_channels": 6, **LAYERS[kind]}
    conv = FilteredConv2d(**options, patch=patch, alignment=alignment)

    def function(x: Tensor, weight: Tensor, bias: Tensor, g: Tensor) -> list[Tensor]:
        tensors = {"weight": weight, "bias": bias}
        y = torch.func.functional_call(conv, tensors, (x,))
        return [y.detach(), *torch.autograd.grad(y, [x, weight, bias], g)]

    x = leaf(2, 8, 9, 7)
    g = leaf(*conv(x).shape, seed=1, grad=False)
    weight, bias = (leaf(*p.shape, seed=2) for p in (conv.weight, conv.bias))
    check_function(function, [x, weight, bias, g], rows_max_pixels=layout)


@pytest.mark.parametrize("layout", [ALWAYS_ROWS, NEVER_ROWS], ids=["rows", "plain"])
@pytest.mark.parametrize(
    ("patch", "activation", "stride"), [(2, MaskedReLU6(), 1), (3, SignedReLU(), 2), (3, None, 2)]
)
def test_chains(patch: int, activation: torch.nn.Module | None, stride: int, layout: int) -> None:
    """Two layers whose gradient stays in patches in between."""
    first = FilteredConv2d(8, 6, 3, padding=1, patch=patch)
    second = FilteredConv2d(6, 6, 3, padding=1, stride=stride, groups=6, patch=patch)
    first.passes_pooled = True
    between = PooledActivation(activation) if activation else torch.nn.Identity()
    chain = torch.nn.Sequential(first, between, second)
    names = [name for name, _ in chain.named_parameters()]

    def function(x: Tensor, g: Tensor, *parameters: Tensor) -> list[Tensor]:
        tensors = dict(zip(names, parameters, strict=True))
        y = torch.func.functional_call(chain, tensors, (x,))
        return [y.detach(), *torch.autograd.grad(y, [x, *parameters], g)]

    x = leaf(2, 8, 9, 7)
    g = leaf(*chain(x).shape, seed=1, grad=False)
    parameters = [leaf(*p.shape, seed=2) for p in chain.parameters()]
    model = check_function(function, [x, g, *parameters], rows_max_pixels=layout)
    if activation is not None:
        assert "Where" not in operators(model)


@pytest.mark.parametrize("layout", [ALWAYS_ROWS, NEVER_ROWS], ids=["rows", "plain"])
def test_rounds_to_8_bits(layout: int) -> None:
    """Powers of two and whole numbers, which nothing rounds to the other side."""

    def function(x: Tensor) -> list[Tensor]:
        pooled = patch_mean(x, Patches((2, 2), (0, 0), (2, 2)), 1)
        return [from_int8(*to_int8(pooled)), in_int8(pooled), in_int8(pooled * 0)]

    x = torch.arange(32.0).reshape(1, 2, 4, 4)
    x[0, 1, 2:, 2:] = 127  # the largest sum is 4 * 127: the scale is 4
    model = check_function(function, [x], rows_max_pixels=layout)
    assert "QuantizeLinear" not in operators(model)  # which an engine may fuse, and round elsewhere


def test_patches_of_small_maps_are_matrix_products() -> None:
    """A pool would have to turn the rows into maps and back."""

    def function(x: Tensor, w: Tensor) -> list[Tensor]:
        rows = torch.nn.functional.conv2d(x, w)
        patches = Patches((2, 2), (0, 0), (4, 4))
        pooled = patch_mean(rows, patches)
        spread = patch_spread(pooled, patches, (7, 7))
        return [torch.nn.functional.conv2d(spread, w)]

    inputs = [leaf(2, 4, 7, 7, grad=False), leaf(4, 4, 1, 1, grad=False)]
    model = check_function(function, inputs, rows_max_pixels=ALWAYS_ROWS)
    assert operators(model).count("Transpose") == 2  # of the first input and the last output
    assert "AveragePool" not in operators(model)
