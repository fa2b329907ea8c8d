"""Batch norm on batch statistics and on running ones, with its gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from ..lowering import (
    ALWAYS_ROWS,
    LAYOUTS,
    NEVER_ROWS,
    Function,
    check_function,
    leaf,
    lower_function,
    operators,
    run_model,
)

MOMENTUM, EPS = 0.1, 1e-5
STATISTICS = (4, 5)


def norm_step(training: bool, pointwise: bool) -> Function:
    """A norm behind a 1x1 convolution, which may put it on rows, or behind a sum."""

    def step(
        x: Tensor, w: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, g: Tensor
    ) -> list[Tensor]:
        y = F.conv2d(x, w) if pointwise else x + w
        y = F.batch_norm(y, mean, var, weight, bias, training, MOMENTUM, EPS)
        return [y, *torch.autograd.grad(y, [x, weight, bias], g)]

    return step


def tensors_of(
    batch: int, channels: int, size: tuple[int, int], pointwise: bool = False
) -> list[Tensor]:
    x, g = leaf(batch, channels, *size), leaf(batch, channels, *size, seed=6, grad=False)
    w = leaf(channels, channels, 1, 1, seed=1) if pointwise else leaf(1, channels, 1, 1, seed=1)
    mean, var = leaf(channels, seed=4, grad=False), leaf(channels, seed=5, grad=False).abs() + 0.1
    return [x, w, leaf(channels, seed=2), leaf(channels, seed=3), mean, var, g]


@pytest.mark.parametrize("training", [True, False])
@LAYOUTS
def test_of_vectors(training: bool, rows_max_pixels: int) -> None:
    def step(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> list[Tensor]:
        y = F.batch_norm(x, mean, var, weight, bias, training, MOMENTUM, EPS)
        return [y, *torch.autograd.grad(y, [x, weight, bias], x.square())]

    _, _, *per_channel, _ = tensors_of(4, 5, (1, 1))
    tensors = [leaf(4, 5), *per_channel]
    statistics = (3, 4) if training else ()
    check_function(step, tensors, (), rows_max_pixels, 1e-4, statistics)


def of_values(tensors: list[Tensor], values: Tensor | float) -> list[Tensor]:
    """The norm's input is `values`: they replace `x`, and nothing is added."""
    with torch.no_grad():
        tensors[0].copy_(torch.as_tensor(values))
        tensors[1].zero_()
    return tensors


@settings(max_examples=25)
@given(
    batch=st.integers(2, 4),
    channels=st.integers(1, 5),
    size=st.tuples(st.integers(3, 6), st.integers(1, 6)),
    training=st.booleans(),
    rows_max_pixels=st.sampled_from([ALWAYS_ROWS, NEVER_ROWS]),
    pointwise=st.booleans(),
)
def test_every_shape_and_layout(
    batch: int,
    channels: int,
    size: tuple[int, int],
    training: bool,
    rows_max_pixels: int,
    pointwise: bool,
) -> None:
    check_function(
        norm_step(training, pointwise),
        tensors_of(batch, channels, size, pointwise),
        rows_max_pixels=rows_max_pixels,
        tolerance=1e-4,
        statistics=STATISTICS if training else (),
    )


@LAYOUTS
def test_one_pixel_maps(rows_max_pixels: int) -> None:
    step, tensors = norm_step(True, True), tensors_of(6, 3, (1, 1), pointwise=True)
    check_function(step, tensors, (), rows_max_pixels, 1e-4, STATISTICS)


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5)])
@pytest.mark.parametrize("training", [True, False])
def test_vectors_as_those_of_a_head(shape: tuple[int, ...], training: bool) -> None:
    def step(
        x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, g: Tensor
    ) -> list[Tensor]:
        y = F.batch_norm(x * 2, mean, var, weight, bias, training, MOMENTUM, EPS)
        return [y, *torch.autograd.grad(y, [x, weight, bias], g)]

    tensors = [leaf(*shape), leaf(3, seed=2), leaf(3, seed=3), torch.zeros(3), torch.ones(3)]
    tensors.append(leaf(*shape, seed=4, grad=False))
    statistics = (3, 4) if training else ()
    check_function(step, tensors, tolerance=1e-4, statistics=statistics)


@LAYOUTS
def test_the_running_variance_is_unbiased(rows_max_pixels: int) -> None:
    tensors = of_values(tensors_of(2, 1, (1, 2)), torch.tensor([1.0, 2, 3, 6]).view(2, 1, 1, 2))
    tensors[4].zero_()
    tensors[5].zero_()
    step = norm_step(training=True, pointwise=False)
    model = lower_function(step, tensors, (), rows_max_pixels, STATISTICS)
    *_, mean, variance = run_model(model, tensors)
    assert mean == pytest.approx(0.1 * 3)
    assert variance == pytest.approx(0.1 * (4 + 1 + 0 + 9) / 3)


@LAYOUTS
@pytest.mark.parametrize("offset", [1e3, -1e4])
def test_a_mean_far_above_the_deviation_does_not_cancel(
    rows_max_pixels: int, offset: float
) -> None:
    """The mean of squares less the squared mean would have lost every digit here."""

    def step(
        x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, g: Tensor
    ) -> list[Tensor]:
        y = F.batch_norm(x * 1.0, mean, var, weight, bias, True, MOMENTUM, EPS)
        return [y, *torch.autograd.grad(y, [x, weight, bias], g)]

    x = (leaf(4, 3, 5, 5).detach() + offset).requires_grad_()
    tensors = [x, torch.zeros(3), torch.ones(3), leaf(3, seed=2), leaf(3, seed=3)]
    tensors.append(leaf(4, 3, 5, 5, seed=4, grad=False))
    # the mean is rounded to 1e-7 of itself, whoever computes it
    tolerance = 1e-6 * abs(offset)
    check_function(step, tensors, (), rows_max_pixels, tolerance, statistics=(1, 2))


def behind_convolution(offset: float, running: float) -> list[Tensor]:
    """Inputs of `norm_step` whose norm reads values of about this mean and a deviation of 1."""
    tensors = tensors_of(4, 3, (5, 5), pointwise=True)
    with torch.no_grad():
        tensors[0].add_(offset)
        tensors[1].copy_(torch.eye(3).view(3, 3, 1, 1))
        tensors[4].fill_(running)
    return tensors


@LAYOUTS
@pytest.mark.parametrize("offset", [0.0, 300.0, -3e3])
def test_the_running_mean_keeps_large_ones_from_cancelling(
    rows_max_pixels: int, offset: float
) -> None:
    tensors = behind_convolution(offset, offset + 0.4)
    step = norm_step(training=True, pointwise=True)
    tolerance = max(2e-6 * abs(offset), 1e-4)  # a convolution of x alone is rounded to 1e-7 of it
    model = check_function(step, tensors, (), rows_max_pixels, tolerance, STATISTICS)
    assert "BatchNormalization" not in operators(model)


@LAYOUTS
def test_a_running_mean_that_is_far_off_costs_no_more_than_digits(rows_max_pixels: int) -> None:
    tensors = behind_convolution(20.0, -20.0)
    step = norm_step(training=True, pointwise=True)
    check_function(step, tensors, (), rows_max_pixels, 2e-3, STATISTICS)


@LAYOUTS
def test_a_channel_of_zeros_behind_a_convolution_is_finite(rows_max_pixels: int) -> None:
    tensors = behind_convolution(7.0, 0.0)
    with torch.no_grad():
        tensors[1].zero_()
    step = norm_step(training=True, pointwise=True)
    check_function(step, tensors, (), rows_max_pixels, 1e-4, STATISTICS)


@LAYOUTS
def test_a_convolution_with_other_readers_keeps_its_values(rows_max_pixels: int) -> None:
    def step(
        x: Tensor, w: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, g: Tensor
    ) -> list[Tensor]:
        made = F.conv2d(x, w)
        y = F.batch_norm(made, mean, var, weight, bias, True, MOMENTUM, EPS) + made
        return [y, *torch.autograd.grad(y, [x, w, weight, bias], g)]

    tensors = tensors_of(3, 4, (4, 5), pointwise=True)
    model = check_function(step, tensors, (), rows_max_pixels, 1e-4, STATISTICS)
    assert "BatchNormalization" not in operators(model)


@LAYOUTS
@pytest.mark.parametrize("value", [0.0, 0.7, 1e4])
def test_a_constant_channel_is_finite(rows_max_pixels: int, value: float) -> None:
    tensors = of_values(tensors_of(3, 2, (4, 4)), value)
    step = norm_step(training=True, pointwise=False)
    model = lower_function(step, tensors, (), rows_max_pixels, STATISTICS)
    assert all(np.isfinite(output).all() for output in run_model(model, tensors))


@LAYOUTS
@pytest.mark.parametrize("training", [True, False])
def test_frozen_scale_and_shift(rows_max_pixels: int, training: bool) -> None:
    def step(
        x: Tensor, mean: Tensor, var: Tensor, g: Tensor, weight: Tensor, bias: Tensor
    ) -> list[Tensor]:
        y = F.batch_norm(x * 2, mean, var, weight, bias, training, MOMENTUM, EPS)
        return [y, *torch.autograd.grad(y, [x], g)]

    x, mean, var = leaf(2, 3, 4, 5), leaf(3, grad=False), torch.ones(3)
    g = leaf(2, 3, 4, 5, seed=1, grad=False)
    constants = [leaf(3, seed=2, grad=False), leaf(3, seed=3, grad=False)]
    check_function(step, [x, mean, var, g], constants, rows_max_pixels, 1e-4)


def test_a_norm_that_is_called_twice_updates_its_statistics_twice() -> None:
    def step(x: Tensor, mean: Tensor, var: Tensor) -> list[Tensor]:
        weight, bias = torch.ones(2, dtype=x.dtype), torch.zeros(2, dtype=x.dtype)
        first = F.batch_norm(x, mean, var, weight, bias, True, MOMENTUM, EPS)
        return [first + F.batch_norm(x * 3, mean, var, weight, bias, True, MOMENTUM, EPS)]

    tensors = [leaf(2, 2, 3, 3, grad=False), torch.zeros(2), torch.ones(2)]
    check_function(step, tensors, statistics=(1, 2))
