"""Padding other than of zeros, and its gradients."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pocketune.compiler.capture.plain import PlainOperators

from .lowering import ALWAYS_ROWS, NEVER_ROWS, check_function, leaf

LAYOUTS = pytest.mark.parametrize("rows_max_pixels", [ALWAYS_ROWS, NEVER_ROWS])


@LAYOUTS
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("pad", [(1, 1, 1, 1), (2, 0, 1, 3), (0, 1, 2, 2), (0, 0, 0, 0)])
def test_value_and_gradients(mode: str, pad: tuple[int, ...], rows_max_pixels: int) -> None:
    def step(x: Tensor, w: Tensor, g: Tensor) -> list[Tensor]:
        with PlainOperators():
            y = F.pad(F.conv2d(x, w), pad, mode=mode) * 1.0
        return [y, *torch.autograd.grad(y, [x, w], g)]

    x, w = leaf(2, 3, 4, 5), leaf(4, 3, 1, 1, seed=1)
    g = leaf(2, 4, 4 + sum(pad[2:]), 5 + sum(pad[:2]), seed=2, grad=False)
    check_function(step, [x, w, g], (), rows_max_pixels)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_plain_operators_change_no_value(mode: str) -> None:
    x = leaf(2, 3, 4, 5)
    expected = F.pad(x, (1, 2, 3, 0), mode=mode)
    with PlainOperators():
        found = F.pad(x, (1, 2, 3, 0), mode=mode)
    torch.testing.assert_close(found, expected)
