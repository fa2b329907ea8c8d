"""Pooling patches and spreading values over them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketune.filtering.patches import Patches, patch_mean, patch_spread, patch_sum

from .filter_formulas import grid, membership

axes = st.tuples(  # length, size, start, count
    st.integers(1, 12), st.integers(1, 9), st.integers(-9, 9), st.integers(1, 5)
)


def matrix(axis: tuple[int, ...]) -> torch.Tensor:
    length, size, start, count = axis
    return membership(length, size, start, count)


@settings(max_examples=150)
@given(down=axes, across=axes)
def test_sums_and_means(down: tuple[int, ...], across: tuple[int, ...]) -> None:
    x = torch.randn(2, 3, down[0], across[0], dtype=torch.float64)
    expected = torch.einsum("pi,qj,ncij->ncpq", matrix(down), matrix(across), x)
    torch.testing.assert_close(patch_sum(x, grid(down, across)), expected)
    torch.testing.assert_close(patch_mean(x, grid(down, across), 6), expected / 6)
    real = torch.outer(matrix(down).sum(1), matrix(across).sum(1)).clamp(min=1)
    torch.testing.assert_close(patch_mean(x, grid(down, across)), expected / real)


@settings(max_examples=150)
@given(down=axes, across=axes)
def test_spreads(down: tuple[int, ...], across: tuple[int, ...]) -> None:
    values = torch.randn(2, 3, down[3], across[3], dtype=torch.float64)
    expected = torch.einsum("pi,qj,ncpq->ncij", matrix(down), matrix(across), values)
    found = patch_spread(values, grid(down, across), (down[0], across[0]))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("size", range(1, 80))
def test_spreads_without_rounding_into_the_next_patch(size: int) -> None:
    count = 4000 // size
    values = torch.arange(count, dtype=torch.float32).view(1, 1, count, 1)
    found = patch_spread(values, Patches((size, 1), (0, 0), (count, 1)), (size * count, 1))
    assert torch.equal(found.flatten(), (torch.arange(size * count) // size).float())


def test_a_patch_far_larger_than_the_map_takes_the_memory_of_the_map() -> None:
    whole = Patches((10**9, 10**9), (-5, 0), (1, 1))
    x = torch.arange(6.0).view(1, 1, 2, 3)
    assert patch_sum(x, whole).item() == 15
    assert patch_mean(x, whole).item() == 2.5
    assert patch_spread(torch.tensor([[[[7.0]]]]), whole, (2, 3)).flatten().tolist() == [7.0] * 6
