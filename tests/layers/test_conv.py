"""Padding is the same in every layer; a frozen convolution is exact and keeps nothing."""

import copy
import io
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from pocketune.filtering import FilteredConv2d, filter_convolution
from pocketune.layers import FrozenConv2d, QuantizedConv2d, StandardizedConv2d
from pocketune.layers.conv import Conv2d

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


# ---- "SAME" padding, which is one rule for all treatments of the kernel


def standardized_and_filtered(conv: nn.Conv2d) -> FilteredConv2d:
    return filter_convolution(StandardizedConv2d.from_convolution(conv))


TREATMENTS: dict[str, Callable[[nn.Conv2d], Conv2d]] = {
    "plain": Conv2d.from_convolution,
    "frozen": FrozenConv2d.from_convolution,
    "quantized": QuantizedConv2d.from_convolution,
    "standardized": StandardizedConv2d.from_convolution,
    "filtered": FilteredConv2d.from_convolution,
    "filtered and standardized": standardized_and_filtered,
}
every = pytest.mark.parametrize("treatment", TREATMENTS)


def treated(treatment: str, *, same: bool) -> Conv2d:
    """A strided convolution of float64 that pads by itself or not at all."""
    torch.manual_seed(0)
    conv = Conv2d(4, 6, 3, stride=2, groups=2, same_padding=same, dtype=torch.float64)
    conv.weight.requires_grad_(treatment not in ("frozen", "quantized"))
    return TREATMENTS[treatment](conv)


@every
def test_same_padding_is_zeros_around_the_input(treatment: str) -> None:
    x = torch.randn(2, 4, 7, 8, dtype=torch.float64, requires_grad=True)
    padded = functional.pad(x, (0, 1, 1, 1))
    layer, reference = treated(treatment, same=True), treated(treatment, same=False)
    y, expected = layer(x), reference(padded)
    assert torch.equal(y, expected)
    assert y.shape == (2, 6, 4, 4)
    g = torch.randn_like(y)
    pairs = [
        torch.autograd.grad(out, [x, *(p for p in m.parameters() if p.requires_grad)], g)
        for out, m in ((y, layer), (expected, reference))
    ]
    assert all(map(torch.equal, *pairs))


@every
def test_same_padding_of_an_image_without_a_batch(treatment: str) -> None:
    layer = treated(treatment, same=True)
    x = torch.randn(4, 7, 8, dtype=torch.float64)
    torch.testing.assert_close(layer(x), layer(x.unsqueeze(0)).squeeze(0))


@every
def test_copies_and_files_keep_the_padding(treatment: str) -> None:
    layer, file = treated(treatment, same=True), io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    x = torch.randn(2, 4, 7, 8, dtype=torch.float64)
    for twin in (copy.deepcopy(layer), loaded):
        assert type(twin) is type(layer)
        assert torch.equal(twin(x), layer(x))


@every
def test_a_layer_that_pads_is_exported_as_pytorchs_own_operators(treatment: str) -> None:
    layer, x = treated(treatment, same=True).eval(), torch.randn(1, 4, 7, 8, dtype=torch.float64)
    with torch.no_grad():
        program = torch.export.export(layer, (x,))
        torch.testing.assert_close(program.module()(x), layer(x))
    assert not [node for node in program.graph.nodes if "pocketune" in str(node.target)]


@pytest.mark.parametrize("treatment", sorted(TREATMENTS.keys() - {"quantized"}))
def test_the_state_dict_is_that_of_pytorchs_convolution(treatment: str) -> None:
    conv = nn.Conv2d(4, 6, 3)
    layer = TREATMENTS[treatment](conv)
    assert list(layer.state_dict()) == ["weight", "bias"]
    assert layer.weight is conv.weight
    assert layer.bias is conv.bias


def test_says_that_it_pads() -> None:
    text = "Conv2d(3, 4, kernel_size=(3, 3), stride=(2, 2), same_padding=True)"
    assert repr(Conv2d(3, 4, 3, stride=2, same_padding=True)) == text
    assert repr(Conv2d(3, 4, 3)) == repr(nn.Conv2d(3, 4, 3))
