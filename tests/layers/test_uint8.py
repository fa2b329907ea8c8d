"""Formats of 8 bits, kernels of 8 bits and what a layer of integers remembers."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from pocketune.errors import PocketuneError
from pocketune.layers import FrozenBatchNorm2d, StandardizedConv2d
from pocketune.layers.integer import IntegerConv2d
from pocketune.layers.quantized import (
    HIGHEST,
    LARGEST,
    QuantizedConv2d,
    Uint8,
    count_int8_weights,
    dequantize,
    round_to_int8,
)
from pocketune.layers.side_branch import LiteResidual, ProgramModule
from pocketune.layers.weight_standardization import (
    standardize,
    standardize_convolution,
    standardized,
)

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


@given(
    st.lists(st.lists(reals, min_size=3, max_size=3), min_size=1, max_size=4),
    st.integers(-10, 10),
)
def test_rounding_a_kernel_again_changes_nothing(rows: list[list[float]], exponent: int) -> None:
    weight = torch.tensor(rows, dtype=torch.float64) * 2.0**exponent
    whole, scale = round_to_int8(weight)
    assert whole.abs().max() <= LARGEST
    found = dequantize(whole, scale)
    assert ((found - weight).abs() <= scale[:, None] / 2 * (1 + 1e-9)).all()
    again, _ = round_to_int8(found)
    assert torch.equal(again, whole)


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


def norm(channels: int) -> FrozenBatchNorm2d:
    made = FrozenBatchNorm2d(channels)
    nn.init.normal_(made.weight)
    with torch.no_grad():
        made.weight[0] = 0.0
        made.bias.copy_(torch.arange(channels) - 1.0)
        made.running_mean.uniform_(-1, 1)
        made.running_var.uniform_(0.5, 2)
    return made


@pytest.mark.parametrize("activation", ["none", "relu", "relu6", "hardswish"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("same", [False, True])
def test_the_reference_computes_norm_and_activation_on_rounded_numbers(
    activation: str, bias: bool, same: bool
) -> None:
    """Scales of any sign, one of them zero."""
    torch.manual_seed(0)
    options = {"same_padding": True} if same else {"padding": 1}
    source = StandardizedConv2d(4, 6, 3, bias=bias, stride=2, **options)
    plain = nn.Conv2d(4, 6, 3, 2, 1, bias=bias)
    conv = QuantizedConv2d.from_convolution(source if same else plain)
    behind, given_format = norm(6), Uint8(1 / 32, 100)
    layer = IntegerConv2d.fuse(conv, behind, activation, given_format, None)
    whole = torch.randint(0, 256, (2, 4, 7, 6), dtype=torch.uint8)

    x = given_format.dequantize(whole)
    with torch.no_grad():
        y = behind(conv(x))
    expected = y if activation == "none" else getattr(F, activation)(y)
    padded = layer.pad(whole) if same else whole
    torch.testing.assert_close(layer.in_floats(padded), expected, rtol=1e-4, atol=1e-4)
    # float32 that is on the grid of the format is the same map
    torch.testing.assert_close(layer(x), layer(whole), rtol=1e-4, atol=1e-4)


def fused(output: Uint8 | None = None) -> IntegerConv2d:
    conv = QuantizedConv2d.from_convolution(nn.Conv2d(8, 8, 1))
    return IntegerConv2d.fuse(conv, None, "relu", Uint8(0.05, 7), output)


@pytest.mark.parametrize("output", [None, Uint8(0.125, 3)])
def test_formats_travel_with_the_state(output: Uint8 | None) -> None:
    layer, other = fused(output), fused(Uint8(9.0, 9))
    other(torch.randn(1, 8, 2, 2))  # packs its own kernel, if integers are computed here
    other.load_state_dict(layer.state_dict())
    assert (other.input_format, other.output_format) == (layer.input_format, output)
    x = torch.randn(1, 8, 3, 3)
    assert torch.equal(other(x), layer(x))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_have_no_packed_kernel_and_the_same_output(copied) -> None:
    layer = fused()
    x = torch.randn(1, 8, 3, 3)
    expected = layer(x)
    other = copied(layer)
    assert other._packed is None
    assert torch.equal(other(x), expected)


def test_an_output_in_8_bits_is_the_rounded_one_in_float() -> None:
    form = Uint8(0.02, 0)
    layer = fused(form)
    plain = copy.deepcopy(layer)
    plain.output_format = None
    x = torch.randn(1, 8, 3, 3)
    whole = layer(x)
    assert whole.dtype == torch.uint8
    steps = (whole.int() - form.quantize(plain(x)).int()).abs()
    assert steps.max() <= 1
    assert math.isclose(layer.get_extra_state()[2].item(), form.scale)


def test_filters_are_standardized_to_mean_zero_and_deviation_one() -> None:
    weight = torch.randn(4, 3, 3, 3, dtype=torch.float64) * 7 + 5
    found = standardize(weight)
    torch.testing.assert_close(found.mean((1, 2, 3)), torch.zeros(4, dtype=torch.float64))
    torch.testing.assert_close(
        found.std((1, 2, 3)), torch.ones(4, dtype=torch.float64), rtol=1e-4, atol=0
    )


def test_a_filter_of_equal_or_single_weights_becomes_zero_with_a_gradient_that_is_finite() -> None:
    for shape in ((2, 3, 3, 3), (2, 1, 1, 1)):
        weight = torch.full(shape, 3.0, requires_grad=True)
        y = standardize(weight)
        assert not y.any()
        (gradient,) = torch.autograd.grad(y, weight, torch.randn(shape))
        assert gradient.isfinite().all()


def test_standardizing_once_is_a_copy_that_computes_the_same_without_it() -> None:
    conv = nn.Conv2d(3, 4, 3)
    before = conv.weight.detach().clone()
    x = torch.randn(1, 3, 5, 5)
    torch.testing.assert_close(standardized(conv)(x), standardize_convolution(conv)(x))
    assert torch.equal(conv.weight, before)


def test_a_convolution_with_a_forward_pass_of_its_own_is_not_standardized() -> None:
    with pytest.raises(PocketuneError, match="filters of a QuantizedConv2d cannot be standardized"):
        standardize_convolution(QuantizedConv2d.from_convolution(nn.Conv2d(3, 4, 3)))


def test_a_kernel_that_is_computed_in_every_step_is_not_standardized_once() -> None:
    conv = torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3))
    with pytest.raises(PocketuneError, match="computes its kernel in every step"):
        standardized(conv)


@pytest.mark.parametrize("inputs", [4, 7, 16])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_lite_residual_module_is_built_again_from_its_arguments(inputs: int, stride: int) -> None:
    groups = 1 if inputs % 2 else 2
    module = LiteResidual(inputs, 24, kernel=3, stride=stride, groups=groups)
    again = LiteResidual(**module.arguments())
    shapes = [{name: t.shape for name, t in m.state_dict().items()} for m in (module, again)]
    assert shapes[0] == shapes[1]
    assert again.arguments() == module.arguments()


@pytest.mark.parametrize("size", [(1, 1), (1, 6), (5, 7), (8, 8)])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_branch_begins_with_zeros_of_the_block_s_size(size: tuple[int, int], stride: int) -> None:
    module = LiteResidual(4, 8, stride=stride)
    y = module(torch.randn(2, 4, *size))
    assert tuple(y.shape) == (2, 8, *(-(-side // stride) for side in size))
    assert not y.any()
    assert tuple(module(torch.randn(2, 4, *size), (9, 3)).shape) == (2, 8, 9, 3)


def test_groups_that_do_not_divide_a_branch_s_channels_are_refused() -> None:
    with pytest.raises(PocketuneError, match=r"groups=2 does not divide .* 7 -> 8; use groups=1"):
        LiteResidual(7, 8)


@pytest.mark.parametrize(
    ("options", "groups"), [({}, 2), ({"reads_image": True}, 1), ({"middle": 7}, 1)]
)
def test_a_program_module_has_two_groups_where_they_divide(options: dict, groups: int) -> None:
    module = ProgramModule(4, options.pop("middle", 8), 6, stride=2, **options)
    assert module.conv1.groups == groups
    assert tuple(module(torch.randn(2, 4, 16, 16)).shape) == (2, 6, 8, 8)
