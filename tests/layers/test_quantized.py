"""Convolutions and linear layers with weights of int8."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from pocketune.layers import QuantizedConv2d, QuantizedLinear, round_to_int8
from pocketune.layers.quantized import count_int8_weights

from .kept import kept_bytes, kept_tensors

OPTIONS: list[dict[str, Any]] = [
    {"kernel_size": 1},
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 3, "padding": 1, "stride": 2, "groups": 4},
    {"kernel_size": (3, 1), "dilation": (2, 1), "bias": False},
]


def dequantized(layer: QuantizedConv2d) -> Tensor:
    return layer.weight_int8 * layer.weight_scale.view(-1, 1, 1, 1)


@given(
    rows=st.integers(1, 5),
    columns=st.integers(1, 9),
    magnitude=st.floats(1e-20, 1e20),
    seed=st.integers(0, 99),
)
def test_rounding(rows: int, columns: int, magnitude: float, seed: int) -> None:
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * magnitude
    whole, scale = round_to_int8(weight)
    assert whole.dtype == torch.int8
    assert whole.abs().amax() == 127
    rounded = whole * scale[:, None]
    assert bool(((rounded - weight).abs() <= scale[:, None] * 0.501).all())
    again, same = round_to_int8(rounded)
    assert torch.equal(again, whole)
    torch.testing.assert_close(same, scale)


def test_a_channel_of_zeros_stays() -> None:
    whole, scale = round_to_int8(torch.zeros(2, 3, 1, 1))
    assert not whole.any()
    assert scale.isfinite().all()


@pytest.mark.parametrize("options", OPTIONS)
def test_it_is_the_convolution_with_the_rounded_kernel(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(4, 8, **options).double()
    layer = QuantizedConv2d.from_convolution(conv)
    reference = nn.Conv2d(4, 8, **options).double()
    reference.load_state_dict(conv.state_dict())
    reference.weight.data = dequantized(layer)
    x = torch.randn(2, 4, 7, 6, dtype=torch.float64)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, expected = layer(ours), reference(theirs)
    torch.testing.assert_close(y, expected)
    g = torch.randn_like(y)
    y.backward(g)
    expected.backward(g)
    torch.testing.assert_close(ours.grad, theirs.grad)
    if conv.bias is not None:
        assert layer.bias is conv.bias
        torch.testing.assert_close(layer.bias.grad, reference.bias.grad)


def test_nothing_but_the_int8_kernel_is_kept() -> None:
    layer = QuantizedConv2d.from_convolution(nn.Conv2d(4, 8, 3))
    kept = kept_tensors(layer, torch.randn(1, 4, 5, 5, requires_grad=True))
    own = {buffer.data_ptr() for buffer in layer.buffers()}
    assert {tensor.data_ptr() for tensor in kept} == own


def test_the_state_dict_is_int8() -> None:
    torch.manual_seed(0)
    layers = [QuantizedConv2d.from_convolution(nn.Conv2d(4, 8, 3)) for _ in range(2)]
    state = layers[0].state_dict()
    assert {name: t.dtype for name, t in state.items()} == {
        "bias": torch.float32,
        "weight_int8": torch.int8,
        "weight_scale": torch.float32,
    }
    layers[1].load_state_dict(state)
    x = torch.randn(1, 4, 5, 5)
    assert torch.equal(layers[0](x), layers[1](x))


@pytest.mark.parametrize("shape", [(3, 6), (2, 4, 6)])
def test_a_linear_layer_in_8_bits_computes_with_its_rounded_weight(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(6, 5)
    layer = QuantizedLinear.from_linear(linear)
    whole, scale = round_to_int8(linear.weight)
    exact = nn.Linear(6, 5).double()
    with torch.no_grad():
        exact.weight.copy_(whole * scale[:, None])
        exact.bias.copy_(linear.bias)
    assert layer.bias is linear.bias
    assert {*layer.state_dict()} == {"bias", "weight_int8", "weight_scale"}
    x, g = torch.randn(*shape, requires_grad=True), torch.randn(*shape[:-1], 5)
    y = layer(x)
    expected = exact(x.double())
    torch.testing.assert_close(y, expected.float())
    for ours, theirs in zip(
        torch.autograd.grad(y, [x, layer.bias], g),
        torch.autograd.grad(expected, [x, exact.bias], g.double()),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs.to(ours.dtype))
    torch.testing.assert_close(layer.eval()(x.detach()), expected.detach().float())


def test_a_linear_layer_in_8_bits_keeps_its_int8_weight_alone() -> None:
    layer, x = QuantizedLinear.from_linear(nn.Linear(6, 5)), torch.randn(4, 6, requires_grad=True)
    assert kept_bytes(layer, x) == 0
    assert count_int8_weights(nn.Sequential(layer)) == 30
