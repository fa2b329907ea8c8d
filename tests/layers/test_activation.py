"""Forward as the ordinary activations, backward as documented, one bit an element kept."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pocketune.layers import (
    MaskedReLU,
    MaskedReLU6,
    SignedHardswish,
    SignedReLU,
    SignedReLU6,
)

from .kept import kept_tensors

SIGNED = {SignedReLU: nn.ReLU, SignedReLU6: nn.ReLU6, SignedHardswish: nn.Hardswish}
MASKED = {MaskedReLU: nn.ReLU, MaskedReLU6: nn.ReLU6}
EVERY = {**SIGNED, **MASKED}
FORMATS = (torch.contiguous_format, torch.channels_last)

signed = pytest.mark.parametrize("layer", SIGNED)
masked = pytest.mark.parametrize("layer", MASKED)
every = pytest.mark.parametrize("layer", EVERY)
Layer = Callable[[], nn.Module]


def inputs(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random numbers with every kink among them, zeros of both signs included."""
    kinks = torch.tensor([-6.0, -3.0, -0.0, 0.0, 3.0, 6.0, 7.0], dtype=dtype)
    x = torch.randn(shape, dtype=dtype) * 4
    x.view(-1)[: len(kinks)] = kinks
    return x.requires_grad_()


def gradient(layer: nn.Module, x: Tensor, upstream: Tensor) -> Tensor:
    return torch.autograd.grad(layer(x), x, upstream)[0]


@every
def test_forward_is_the_ordinary_activation(layer: type[nn.Module]) -> None:
    x = inputs(2, 5, 7, 3)
    assert torch.equal(layer()(x), EVERY[layer]()(x))


@signed
def test_the_gradient_passes_where_the_input_is_not_negative(layer: Layer) -> None:
    x, upstream = inputs(2, 5, 7, 3), torch.randn(2, 5, 7, 3, dtype=torch.float64)
    expected = upstream * (x >= 0)
    torch.testing.assert_close(gradient(layer(), x, upstream), expected, rtol=0, atol=0)


@signed
def test_the_gradient_passes_at_either_zero(layer: Layer) -> None:
    x = torch.tensor([0.0, -0.0, -1e-45], requires_grad=True)
    assert gradient(layer(), x, torch.ones(3)).tolist() == [1, 1, 0]


@masked
def test_the_gradient_is_the_ordinary_activations(layer: type[nn.Module]) -> None:
    x, upstream = inputs(2, 5, 7, 3), torch.randn(2, 5, 7, 3, dtype=torch.float64)
    expected = gradient(MASKED[layer](), x, upstream)
    torch.testing.assert_close(gradient(layer(), x, upstream), expected, rtol=0, atol=0)


@every
@pytest.mark.parametrize("memory_format", FORMATS)
def test_second_derivatives_pass_where_the_first_do(
    layer: Layer, memory_format: torch.memory_format
) -> None:
    """Of the squared activation: the gradient of `y * y` has one in y, which is masked in turn."""
    x = inputs(2, 5, 7, 3).detach().to(memory_format=memory_format).requires_grad_()
    y = layer()(x)
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = torch.autograd.grad((second * y).sum(), x)
    passes = gradient(layer(), x, torch.ones_like(x))
    torch.testing.assert_close(second.detach(), 2 * passes, rtol=0, atol=0)
    torch.testing.assert_close(third, 2 * passes, rtol=0, atol=0)


@masked
def test_second_derivatives_are_the_ordinary_activations(layer: type[nn.Module]) -> None:
    x, weight = inputs(2, 5, 7, 3), torch.randn(2, 5, 7, 3, dtype=torch.float64)

    def second(activation: nn.Module) -> Tensor:
        y = activation(x * x - 1)
        (first,) = torch.autograd.grad((weight * y.sin()).sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    torch.testing.assert_close(second(layer()), second(MASKED[layer]()))


@every
@pytest.mark.parametrize("shape", [(8, 6, 5, 4), (3, 5, 7, 3), (17,), (0, 3, 2, 2)])
def test_keeps_one_bit_an_element(layer: Layer, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, requires_grad=True)
    assert sum(t.nbytes for t in kept_tensors(layer(), x)) == (x.numel() + 7) // 8


@every
@pytest.mark.parametrize("upstream_format", FORMATS)
@pytest.mark.parametrize("memory_format", FORMATS)
def test_the_memory_format_stays(
    layer: Layer, memory_format: torch.memory_format, upstream_format: torch.memory_format
) -> None:
    x, upstream = inputs(2, 5, 7, 3), torch.randn(2, 5, 7, 3, dtype=torch.float64)
    expected = gradient(layer(), x, upstream)
    x = x.detach().to(memory_format=memory_format).requires_grad_()
    y = layer()(x)
    assert y.is_contiguous(memory_format=memory_format)
    (found,) = torch.autograd.grad(y, x, upstream.to(memory_format=upstream_format))
    assert found.is_contiguous(memory_format=memory_format)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@every
def test_without_a_gradient_it_is_only_a_forward_pass(layer: Layer) -> None:
    assert layer()(torch.randn(2, 3)).grad_fn is None


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_every_precision(layer: Layer, dtype: torch.dtype) -> None:
    x = inputs(2, 5, 7, 3, dtype=dtype)
    y = layer()(x)
    (found,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert y.dtype == found.dtype == dtype
    exact = x.detach().double().requires_grad_()
    expected = gradient(layer(), exact, torch.ones_like(exact))
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=0)
