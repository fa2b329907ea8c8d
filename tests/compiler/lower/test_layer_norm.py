"""Layer norm and its gradients, which read the normalized input and not the input."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pocketune.layers import FewBitLayerNorm

from ..lowering import check_function, leaf, operators


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6), (2, 3, 4, 6)])
@pytest.mark.parametrize("over", [1, 2])
@pytest.mark.parametrize(("scaled", "shifted"), [(True, True), (True, False), (False, False)])
def test_layer_norm(shape: tuple[int, ...], over: int, scaled: bool, shifted: bool) -> None:
    sizes = shape[-min(over, len(shape) - 1) :]

    def step(x: Tensor, g: Tensor, *affine: Tensor) -> list[Tensor]:
        weight, bias = [*affine, None, None][:2]
        y = F.layer_norm(x * 2, sizes, weight, bias, 1e-5)
        return [y, *torch.autograd.grad(y, [x, *affine], g)]

    affine = [leaf(*sizes, seed=2), leaf(*sizes, seed=3)][: scaled + shifted]
    tensors = [leaf(*shape), leaf(*shape, seed=1, grad=False), *affine]
    check_function(step, tensors, tolerance=1e-4)


def test_layer_norm_with_channels_last_as_in_convnext() -> None:
    def step(x: Tensor, w: Tensor, weight: Tensor, bias: Tensor, g: Tensor) -> list[Tensor]:
        y = F.layer_norm(F.conv2d(x, w).permute(0, 2, 3, 1), (4,), weight, bias)
        y = y.permute(0, 3, 1, 2)
        return [y, *torch.autograd.grad(y, [x, w, weight, bias], g)]

    tensors = [leaf(2, 3, 4, 5), leaf(4, 3, 1, 1, seed=1), leaf(4, seed=2), leaf(4, seed=3)]
    for rows_max_pixels in (0, 1 << 30):
        check_function(
            step,
            [*tensors, leaf(2, 4, 4, 5, seed=4, grad=False)],
            rows_max_pixels=rows_max_pixels,
            tolerance=1e-4,
        )


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6)])
def test_layer_norm_in_eight_bits(shape: tuple[int, ...]) -> None:
    def step(x: Tensor, g: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
        norm = FewBitLayerNorm(6)
        y = torch.func.functional_call(norm, {"weight": weight, "bias": bias}, x * 2)
        return [y, *torch.autograd.grad(y, [x, weight, bias], g)]

    x = torch.ones(shape)
    x[..., ::2] = -1  # the normalized values are codes exactly
    tensors = [x.requires_grad_(), leaf(*shape, seed=1, grad=False), leaf(6, seed=2)]
    model = check_function(step, [*tensors, leaf(6, seed=3)], tolerance=1e-4)
    assert operators(model).count("LayerNormalization") == 1
    assert operators(model).count("QuantizeLinear") == 1


@pytest.mark.parametrize("trained", [True, False])
def test_the_input_is_not_kept(trained: bool) -> None:
    def step(x: Tensor, weight: Tensor, bias: Tensor, g: Tensor) -> list[Tensor]:
        y = F.layer_norm(x + x * x, (6,), weight, bias)
        return [y, *torch.autograd.grad(y, [x, weight, bias] if trained else [bias], g)]

    tensors = [leaf(2, 3, 6), leaf(6, seed=1), leaf(6, seed=2), leaf(2, 3, 6, seed=3, grad=False)]
    nodes = check_function(step, tensors, tolerance=1e-4).graph.node
    (norm,) = (node for node in nodes if node.op_type == "LayerNormalization")
    assert [node for node in nodes if norm.input[0] in node.input] == [norm]
    assert len(norm.input) == (2 if trained else 3)  # the output follows from the normalized input
