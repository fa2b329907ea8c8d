"""Pruned layers compile to what PyTorch computes, in either layout, with masks in either form."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pocketune.compiler.passes.sizes import tensor_bytes
from pocketune.layers import PrunedBatchNorm2d, PrunedConv2d
from pocketune.layers.survivors import drop_small

from ..lowering import FORMS, LAYOUTS, check_function, leaf, operators

RATIOS = pytest.mark.parametrize("ratio", [0.3, 0.8])


@FORMS
@LAYOUTS
@RATIOS
@pytest.mark.parametrize("forward", [True, False])
def test_norm(ratio, rows_max_pixels, least_packed, forward) -> None:
    layer = PrunedBatchNorm2d(4, ratio=ratio, forward=forward)

    def step(x: Tensor, kernel: Tensor, weight: Tensor, bias: Tensor, g: Tensor) -> list[Tensor]:
        tensors = {"weight": weight, "bias": bias}
        state = {n: b.detach().to(x.dtype) for n, b in layer.named_buffers() if "running" in n}
        y = torch.func.functional_call(layer, {**tensors, **state}, (F.conv2d(x, kernel) * 3,))
        return [y, *torch.autograd.grad(y, [x, kernel, weight, bias], g)]

    inputs = [leaf(2, 3, 4, 5), leaf(4, 3, 1, 1, seed=1), leaf(4, seed=2), leaf(4, seed=3)]
    upstream = leaf(2, 4, 4, 5, seed=4, grad=False)
    check_function(step, [*inputs, upstream], (), rows_max_pixels, least_packed=least_packed)


@FORMS
@LAYOUTS
@RATIOS
@pytest.mark.parametrize(("kernel", "groups"), [(1, 1), (3, 4)])
def test_convolution(ratio, rows_max_pixels, least_packed, kernel, groups) -> None:
    """Between two others, with "SAME" padding where the kernel is larger than a pixel."""
    layer = PrunedConv2d(
        4, 4, kernel, 2, groups=groups, bias=False, ratio=ratio, same_padding=kernel > 1
    )

    def step(x: Tensor, first: Tensor, weight: Tensor, g: Tensor) -> list[Tensor]:
        middle = F.relu(F.conv2d(x, first))
        y = torch.func.functional_call(layer, {"weight": weight}, (middle,))
        return [y, *torch.autograd.grad(y, [x, first, weight], g)]

    inputs = [leaf(2, 3, 4, 6), leaf(4, 3, 1, 1, seed=1), leaf(*layer.weight.shape, seed=2)]
    upstream = leaf(2, 4, 2, 3, seed=3, grad=False)
    check_function(step, [*inputs, upstream], (), rows_max_pixels, least_packed=least_packed)


@LAYOUTS
def test_an_output_that_is_selected_by_its_estimate(rows_max_pixels) -> None:
    layer = PrunedConv2d(8, 4, 3, padding=1, bias=False, ratio=0.6, dimensions=30)
    norm = PrunedBatchNorm2d(4, ratio=0.6)
    layer.estimate_for(norm)

    def step(x: Tensor, weight: Tensor, g: Tensor) -> list[Tensor]:
        state = {n: t.detach().to(x.dtype) for n, t in norm.state_dict().items() if "num" not in n}
        middle = torch.func.functional_call(layer, {"weight": weight}, (x * 1,))
        y = torch.func.functional_call(norm, state, (middle,))
        return [y, *torch.autograd.grad(y, [x, weight], g)]

    inputs = [leaf(3, 8, 4, 5), leaf(4, 8, 3, 3, seed=1), leaf(3, 4, 4, 5, seed=2, grad=False)]
    check_function(step, inputs, (), rows_max_pixels)


def test_an_input_of_zeros() -> None:
    """No element survives."""
    layer = PrunedConv2d(4, 4, 1, bias=False, ratio=0.5)

    def step(x: Tensor, weight: Tensor, g: Tensor) -> list[Tensor]:
        y = torch.func.functional_call(layer, {"weight": weight}, (F.relu(x),))
        return [y, *torch.autograd.grad(y, [x, weight], g)]

    x = torch.full((2, 4, 3, 3), -1.0, requires_grad=True)
    weight = leaf(4, 4, 1, 1)
    check_function(step, [x, weight, leaf(2, 4, 3, 3, seed=1, grad=False)])


@pytest.mark.parametrize("count", [3, 20])
def test_predictions(count: int) -> None:
    check_function(lambda x: [drop_small(x, count)], [leaf(2, 3, 3, 3)])


def test_the_most_that_is_kept_is_known() -> None:
    layer = PrunedConv2d(4, 4, 1, bias=False, ratio=0.75)

    def step(x: Tensor, weight: Tensor, g: Tensor) -> list[Tensor]:
        y = torch.func.functional_call(layer, {"weight": weight}, (x,))
        return list(torch.autograd.grad(y, [x, weight], g))

    upstream = leaf(2, 4, 4, 4, seed=2, grad=False)
    model = check_function(step, [leaf(2, 4, 4, 4), leaf(4, 4, 1, 1, seed=1), upstream])
    assert "Compress" in operators(model)
    sizes = tensor_bytes(model, {})
    (kept,) = [size for name, size in sizes.items() if name.startswith("survivors")]
    assert kept == 4 * (2 * 16 + 1)
