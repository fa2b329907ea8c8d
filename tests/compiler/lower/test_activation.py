"""Activations and their derivatives, exactly on their kinks as well as off them."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ..lowering import LAYOUTS, check_function, leaf, lower_function, run_model

Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Activation] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "gelu by tanh": partial(F.gelu, approximate="tanh"),
    "softplus": F.softplus,
    "softplus of a beta": partial(F.softplus, beta=2),
    "mish": F.mish,
    "elu": partial(F.elu, alpha=0.5),
    "selu": F.selu,
    "celu": partial(F.celu, alpha=2),
    "leaky relu": partial(F.leaky_relu, negative_slope=0.1),
    "elu in place": lambda x: F.elu(x * 1, 0.5, inplace=True),
    "leaky relu in place": lambda x: F.leaky_relu(x * 1, 0.1, inplace=True),
    "silu in place": lambda x: F.silu(x * 1, inplace=True),
    "mish in place": lambda x: F.mish(x * 1, inplace=True),
    "celu in place": lambda x: F.celu_(x * 1),
    "threshold": partial(F.threshold, threshold=0.5, value=-2.0),
    "softsign": F.softsign,
    "tanh shrink": F.tanhshrink,
}
EACH = pytest.mark.parametrize("name", ACTIVATIONS)

TIES = [-6.0, -3.0, -1.0, -0.0, 0.0, 1.0, 3.0, 6.0]
NEAR_TIES = [t + s * 1e-6 for t in TIES for s in (-1, 1)]


def step_of(activation: Activation) -> Callable[[Tensor, Tensor], list[Tensor]]:
    def step(x: Tensor, g: Tensor) -> list[Tensor]:
        y = activation(x)
        return [y, *torch.autograd.grad(y, [x], g)]

    return step


@EACH
def test_value_and_derivative(name: str) -> None:
    x = (leaf(4, 5, 6, 7).detach() * 5).requires_grad_()
    check_function(step_of(ACTIVATIONS[name]), [x, leaf(4, 5, 6, 7, seed=1, grad=False)])


@EACH
def test_on_its_kinks_it_is_pytorchs(name: str) -> None:
    x = torch.tensor([*TIES, *NEAR_TIES]).view(1, 2, 3, 4).requires_grad_()
    g = torch.full_like(x, 2.0, requires_grad=False)
    step = step_of(ACTIVATIONS[name])
    ours = run_model(lower_function(step, [x, g]), [x, g])
    for found, expected in zip(ours, step(x, g), strict=True):  # in float32: rounding decides
        torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-6, atol=1e-6)


@EACH
@LAYOUTS
def test_between_two_convolutions(name: str, rows_max_pixels: int) -> None:
    """Here a map may be in rows, forward and backward."""

    def step(x: Tensor, a: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
        y = F.conv2d(ACTIVATIONS[name](F.conv2d(x, a) * 3), b)
        return [y, *torch.autograd.grad(y, [x, a, b], g)]

    a, b = leaf(4, 3, 1, 1, seed=1), leaf(5, 4, 1, 1, seed=2)
    g = leaf(2, 5, 4, 3, seed=3, grad=False)
    check_function(step, [leaf(2, 3, 4, 3), a, b, g], (), rows_max_pixels)


FAR = ["silu", "sigmoid", "hardswish", "tanh", "gelu", "gelu by tanh", "softplus", "mish", "selu"]


@pytest.mark.parametrize("name", FAR)
def test_far_from_zero_it_is_finite(name: str) -> None:
    x = torch.tensor([-1e4, -200.0, 200.0, 1e4]).view(1, 1, 2, 2).requires_grad_()
    check_function(step_of(ACTIVATIONS[name]), [x, torch.ones(1, 1, 2, 2)])


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax, F.glu])
@pytest.mark.parametrize("dim", [1, -1])
@pytest.mark.parametrize("shape", [(3, 6), (2, 4, 3, 2)])
def test_activations_along_a_dimension(
    function: Callable[[Tensor, int], Tensor], dim: int, shape: tuple[int, ...]
) -> None:
    def step(x: Tensor, g: Tensor) -> list[Tensor]:
        y = function(x * 3, dim)
        return [y, *torch.autograd.grad(y, [x], g)]

    g = torch.randn_like(function(leaf(*shape, grad=False), dim))
    check_function(step, [leaf(*shape), g])


@LAYOUTS
@pytest.mark.parametrize("slopes", [1, 4])
def test_a_trained_slope(slopes: int, rows_max_pixels: int) -> None:
    def step(x: Tensor, w: Tensor, slope: Tensor, g: Tensor) -> list[Tensor]:
        y = F.prelu(F.conv2d(x, w), slope)
        return [y, *torch.autograd.grad(y, [x, w, slope], g)]

    tensors = [leaf(2, 3, 4, 3), leaf(4, 3, 1, 1, seed=1), leaf(slopes, seed=2)]
    check_function(step, [*tensors, leaf(2, 4, 4, 3, seed=3, grad=False)], (), rows_max_pixels)


def test_two_clips_of_one_tensor_keep_their_own_limits() -> None:
    def step(x: Tensor, g: Tensor) -> list[Tensor]:
        y = F.relu6(x) + F.hardtanh(x)
        return [y, *torch.autograd.grad(y, [x], g)]

    x = (leaf(2, 3, 4, 4).detach() * 5).requires_grad_()
    check_function(step, [x, leaf(2, 3, 4, 4, seed=1, grad=False)])


def test_a_clip_whose_output_nothing_needs() -> None:
    def step(x: Tensor, g: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(F.relu6(x), [x], g))

    x = (leaf(2, 3, 4, 4).detach() * 5).requires_grad_()
    check_function(step, [x, leaf(2, 3, 4, 4, seed=1, grad=False)])
