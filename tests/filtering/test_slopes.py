"""Derivatives as zeros and ones."""

import pytest
import torch

from pocketune.filtering.slopes import slope_between, slope_nonnegative

VALUES = [-7.0, -1e-45, -0.0, 0.0, 1e-45, 0.5, 5.999, 6.0, 6.001]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (0.0, torch.inf), (-torch.inf, 0.0)])
def test_between(dtype: torch.dtype, low: float, high: float) -> None:
    x = torch.tensor(VALUES, dtype=dtype)
    assert torch.equal(slope_between(x, low, high), ((x > low) & (x < high)).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_nonnegative(dtype: torch.dtype) -> None:
    x = torch.tensor(VALUES, dtype=dtype)
    assert torch.equal(slope_nonnegative(x), (x >= 0).to(dtype))


def test_keeps_the_memory_format() -> None:
    x = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    for slope in (slope_between(x, 0.0, 6.0), slope_nonnegative(x)):
        assert slope.is_contiguous(memory_format=torch.channels_last)
