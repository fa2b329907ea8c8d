"""A 1x1 convolution to more channels and the norm with batch statistics behind it, in one."""

from math import prod

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import shape_inference
from torch import Tensor
from torch.nn import functional as F

from ..lowering import ALWAYS_ROWS, LAYOUTS, NEVER_ROWS, check_function, leaf

MOMENTUM, EPS = 0.1, 1e-5
STATISTICS = (4, 5)


def step(
    x: Tensor, w: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, g: Tensor
) -> list[Tensor]:
    y = F.batch_norm(F.conv2d(x, w), mean, var, weight, bias, True, MOMENTUM, EPS)
    return [y, *torch.autograd.grad(y, [x, w, weight, bias], g)]


def tensors_of(inputs: int, outputs: int, batch: int, size: tuple[int, int]) -> list[Tensor]:
    x, g = leaf(batch, inputs, *size), leaf(batch, outputs, *size, seed=6, grad=False)
    mean, var = leaf(outputs, seed=4, grad=False), leaf(outputs, seed=5, grad=False).abs() + 0.1
    weight, bias = leaf(outputs, seed=2), leaf(outputs, seed=3)
    return [x, leaf(outputs, inputs, 1, 1, seed=1), weight, bias, mean, var, g]


@settings(max_examples=25)
@given(
    inputs=st.integers(2, 5),
    factor=st.integers(2, 4),
    batch=st.integers(1, 3),
    size=st.tuples(st.integers(2, 6), st.integers(2, 6)),
    rows_max_pixels=st.sampled_from([ALWAYS_ROWS, NEVER_ROWS]),
)
def test_values_gradients_and_statistics(
    inputs: int, factor: int, batch: int, size: tuple[int, int], rows_max_pixels: int
) -> None:
    tensors = tensors_of(inputs, factor * inputs, batch, size)
    check_function(step, tensors, (), rows_max_pixels, 1e-4, STATISTICS)


@LAYOUTS
def test_no_pass_over_the_wide_map_is_left_beside_the_products(rows_max_pixels: int) -> None:
    tensors = tensors_of(3, 24, 2, (6, 6))
    model = check_function(step, tensors, (), rows_max_pixels, 1e-4, STATISTICS)
    inferred = shape_inference.infer_shapes(model).graph
    known = (*inferred.value_info, *inferred.input, *inferred.output)
    sizes = {v.name: prod(d.dim_value for d in v.type.tensor_type.shape.dim) for v in known}
    large = [
        node.op_type
        for node in model.graph.node
        if any(sizes.get(name) == 24 * 72 for name in (*node.input, *node.output))
    ]
    computing = sorted(op for op in large if op not in ("Reshape", "Transpose"))
    products = ["Gemm", "Gemm", "Gemm"] if rows_max_pixels else ["Conv", "Conv", "MatMul"]
    assert computing == [*products, "ReduceSum"]


@LAYOUTS
def test_an_input_far_from_zero_does_not_cancel(rows_max_pixels: int) -> None:
    tensors = tensors_of(3, 8, 3, (6, 6))
    with torch.no_grad():
        tensors[0].add_(300.0)
    check_function(step, tensors, (), rows_max_pixels, 1e-3, STATISTICS)


@LAYOUTS
def test_channels_that_are_nearly_equal(rows_max_pixels: int) -> None:
    """The output has a thousandth of its terms' variance; in pretrained networks, a 120th."""
    tensors = tensors_of(4, 8, 3, (8, 8))
    with torch.no_grad():
        tensors[0].mul_(0.05).add_(leaf(3, 1, 8, 8, seed=9))
        tensors[1].sub_(tensors[1].mean(1, keepdim=True))
    check_function(step, tensors, (), rows_max_pixels, 1e-3, STATISTICS)


@LAYOUTS
def test_a_channel_of_zeros_is_finite(rows_max_pixels: int) -> None:
    tensors = tensors_of(3, 8, 2, (5, 5))
    with torch.no_grad():
        tensors[1][2].zero_()
    check_function(step, tensors, (), rows_max_pixels, 1e-4, STATISTICS)


@LAYOUTS
def test_the_gradient_of_the_input_is_not_always_needed(rows_max_pixels: int) -> None:
    def first_layer(
        x: Tensor, w: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, g: Tensor
    ) -> list[Tensor]:
        y = F.batch_norm(F.conv2d(x, w), mean, var, weight, bias, True, MOMENTUM, EPS)
        return [y, *torch.autograd.grad(y, [w, weight, bias], g)]

    tensors = tensors_of(3, 8, 2, (5, 5))
    tensors[0].requires_grad_(False)
    check_function(first_layer, tensors, (), rows_max_pixels, 1e-4, STATISTICS)


def test_a_norm_that_is_called_twice_updates_its_statistics_twice() -> None:
    def twice(
        x: Tensor, w: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, g: Tensor
    ) -> list[Tensor]:
        y = sum(
            F.batch_norm(F.conv2d(x * scale, w), mean, var, weight, bias, True, MOMENTUM, EPS)
            for scale in (1, 3)
        )
        return [y, *torch.autograd.grad(y, [x, w, weight, bias], g)]

    tensors = tensors_of(3, 8, 2, (5, 5))
    check_function(twice, tensors, (), NEVER_ROWS, 1e-4, STATISTICS)
