"""Convolution whose kernel is not trained."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.layers.same_shape import same_shape


class FrozenConv2d(nn.Conv2d):
    """`nn.Conv2d` with a frozen kernel, which alone the gradient of the input needs.

    Kept for the backward pass: 0 bits an element. PyTorch's own convolution keeps its input
    whether or not its kernel is trained. A bias may be trained.

    Padding is given in numbers and filled with zeros.
    """

    @classmethod
    def from_convolution(cls, conv: nn.Conv2d) -> "FrozenConv2d":
        """Take over kernel and bias of a convolution (the same objects, not copies)."""
        frozen = same_shape(cls, conv)
        frozen.weight = conv.weight
        return frozen

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        y: Tensor
        if input.requires_grad or (bias is not None and bias.requires_grad):
            numbers = (self.stride, self.padding, self.dilation, self.groups)
            y = _FrozenConvolution.apply(input, weight, bias, *numbers)  # type: ignore[no-untyped-call]
        else:
            y = super()._conv_forward(input, weight, bias)
        return y


class _FrozenConvolution(torch.autograd.Function):
    """The input's gradient as a transposed convolution, which asks for no input."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        dilation: tuple[int, ...],
        groups: int,
    ) -> Any:
        ctx.save_for_backward(weight)
        ctx.size, ctx.numbers = x.shape[2:], (stride, padding, dilation, groups)
        return functional.conv2d(x, weight, bias, stride, padding, dilation, groups)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (weight,) = ctx.saved_tensors
        x_gradient = bias_gradient = None
        if ctx.needs_input_grad[0]:
            x_gradient = input_gradient(gradient, weight, ctx.size, *ctx.numbers)
        if ctx.needs_input_grad[2]:
            bias_gradient = gradient.sum((0, 2, 3))
        return x_gradient, None, bias_gradient, None, None, None, None


def input_gradient(
    gradient: Tensor,
    weight: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """The gradient of a convolution's input from its output's, as a transposed convolution.

    `size` is the height and width of the input, which itself is not needed. The kernel is brought
    to the gradient's type, for autocast computes the convolution in fewer bits than it stores it.
    """
    reached = [  # by the windows; a stride may leave rows and columns over at the end
        (outputs - 1) * s - 2 * p + d * (k - 1) + 1
        for outputs, s, p, d, k in zip(
            gradient.shape[2:], stride, padding, dilation, weight.shape[2:], strict=True
        )
    ]
    left = [whole - covered for whole, covered in zip(size, reached, strict=True)]
    return functional.conv_transpose2d(
        gradient, weight.to(gradient.dtype), None, stride, padding, left, groups, dilation
    )
