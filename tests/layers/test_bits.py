"""Packed masks: round trips, agreement with the plain reference, memory order, size."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pocketune.layers.bits import (
    is_channels_last,
    mask_gradient,
    pack_between,
    pack_bits,
    pack_nonnegative,
    unpack_bits,
)

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SHAPES = st.lists(st.integers(0, 6), min_size=0, max_size=4).map(tuple)


def values(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Numbers around the kinks, with exact ties of either sign of zero."""
    ties = torch.tensor([-7.0, -1e-30, -0.0, 0.0, 1e-30, 3.0, 6.0, 6.5])
    generator = torch.Generator().manual_seed(seed)
    return ties[torch.randint(len(ties), shape, generator=generator)]


@given(SHAPES, st.integers(0, 9))
def test_the_reference_comes_back(shape: tuple[int, ...], seed: int) -> None:
    mask = values(shape, seed) >= 0
    packed = pack_bits(mask)
    assert packed.dtype == torch.uint8
    assert packed.shape == ((mask.numel() + 7) // 8,)
    assert torch.equal(unpack_bits(packed, shape), mask)


def test_the_lowest_bit_is_the_first_element() -> None:
    mask = torch.tensor([True, False, False, True, False, False, False, True, True])
    assert pack_bits(mask).tolist() == [0b10001001, 1]


@pytest.mark.parametrize("dtype", DTYPES)
@given(SHAPES, st.integers(0, 9))
def test_packing_equals_the_reference(dtype: torch.dtype, shape: tuple, seed: int) -> None:
    x = values(shape, seed).to(dtype)
    assert torch.equal(pack_nonnegative(x, False), pack_bits(x >= 0))
    assert torch.equal(pack_between(x, 0.0, 6.0, False), pack_bits((x > 0) & (x < 6)))
    assert torch.equal(pack_between(x, 0.0, float("inf"), False), pack_bits(x > 0))


@pytest.mark.parametrize("dtype", DTYPES)
@given(SHAPES, st.integers(0, 9))
def test_masking_equals_the_reference(dtype: torch.dtype, shape: tuple, seed: int) -> None:
    mask = values(shape, seed) >= 0
    gradient = torch.randn(shape).to(dtype)
    expected = torch.where(mask, gradient, torch.zeros((), dtype=dtype))
    masked = mask_gradient(gradient, pack_bits(mask), False)
    assert masked.dtype == dtype
    torch.testing.assert_close(masked, expected, rtol=0, atol=0)


def test_bits_are_in_the_order_of_memory() -> None:
    x = torch.randn(2, 3, 4, 5)
    assert torch.equal(pack_nonnegative(x, True), pack_bits(x.permute(0, 2, 3, 1) >= 0))


@pytest.mark.parametrize("stored_as", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_gradient_of_another_memory_format(
    stored_as: torch.memory_format, channels_last: bool
) -> None:
    x = torch.randn(2, 3, 4, 5)
    gradient = torch.randn(2, 3, 4, 5).to(memory_format=stored_as)
    masked = mask_gradient(gradient, pack_nonnegative(x, channels_last), channels_last)
    torch.testing.assert_close(masked, gradient * (x >= 0), rtol=0, atol=0)
    assert is_channels_last(masked) == channels_last


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels_last", [False, True])
def test_what_is_masked_is_no_view(channels_last: bool, dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 4, 5, dtype=dtype)
    masked = mask_gradient(x, pack_nonnegative(x, channels_last), channels_last)
    assert not masked._is_view()
    assert is_channels_last(masked) == channels_last


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_operators_are_what_tracing_takes_them_for(channels_last: bool) -> None:
    order = torch.channels_last if channels_last else torch.contiguous_format
    x = torch.randn(2, 3, 4, 5).to(memory_format=order)
    packed = pack_nonnegative(x, channels_last)
    torch.library.opcheck(pack_nonnegative, (x, channels_last))
    torch.library.opcheck(pack_between, (x, 0.0, 6.0, channels_last))
    torch.library.opcheck(mask_gradient, (x, packed, channels_last))


def test_what_is_channels_last() -> None:
    x = torch.zeros(2, 3, 4, 5)
    assert is_channels_last(x.to(memory_format=torch.channels_last))
    assert not is_channels_last(x)
    assert not is_channels_last(torch.zeros(2, 3, 1, 1).to(memory_format=torch.channels_last))
    assert not is_channels_last(x[0])
