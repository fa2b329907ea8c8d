"""Standardized filters against their formula."""

import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import (
    QuantizedConv2d,
    StandardizedConv2d,
    standardize_convolution,
    standardized,
)
from pocketune.layers.weight_standardization import standardize

from .kept import kept_bytes, kept_tensors


@pytest.mark.parametrize("shape", [(6, 4, 3, 3), (5, 1, 3, 3), (4, 8, 1, 1)])
def test_standardize_is_its_formula(shape: tuple[int, ...]) -> None:
    weight = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    std, mean = torch.std_mean(weight, (1, 2, 3), keepdim=True)
    torch.testing.assert_close(standardize(weight), (weight - mean) / (std + 1e-5))
    assert torch.autograd.gradcheck(standardize, (weight,))


@pytest.mark.parametrize("shape", [(2, 3, 3, 3), (2, 1, 1, 1)])
def test_equal_weights_become_zero_and_have_a_finite_gradient(shape: tuple[int, ...]) -> None:
    weight = torch.full(shape, 0.5, requires_grad=True)
    y = standardize(weight)
    assert not y.any()
    (gradient,) = torch.autograd.grad(y, weight, torch.randn(shape))
    assert gradient.isfinite().all()


def test_standardizing_keeps_only_the_weight() -> None:
    conv = StandardizedConv2d(8, 8, 3)
    (kept,) = kept_tensors(standardize, conv.weight)
    assert kept.data_ptr() == conv.weight.data_ptr()


def test_standardized_copy() -> None:
    conv = nn.Conv2d(4, 8, 3)
    before = conv.weight.detach().clone()
    twin = standardized(conv)
    assert twin is not conv
    torch.testing.assert_close(twin.weight, standardize(conv.weight))
    assert torch.equal(twin.bias, conv.bias)
    x = torch.randn(1, 4, 5, 5)
    torch.testing.assert_close(twin(x), standardize_convolution(conv)(x))
    assert torch.equal(conv.weight, before)


def test_the_convolution_keeps_its_input_and_the_standardized_filters() -> None:
    conv, x = StandardizedConv2d(8, 8, 3, bias=False), torch.randn(2, 8, 6, 6, requires_grad=True)
    assert kept_bytes(conv, x) == x.nbytes + conv.weight.nbytes


def test_a_convolution_with_a_forward_pass_of_its_own_is_not_standardized() -> None:
    with pytest.raises(PocketuneError, match="filters of a QuantizedConv2d cannot be standardized"):
        standardize_convolution(QuantizedConv2d.from_convolution(nn.Conv2d(3, 4, 3)))


def test_a_kernel_that_is_computed_in_every_step_is_not_standardized_once() -> None:
    conv = torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3))
    with pytest.raises(PocketuneError, match="computes its kernel in every step"):
        standardized(conv)
