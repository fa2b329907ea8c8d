"""A frozen convolution differentiates as an ordinary one, and keeps nothing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from pocketune.layers import FrozenConv2d

from .kept import kept_bytes


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[nn.Conv2d, Tensor]:
    """A convolution in float64 whose kernel is frozen, and an input for it."""
    pair = lambda low, high: (draw(st.integers(low, high)), draw(st.integers(low, high)))  # noqa: E731
    kernel, dilation, groups = pair(1, 4), pair(1, 2), draw(st.integers(1, 3))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    inputs, outputs = pair(1, 2)
    conv = nn.Conv2d(
        inputs * groups,
        outputs * groups,
        kernel,
        pair(1, 3),
        pair(0, 2),
        dilation,
        groups,
        bias=draw(st.booleans()),
        dtype=torch.float64,
    )
    conv.weight.requires_grad_(False)
    size = [draw(st.integers(r, r + 5)) for r in reach]
    return conv, torch.randn(2, conv.in_channels, *size, dtype=torch.float64)


@given(convolutions())
@settings(max_examples=60)
def test_forward_and_gradients(case: tuple[nn.Conv2d, Tensor]) -> None:
    conv, x = case
    x.requires_grad_()
    wanted = [x] if conv.bias is None else [x, conv.bias]
    frozen = FrozenConv2d.from_convolution(conv)
    expected, found = conv(x), frozen(x)
    torch.testing.assert_close(found, expected)
    upstream = torch.randn_like(expected)
    for ours, exact in zip(
        torch.autograd.grad(found, wanted, upstream),
        torch.autograd.grad(expected, wanted, upstream),
        strict=True,
    ):
        torch.testing.assert_close(ours, exact)


def test_keeps_nothing_but_its_own_kernel() -> None:
    conv = nn.Conv2d(4, 4, 3, groups=4, padding=1).requires_grad_(False)
    x = torch.randn(2, 4, 5, 5, requires_grad=True)
    assert kept_bytes(conv, x) == x.nbytes
    assert kept_bytes(FrozenConv2d.from_convolution(conv), x) == 0


def test_a_trained_bias_below_which_nothing_is_trained() -> None:
    conv = nn.Conv2d(3, 4, 3)
    conv.weight.requires_grad_(False)
    frozen = FrozenConv2d.from_convolution(conv)
    y = frozen(torch.randn(2, 3, 5, 5))
    (gradient,) = torch.autograd.grad(y, [frozen.bias], torch.ones_like(y))
    torch.testing.assert_close(gradient, torch.full((4,), 18.0))


@pytest.mark.parametrize("bias", [True, False])
def test_a_kernel_that_is_unfrozen_is_trained(bias: bool) -> None:
    conv = nn.Conv2d(3, 4, 3, bias=bias).requires_grad_(False)
    frozen = FrozenConv2d.from_convolution(conv).requires_grad_(True)
    x = torch.randn(2, 3, 5, 5, requires_grad=True)
    wanted = [x, *frozen.parameters()]
    upstream = torch.randn(2, 4, 3, 3)
    found = torch.autograd.grad(frozen(x), wanted, upstream)
    torch.testing.assert_close(found, torch.autograd.grad(conv(x), wanted, upstream))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_the_memory_format_stays(memory_format: torch.memory_format) -> None:
    conv = nn.Conv2d(4, 6, 3, padding=1).requires_grad_(False).to(memory_format=memory_format)
    frozen = FrozenConv2d.from_convolution(conv)
    x = torch.randn(2, 4, 5, 5).to(memory_format=memory_format).requires_grad_()
    y = frozen(x)
    (gradient,) = torch.autograd.grad(y, x, torch.randn(2, 6, 5, 5))
    assert y.is_contiguous(memory_format=memory_format)
    assert gradient.is_contiguous(memory_format=memory_format)


def test_parameters_are_the_same_objects_under_the_same_names() -> None:
    conv = nn.Conv2d(3, 4, 3).eval()
    frozen = FrozenConv2d.from_convolution(conv)
    assert frozen.weight is conv.weight
    assert frozen.bias is conv.bias
    assert list(frozen.state_dict()) == list(conv.state_dict())
    assert repr(frozen) == repr(conv).replace("Conv2d", "FrozenConv2d")
    assert not frozen.training
