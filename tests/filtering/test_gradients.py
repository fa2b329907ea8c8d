"""Products on patches, and rounding to 8 bits with one scale."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from pocketune.filtering import FilteredConv2d
from pocketune.filtering.gradients import (
    from_int8,
    in_int8,
    input_gradient,
    kernel_gradient,
    to_int8,
)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("side", [2, 40])
@pytest.mark.parametrize(
    ("inputs", "outputs", "groups"), [(48, 64, 1), (48, 32, 4), (32, 32, 32), (3, 3, 1)]
)
def test_gradients_of_a_1x1_convolution(
    inputs: int, outputs: int, groups: int, side: int, last: bool
) -> None:
    def channels(count: int) -> torch.Tensor:
        maps = torch.randn(2, count, side, side, dtype=torch.float64)
        return maps.contiguous(memory_format=torch.channels_last) if last else maps

    x, g = channels(inputs).requires_grad_(), channels(outputs)
    kernel = torch.randn(outputs, inputs // groups, 1, 1, dtype=torch.float64, requires_grad=True)
    functional.conv2d(x, kernel, groups=groups).backward(g)

    of_x = input_gradient(g, kernel.detach(), [0, 0], groups)
    of_kernel = kernel_gradient(g, x.detach(), groups)
    torch.testing.assert_close(of_x, x.grad)
    torch.testing.assert_close(of_kernel, kernel.grad)
    assert of_x.is_contiguous(memory_format=torch.channels_last) == last


@given(
    values=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40),
    exponent=st.integers(-20, 20),
)
def test_no_element_is_off_by_more_than_half_a_scale(values: list[float], exponent: int) -> None:
    x = torch.tensor(values, dtype=torch.float64) * 2.0**exponent
    whole, scale = to_int8(x)
    assert whole.dtype == torch.int8
    assert whole.abs().max() <= 127
    found = from_int8(whole, scale)
    assert ((found - x).abs() <= scale / 2 * (1 + 1e-9)).all()
    assert torch.equal(in_int8(x), found)


def test_the_largest_magnitude_is_exact_and_zero_stays_zero() -> None:
    x = torch.tensor([-2.54, 0.0, 1.27])
    torch.testing.assert_close(in_int8(x), torch.tensor([-2.54, 0.0, 1.28]))
    whole, scale = to_int8(torch.zeros(3))
    assert whole.tolist() == [0, 0, 0]
    assert scale == 1


def test_bfloat16_is_rounded_in_float32() -> None:
    torch.manual_seed(0)
    for _ in range(100):
        x = torch.randn(64).bfloat16()
        whole, scale = to_int8(x)
        found = from_int8(whole, scale)
        assert ((found - x.float()).abs() <= scale / 2 * (1 + 1e-5)).all()
        assert in_int8(x).dtype == torch.bfloat16
        torch.testing.assert_close(in_int8(x), found.bfloat16())


def test_an_empty_batch() -> None:
    conv = FilteredConv2d(3, 4, 3, padding=1, bits=8)
    x = torch.empty(0, 3, 6, 6, requires_grad=True)
    y = conv(x)
    assert y.shape == (0, 4, 6, 6)
    of_x, of_weight = torch.autograd.grad(y.sum(), [x, conv.weight])
    assert of_x.shape == x.shape
    assert not of_weight.any()
