"""Standardized filters against their formula."""

import pytest
import torch
from torch import nn

from pocketune.layers import StandardizedConv2d, standardized
from pocketune.layers.weight_standardization import standardize

from .kept import kept_bytes, kept_tensors


@pytest.mark.parametrize("shape", [(6, 4, 3, 3), (5, 1, 3, 3), (4, 8, 1, 1)])
def test_standardize_is_its_formula(shape: tuple[int, ...]) -> None:
    weight = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    std, mean = torch.std_mean(weight, (1, 2, 3), keepdim=True)
    torch.testing.assert_close(standardize(weight), (weight - mean) / (std + 1e-5))
    assert torch.autograd.gradcheck(standardize, (weight,))


def test_equal_weights_become_zero_and_have_a_finite_gradient() -> None:
    weight = torch.full((2, 3, 3, 3), 0.5, requires_grad=True)
    standardize(weight).sum().backward()
    assert not standardize(weight).any()
    assert torch.isfinite(weight.grad).all()


def test_standardizing_keeps_only_the_weight() -> None:
    conv = StandardizedConv2d(8, 8, 3)
    (kept,) = kept_tensors(standardize, conv.weight)
    assert kept.data_ptr() == conv.weight.data_ptr()


def test_standardized_copy() -> None:
    conv = nn.Conv2d(4, 8, 3)
    twin = standardized(conv)
    assert twin is not conv
    torch.testing.assert_close(twin.weight, standardize(conv.weight))
    assert torch.equal(twin.bias, conv.bias)


def test_the_convolution_keeps_its_input_and_the_standardized_filters() -> None:
    conv, x = StandardizedConv2d(8, 8, 3, bias=False), torch.randn(2, 8, 6, 6, requires_grad=True)
    assert kept_bytes(conv, x) == x.nbytes + conv.weight.nbytes
