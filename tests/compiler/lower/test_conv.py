"""Convolutions and their three gradients, in every shape and layout, against float64."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from pocketune.compiler.lower import conv as conv_rules
from pocketune.compiler.lower import kernel_gradient as kernel_rules
from pocketune.errors import PocketuneError
from pocketune.layers import FrozenConv2d

from ..lowering import (
    ALWAYS_ROWS,
    LAYOUTS,
    NEVER_ROWS,
    check_function,
    leaf,
    lower_function,
    operators,
)


@dataclass(frozen=True)
class Case:
    """A convolution; its output has at least one pixel."""

    batch: int
    size: tuple[int, int]
    groups: int
    inputs: int
    outputs: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
        }

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Input, kernel, bias and the output's gradient."""
        x = leaf(self.batch, self.inputs, *self.size, seed=1)
        w = leaf(self.outputs, self.inputs // self.groups, *self.kernel, seed=2)
        b = leaf(self.outputs, seed=3)
        with torch.no_grad():
            shape = F.conv2d(x, w, b, **self.arguments).shape
        return x, w, b, leaf(*shape, seed=4, grad=False)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kernel = draw(st.sampled_from([1, 2, 3, 5, 7]))
    kernels = draw(st.sampled_from([(kernel, kernel), (kernel, 1), (1, kernel), (kernel, 3)]))
    stride = draw(st.sampled_from([(1, 1), (2, 2), (3, 3), (2, 1), (1, 2)]))
    dilation = draw(st.sampled_from([(1, 1), (2, 2), (1, 3), (5, 4)]))
    padding = (draw(st.integers(0, 3)), draw(st.integers(0, 3)))
    sides = zip(kernels, dilation, padding, strict=True)
    least = [max((k - 1) * d + 1 - 2 * p, 1) for k, d, p in sides]
    size = (least[0] + draw(st.integers(0, 7)), least[1] + draw(st.integers(0, 7)))
    groups, inputs, outputs = draw(
        st.sampled_from(
            [
                (1, 3, 5),  # dense
                (1, 4, 1),
                (4, 4, 4),  # depthwise
                (1, 1, 1),
                (3, 3, 6),  # depthwise with a multiplier
                (2, 4, 6),  # grouped
                (2, 6, 4),
            ]
        )
    )
    batch = draw(st.integers(1, 4))
    return Case(batch, size, groups, inputs, outputs, kernels, stride, padding, dilation)


rows_limits = st.sampled_from([ALWAYS_ROWS, NEVER_ROWS])
convolved_limits = st.sampled_from([1 << 30, 0])


@settings(max_examples=100)
@given(
    case=cases(),
    rows_max_pixels=rows_limits,
    convolved_max_channels=convolved_limits,
    unfolded_max_bytes=convolved_limits,
)
def test_forward_and_all_gradients(
    case: Case, rows_max_pixels: int, convolved_max_channels: int, unfolded_max_bytes: int
) -> None:
    def step(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w, b, **case.arguments)
        return [y, *torch.autograd.grad(y, [x, w, b], g)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_rules, "CONVOLVED_MAX_CHANNELS", convolved_max_channels)
        patch.setattr(conv_rules, "UNFOLDED_MAX_BYTES", unfolded_max_bytes)
        check_function(step, case.tensors(), rows_max_pixels=rows_max_pixels)


@settings(max_examples=50)
@given(case=cases(), rows_max_pixels=rows_limits, unfolded_max_bytes=convolved_limits)
def test_gradient_through_a_frozen_kernel(
    case: Case, rows_max_pixels: int, unfolded_max_bytes: int
) -> None:
    def step(x: Tensor, g: Tensor, w: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w, **case.arguments)
        return [y, *torch.autograd.grad(y, [x], g)]

    x, w, _, g = case.tensors()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conv_rules, "UNFOLDED_MAX_BYTES", unfolded_max_bytes)
        model = check_function(step, [x, g], [w.detach()], rows_max_pixels=rows_max_pixels)
    # what depends on the kernel alone was computed here
    made = {name for node in model.graph.node for name in node.output}
    constants = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type in ("Conv", "ConvTranspose"):
            assert node.input[1] in constants - made


@pytest.mark.parametrize("batch", [1, 3])
def test_a_large_frozen_kernel_is_kept_once(batch: int) -> None:
    def step(x: Tensor, g: Tensor, w: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w)
        return [y, *torch.autograd.grad(y, [x], g)]

    x, g = leaf(batch, 48, 3, 2, seed=1), leaf(batch, 96, 3, 2, seed=2, grad=False)
    kernel = leaf(96, 48, 1, 1, seed=3, grad=False)
    model = check_function(step, [x, g], [kernel], rows_max_pixels=NEVER_ROWS)
    assert kernel.numel() >= conv_rules.TRANSPOSED_LEAST_ELEMENTS
    assert [tuple(tensor.dims) for tensor in model.graph.initializer] == [kernel.shape]


@settings(max_examples=60)
@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    dilation=st.integers(1, 12),
    stride=st.sampled_from([1, 2]),
    channels=st.sampled_from([(1, 6, 5), (1, 3, 4), (4, 4, 4)]),
    frozen=st.booleans(),
    rows_max_pixels=rows_limits,
)
def test_taps_that_see_nothing_but_padding(
    size: tuple[int, int],
    dilation: int,
    stride: int,
    channels: tuple[int, int, int],
    frozen: bool,
    rows_max_pixels: int,
) -> None:
    """Dilated as in ASPP, where the padding is the dilation."""
    groups, inputs, outputs = channels
    arguments: dict[str, Any] = {
        "stride": stride,
        "padding": dilation,
        "dilation": dilation,
        "groups": groups,
    }
    x, w, b = leaf(2, inputs, *size), leaf(outputs, inputs // groups, 3, 3, seed=1), leaf(outputs)
    g = leaf(*F.conv2d(x, w, **arguments).shape, seed=3, grad=False)

    def step(x: Tensor, b: Tensor, g: Tensor, w: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w, b, **arguments)
        return [y, *torch.autograd.grad(y, [x, b] if frozen else [x, b, w], g)]

    tensors = ([x, b, g], [w.detach()]) if frozen else ([x, b, g, w], [])
    check_function(step, *tensors, rows_max_pixels)


def test_a_tap_that_sees_nothing_has_no_gradient() -> None:
    def step(x: Tensor, w: Tensor, g: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w, padding=6, dilation=6)
        return [y, *torch.autograd.grad(y, [w], g)]

    x, w = leaf(2, 5, 6, 4), leaf(4, 5, 3, 3, seed=1)
    model = check_function(step, [x, w, leaf(2, 4, 6, 4, seed=2, grad=False)], (), ALWAYS_ROWS)
    assert "Conv" not in operators(model), "a kernel of one tap is a matrix product"


@settings(max_examples=30)
@given(
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.integers(0, 1),
    dilation=st.integers(1, 2),
    channels=st.sampled_from([(1, 3, 5), (4, 4, 4), (2, 4, 6)]),
    has_bias=st.booleans(),
    rows_max_pixels=rows_limits,
)
def test_transposed_convolution_and_all_gradients(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: int,
    dilation: int,
    channels: tuple[int, int, int],
    has_bias: bool,
    rows_max_pixels: int,
) -> None:
    groups, inputs, outputs = channels
    arguments: dict[str, Any] = {
        "stride": stride,
        "padding": padding,
        "output_padding": tuple(s - 1 for s in stride),
        "dilation": dilation,
        "groups": groups,
    }
    x, w = leaf(2, inputs, 5, 6), leaf(inputs, outputs // groups, *kernel, seed=1)
    biases = [leaf(outputs, seed=2)] if has_bias else []

    def step(x: Tensor, w: Tensor, g: Tensor, *bias: Tensor) -> list[Tensor]:
        y = F.conv_transpose2d(x, w, *(bias or [None]), **arguments)
        return [y, *torch.autograd.grad(y, [x, w, *bias], g)]

    shape = F.conv_transpose2d(x, w, *(biases or [None]), **arguments).shape
    g = leaf(*shape, seed=3, grad=False)
    check_function(step, [x, w, g, *biases], (), rows_max_pixels)


def transposed(**arguments: Any) -> tuple[Callable[..., list[Tensor]], list[Tensor]]:
    """A transposed convolution with its gradients, and what it takes."""

    def step(x: Tensor, w: Tensor, g: Tensor) -> list[Tensor]:
        y = F.conv_transpose2d(x, w, **arguments)
        return [y, *torch.autograd.grad(y, [x, w], g)]

    x, w = leaf(2, 4, 5, 6), leaf(4, 4 // arguments.get("groups", 1), 3, 3, seed=1)
    shape = F.conv_transpose2d(x, w, **arguments).shape
    return step, [x, w, leaf(*shape, seed=3, grad=False)]


@LAYOUTS
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("output_padding", [1, (0, 2), (2, 1)])
def test_an_output_padding_of_the_stride_and_more(
    output_padding: Any, groups: int, rows_max_pixels: int
) -> None:
    options = {"dilation": 3, "padding": 2, "output_padding": output_padding, "groups": groups}
    step, given = transposed(**options)
    check_function(step, given, (), rows_max_pixels)


def test_an_output_padding_that_no_padding_makes_up_for_is_refused() -> None:
    step, given = transposed(dilation=2, output_padding=(0, 1))
    with pytest.raises(PocketuneError, match=r"output_padding=\(0, 1\), stride=\(1, 1\) and"):
        lower_function(step, given)


@LAYOUTS
@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("groups", [1, 4])
def test_tensorflow_padding(stride: int, groups: int, rows_max_pixels: int) -> None:
    """Asymmetric zeros are a pad of their own before a convolution without any."""

    def step(x: Tensor, w: Tensor, g: Tensor) -> list[Tensor]:
        y = F.conv2d(F.pad(x, (0, 1, 0, 1)), w, stride=stride, groups=groups)
        return [y, *torch.autograd.grad(y, [x, w], g)]

    x, w = leaf(2, 4, 8, 11), leaf(4, 4 // groups, 3, 3, seed=1)
    shape = F.conv2d(F.pad(x, (0, 1, 0, 1)), w, stride=stride, groups=groups).shape
    check_function(step, [x, w, leaf(*shape, seed=2, grad=False)], (), rows_max_pixels)


@pytest.mark.parametrize("rows_max_pixels", [35, 34])
def test_maps_up_to_the_limit_are_matrix_products(rows_max_pixels: int) -> None:
    def step(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w, b)
        return [y, *torch.autograd.grad(y, [x, w, b], g)]

    x, w, b = leaf(2, 3, 5, 7), leaf(4, 3, 1, 1, seed=1), leaf(4, seed=2)
    g = leaf(2, 4, 5, 7, seed=3, grad=False)
    model = check_function(step, [x, w, b, g], (), rows_max_pixels)
    assert ("Gemm" in operators(model)) == (rows_max_pixels == 35)
    assert ("Conv" in operators(model)) == (rows_max_pixels == 34)


def test_gradients_that_nothing_needs_are_not_computed() -> None:
    def step(x: Tensor, w: Tensor, g: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(F.conv2d(x, w, padding=1), [w], g))

    g = leaf(2, 4, 6, 6, seed=2, grad=False)
    model = lower_function(step, [leaf(2, 5, 6, 6, grad=False), leaf(4, 5, 3, 3), g])
    assert not {"Conv", "ConvTranspose"} & set(operators(model))


@given(case=cases(), rows_max_pixels=st.sampled_from([ALWAYS_ROWS, NEVER_ROWS]))
@settings(max_examples=25)
def test_the_input_gradient_of_a_frozen_convolution(case: Case, rows_max_pixels: int) -> None:
    x, w, b, g = case.tensors()
    conv = FrozenConv2d(
        case.inputs,
        case.outputs,
        case.kernel,
        case.stride,
        case.padding,
        case.dilation,
        case.groups,
    )

    def step(x: Tensor, b: Tensor, g: Tensor, w: Tensor) -> list[Tensor]:
        y = torch.func.functional_call(conv, {"weight": w, "bias": b}, (x,))
        return [y, *torch.autograd.grad(y, [x, b], g)]

    check_function(step, [x, b, g], [w.detach()], rows_max_pixels)


def test_1d_convolutions_are_refused() -> None:
    with pytest.raises(PocketuneError, match="two dimensions"):
        lower_function(lambda x, w: [F.conv1d(x, w)], [leaf(1, 2, 4), leaf(2, 2, 3)])
