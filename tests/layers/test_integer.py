"""Convolutions in 8-bit arithmetic against the same numbers in float32."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.layers import FrozenBatchNorm2d, IntegerConv2d, QuantizedConv2d, Uint8
from pocketune.layers.conv import Conv2d
from pocketune.layers.integer import ACTIVATIONS, computes_integers

FORMAT = Uint8(0.05, 96)
OPTIONS: list[dict[str, Any]] = [
    {"kernel_size": 1},
    {"kernel_size": 3, "padding": 1, "stride": 2, "groups": 16},
    {"kernel_size": 5, "padding": 2},
    {"kernel_size": 3, "padding": 2, "dilation": 2, "bias": False},
]


def layers(activation: str = "none", **options: Any) -> tuple[QuantizedConv2d, FrozenBatchNorm2d]:
    torch.manual_seed(0)
    options = {"kernel_size": 1, **options}
    conv = QuantizedConv2d.from_convolution(nn.Conv2d(16, 16, **options).requires_grad_(False))
    norm = FrozenBatchNorm2d(16).requires_grad_(False)
    norm.weight.data.normal_()  # of either sign
    norm.weight.data[3] = 0
    norm.bias.data.normal_()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    return conv, norm


def maps() -> Tensor:
    return FORMAT.dequantize(torch.randint(0, 256, (2, 16, 9, 8), dtype=torch.uint8))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_it_is_convolution_norm_and_activation(activation: str, options: dict[str, Any]) -> None:
    """From values that uint8 can hold there is nothing to round."""
    conv, norm = layers(**options)
    x = maps()
    expected = norm(conv(x))
    if activation != "none":
        expected = getattr(functional, activation)(expected)
    fused = IntegerConv2d.fuse(conv, norm, activation, FORMAT, None)
    torch.testing.assert_close(fused(x), expected, atol=2e-4, rtol=1e-4)
    whole = FORMAT.quantize(x)
    assert torch.equal(fused(whole), fused(x))
    torch.testing.assert_close(fused.in_floats(whole), expected, atol=2e-4, rtol=1e-4)


def test_same_padding_of_uint8_is_its_own_zero() -> None:
    torch.manual_seed(0)
    conv = Conv2d(16, 16, 3, stride=2, same_padding=True).requires_grad_(False)
    conv = QuantizedConv2d.from_convolution(conv)
    fused = IntegerConv2d.fuse(conv, None, "none", FORMAT, None)
    x = maps()
    assert torch.equal(fused(FORMAT.quantize(x)), fused(x))
    torch.testing.assert_close(fused(x), conv(x), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("options", OPTIONS)
def test_uint8_comes_out_where_it_is_asked_for(options: dict[str, Any]) -> None:
    conv, norm = layers(**options)
    out = Uint8.spanning(-1.0, 2.5)  # less than comes out: ends are cut off
    fused = IntegerConv2d.fuse(conv, norm, "hardswish", FORMAT, out)
    whole = FORMAT.quantize(maps())
    y = fused(whole)
    assert y.dtype == torch.uint8
    assert y.amax() == 255
    reference = fused.in_floats(whole)
    assert int((y.int() - reference.int()).abs().max()) <= 1  # a tie, rounded either way


def test_without_the_operator_the_reference_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    conv, norm = layers()
    fused = IntegerConv2d.fuse(conv, norm, "relu6", FORMAT, None)
    x = maps()
    expected = fused(x)
    monkeypatch.setattr("pocketune.layers.integer.computes_integers", lambda: False)
    torch.testing.assert_close(fused(x), expected, atol=2e-4, rtol=1e-4)


@pytest.mark.skipif(not computes_integers(), reason="PyTorch has no exact int8 convolution here")
def test_largest_sums_are_not_cut_off() -> None:
    conv = nn.Conv2d(960, 4, 1, bias=False).requires_grad_(False)
    conv.weight.fill_(1.0)
    layer = QuantizedConv2d.from_convolution(conv)
    fused = IntegerConv2d.fuse(layer, None, "none", Uint8(1.0, 0), None)
    y = fused(torch.full((1, 960, 2, 2), 255, dtype=torch.uint8))
    torch.testing.assert_close(y, torch.full_like(y, 960.0 * 255))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_computes_the_same(copied) -> None:
    """The packed kernel is opaque, and is packed again."""
    conv, norm = layers()
    fused = IntegerConv2d.fuse(conv, norm, "relu", FORMAT, None)
    x = maps()
    expected = fused(x)
    other = copied(fused)
    assert other._packed is None
    assert torch.equal(other(x), expected)


@pytest.mark.parametrize("output", [None, Uint8(0.125, 3)])
def test_formats_travel_with_the_state(output: Uint8 | None) -> None:
    layer = IntegerConv2d.fuse(*layers(), "relu", FORMAT, output)
    other = IntegerConv2d.fuse(*layers(), "relu", FORMAT, Uint8(9.0, 9))
    x = maps()
    other(x)  # packs its own kernel, if integers are computed here
    other.load_state_dict(layer.state_dict())
    assert (other.input_format, other.output_format) == (layer.input_format, output)
    assert torch.equal(other(x), layer(x))
