"""Feature maps of uint8, and convolutions and linear layers with weights of int8."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from pocketune.layers import QuantizedConv2d, QuantizedLinear, Uint8, round_to_int8
from pocketune.layers.quantized import HIGHEST, count_int8_weights

from .kept import kept_bytes, kept_tensors

OPTIONS: list[dict[str, Any]] = [
    {"kernel_size": 1},
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 3, "padding": 1, "stride": 2, "groups": 4},
    {"kernel_size": (3, 1), "dilation": (2, 1), "bias": False},
]


reals = st.floats(-1e4, 1e4, width=32)


@given(reals, reals)
def test_a_format_covers_its_range_and_holds_zero(one: float, two: float) -> None:
    low, high = sorted((one, two))
    found = Uint8.spanning(low, high)
    assert 0 <= found.zero <= HIGHEST
    assert found.scale > 0
    ends = found.dequantize(torch.tensor([0, HIGHEST], dtype=torch.uint8)).tolist()
    slack = found.scale / 2 * (1 + 1e-3) + 1e-30
    assert ends[0] <= min(low, 0) + slack
    assert ends[1] >= max(high, 0) - slack
    assert found.quantize(torch.zeros(1)).item() == found.zero


@given(st.lists(reals, min_size=1, max_size=20))
def test_rounding_is_off_by_half_a_step_at_most(values: list[float]) -> None:
    x = torch.tensor(values)
    found = Uint8.spanning(float(x.min()), float(x.max()))
    back = found.dequantize(found.quantize(x))
    # the offset is rounded too, so that an end of the range may lie half a step outside
    assert ((back - x).abs() <= found.scale * (1 + 1e-3) + 1e-4 * x.abs()).all()
    assert torch.equal(found.quantize(back), found.quantize(x))


@pytest.mark.parametrize("value", [0.0, 1e-38, -1e-38])
def test_a_range_of_nothing_has_a_scale_that_divides(value: float) -> None:
    assert Uint8.spanning(value, value) == Uint8(1.0, 0)


def test_what_is_outside_is_clipped_and_ties_go_to_even() -> None:
    found = Uint8(0.5, 10)
    x = torch.tensor([-100.0, -5.0, 0.25, 0.75, 122.5, 1e6])
    assert found.quantize(x).tolist() == [0, 0, 10, 12, 255, 255]


def test_quantizing_leaves_its_input_alone() -> None:
    x = torch.tensor([1.25, -3.0])
    Uint8(0.5, 10).quantize(x)
    assert x.tolist() == [1.25, -3.0]


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


def test_each_output_channel_has_its_own_scale() -> None:
    weight = torch.tensor([[1000.0, 0.0], [0.001, -0.0005], [0.0, 0.0]])
    whole, scale = round_to_int8(weight)
    assert whole.tolist() == [[127, 0], [127, -64], [0, 0]]
    torch.testing.assert_close(scale, torch.tensor([1000 / 127, 0.001 / 127, 1.0]))


def test_weights_of_8_bits_are_counted_wherever_they_are() -> None:
    conv = QuantizedConv2d.from_convolution(nn.Conv2d(3, 4, 3))
    assert count_int8_weights(nn.Sequential(conv, nn.Sequential(nn.Conv2d(3, 4, 3)))) == 108
    assert count_int8_weights(nn.Sequential(conv, nn.ReLU(), conv)) == 108  # shared: once
    assert count_int8_weights(nn.Linear(2, 2)) == 0


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
