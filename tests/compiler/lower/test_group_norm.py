"""Group norm with its gradients, against float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from pocketune.layers.weight_standardization import standardize

from ..lowering import ALWAYS_ROWS, NEVER_ROWS, check_function, leaf


@settings(max_examples=25)
@given(
    batch=st.integers(1, 3),
    channels=st.sampled_from([(4, 2), (6, 1), (6, 6), (16, 2)]),
    size=st.tuples(st.integers(1, 5), st.integers(2, 5)),
    rows=st.sampled_from([NEVER_ROWS, ALWAYS_ROWS]),
)
def test_group_norm(
    batch: int, channels: tuple[int, int], size: tuple[int, int], rows: int
) -> None:
    count, groups = channels

    def step(x: Tensor, k: Tensor, w: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
        y = F.group_norm(F.conv2d(x, k), groups, w, b, 1e-3)
        return [y, *torch.autograd.grad(y, [x, k, w, b], g)]

    x = leaf(batch, count, *size)
    inputs = [x, leaf(count, count, 1, 1, seed=4), leaf(count, seed=1), leaf(count, seed=2)]
    # what is added up to the gradient of a group of two elements cancels but for a few digits
    tolerance = 2e-5 if count // groups * size[0] * size[1] > 2 else 1e-4
    gradient = leaf(*x.shape, seed=3, grad=False)
    check_function(step, [*inputs, gradient], (), rows, tolerance)


@pytest.mark.parametrize("shape", [(2, 6, 5), (2, 6), (2, 6, 2, 3, 2)], ids=str)
def test_group_norm_of_any_dimensions(shape: tuple[int, ...]) -> None:
    def step(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
        y = F.group_norm(x, 2, w, b, 1e-3)
        return [y, *torch.autograd.grad(y, [x, w, b], g)]

    inputs = [leaf(*shape), leaf(6, seed=1), leaf(6, seed=2), leaf(*shape, seed=3, grad=False)]
    check_function(step, inputs, (), NEVER_ROWS, 2e-5)


def test_the_variance_of_a_large_group_keeps_its_bits() -> None:
    """The squares are not added one after the other; errors would grow from layer to layer."""

    def step(x: Tensor, g: Tensor) -> list[Tensor]:
        y = F.group_norm(x, 1)
        return [y, *torch.autograd.grad(y, [x], g)]

    shape = (2, 8, 100, 100)
    inputs = [leaf(*shape), leaf(*shape, seed=1, grad=False)]
    check_function(step, inputs, tolerance=1e-6)


@pytest.mark.parametrize("trained", [(), (1,), (0, 2)])
def test_only_the_gradients_that_are_asked_for(trained: tuple[int, ...]) -> None:
    """A frozen scale, a frozen shift, and a first layer whose input needs none."""
    tensors = [leaf(2, 4, 3, 3), leaf(4, seed=1), leaf(4, seed=2)]
    for i, tensor in enumerate(tensors):
        tensor.requires_grad_(i in trained or not trained)

    def step(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
        y = F.group_norm(x, 2, w, b)
        wanted = [t for t in (x, w, b) if t.requires_grad]
        return [y, *torch.autograd.grad(y, wanted, g)]

    check_function(step, [*tensors, leaf(2, 4, 3, 3, seed=3, grad=False)])


def test_group_norm_without_scale_and_shift() -> None:
    def step(x: Tensor, g: Tensor) -> list[Tensor]:
        y = F.group_norm(x, 2)
        return [y, *torch.autograd.grad(y, [x], g)]

    check_function(step, [leaf(2, 4, 3, 3), leaf(2, 4, 3, 3, seed=1, grad=False)])


def test_a_mean_far_above_the_deviation_does_not_cancel() -> None:
    def forward(x: Tensor) -> list[Tensor]:
        return [F.group_norm(x, 2)]

    check_function(forward, [(leaf(2, 4, 8, 8, grad=False) + 1000)], tolerance=2e-4)


@pytest.mark.parametrize("shape", [(6, 4, 1, 1), (4, 2, 5, 5), (3, 1, 3, 3)])
def test_weight_standardization(shape: tuple[int, ...]) -> None:
    def step(w: Tensor, g: Tensor) -> list[Tensor]:
        y = standardize(w)
        return [y, *torch.autograd.grad(y, [w], g)]

    check_function(step, [leaf(*shape), leaf(*shape, seed=1, grad=False)])
