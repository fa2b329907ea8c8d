"""Softmax inside a network."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from .lowering import check_function, leaf


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
@pytest.mark.parametrize("dim", [1, -1])
@pytest.mark.parametrize("shape", [(3, 5), (2, 4, 3, 3)])
def test_value_and_gradient(function: torch.nn.Module, dim: int, shape: tuple[int, ...]) -> None:
    def step(x: Tensor, g: Tensor) -> list[Tensor]:
        y = function(x * 3, dim)
        return [y, *torch.autograd.grad(y, [x], g)]

    check_function(step, [leaf(*shape), leaf(*shape, seed=1, grad=False)])
