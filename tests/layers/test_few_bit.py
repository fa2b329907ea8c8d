"""Activations of a few bits: exact forward, the table's derivative backward, the bits kept."""

import pytest
import torch
from torch import Tensor, nn

from pocketune.layers.few_bit import FEW_BIT, FewBitActivation, few_bit
from pocketune.layers.slopes import BITS, pack_slopes, scale_by_slopes

from .kept import kept_tensors

EXACT = [nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Hardswish()]
FORMATS = (torch.contiguous_format, torch.channels_last)
each = pytest.mark.parametrize("exact", EXACT, ids=str)
with_bits = pytest.mark.parametrize("bits", BITS)


def inputs(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 3
    return drawn.to(dtype).requires_grad_()


def slope(layer: FewBitActivation, x: Tensor) -> Tensor:
    """The table's derivative at each element."""
    arguments = (layer.derivative, layer.bits, False)
    packed = pack_slopes(x.detach().contiguous(), *arguments)
    return scale_by_slopes(torch.ones_like(x).contiguous(), packed, *arguments)


def test_every_class_has_an_exact_one() -> None:
    assert {type(exact) for exact in EXACT} == FEW_BIT.keys()


@each
@with_bits
def test_the_forward_pass_is_exact(exact: nn.Module, bits: int) -> None:
    x = inputs(2, 5, 7, 3)
    assert torch.equal(few_bit(exact, bits)(x), exact(x))
    assert few_bit(exact, bits)(x.detach()).grad_fn is None


@each
@with_bits
@pytest.mark.parametrize("memory_format", FORMATS)
def test_the_backward_pass_is_the_tables(
    exact: nn.Module, bits: int, memory_format: torch.memory_format
) -> None:
    x = inputs(2, 5, 7, 3).detach().to(memory_format=memory_format).requires_grad_()
    layer, g = few_bit(exact, bits), torch.randn(2, 5, 7, 3)
    y = layer(x)
    (found,) = torch.autograd.grad(y, x, g)
    torch.testing.assert_close(found, g * slope(layer, x))
    assert y.is_contiguous(memory_format=memory_format)
    assert found.is_contiguous(memory_format=memory_format)


@each
def test_eight_bits_are_near_the_exact_gradient(exact: nn.Module) -> None:
    x = inputs(50, 50)
    (found,) = torch.autograd.grad(few_bit(exact, 8)(x).sum(), x)
    (expected,) = torch.autograd.grad(exact(x).sum(), x)
    assert (found - expected).norm() < 0.04 * expected.norm()


@each
@with_bits
@pytest.mark.parametrize("shape", [(8, 6, 5, 4), (3, 5, 7, 3), (17,), (0, 3, 2, 2)])
def test_keeps_its_bits(exact: nn.Module, bits: int, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, requires_grad=True)
    kept = sum(t.nbytes for t in kept_tensors(few_bit(exact, bits), x))
    assert kept == -(-x.numel() * bits // 8)


@each
def test_second_derivatives_take_the_slopes_for_constants(exact: nn.Module) -> None:
    """Of the squared activation: `2 y s` has the derivative `2 s**2`, s being the slope."""
    layer, x = few_bit(exact, 4), inputs(2, 5, 7, 3)
    (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 2 * slope(layer, x).square())


@each
def test_gradients_of_each_image(exact: nn.Module) -> None:
    layer, x = few_bit(exact, 2), inputs(3, 5, 7).detach()
    found = torch.func.vmap(torch.func.grad(lambda one: layer(one).sum()))(x)
    torch.testing.assert_close(found, slope(layer, x))


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_precision(exact: nn.Module, dtype: torch.dtype) -> None:
    layer, x = few_bit(exact, 4), inputs(2, 5, 7, 3, dtype=dtype)
    y = layer(x)
    (found,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert y.dtype == found.dtype == dtype
    torch.testing.assert_close(found.double(), slope(layer, x.double()), rtol=1e-2, atol=1e-3)


def test_it_prints_its_bits() -> None:
    assert repr(few_bit(nn.GELU("tanh"), 2)) == "FewBitGELU(bits=2)"
