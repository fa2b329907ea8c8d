"""Convolutions: TensorFlow's padding, a frozen kernel, and one in another's place."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.layers.autograd import is_recorded


class SameConv2d(nn.Conv2d):
    """Strided convolution with TensorFlow's "SAME" padding.

    The output has `ceil(size / stride)` rows and columns. The zeros that takes are shared
    between both sides, the odd one going right and bottom, so their number depends on the size
    of the input and `self.padding` stays 0. Parameters are named as in `nn.Conv2d`.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, out_channels, ceil(H / stride), ceil(W / stride))."""
        top, bottom = self._pad(x.shape[2], 0)
        left, right = self._pad(x.shape[3], 1)
        return super().forward(
            functional.pad(x, (left, right, top, bottom), value=self.padding_value(x))
        )

    def padding_value(self, x: Tensor) -> float:  # noqa: ARG002 (for overriding)
        """What is padded with: zero, as `x` writes it."""
        return 0.0

    def _pad(self, size: int, axis: int) -> tuple[int, int]:
        stride, extent = self.stride[axis], self.dilation[axis] * (self.kernel_size[axis] - 1) + 1
        total = max((-(-size // stride) - 1) * stride + extent - size, 0)
        return total // 2, total - total // 2


class FrozenConv2d(nn.Conv2d):
    """`nn.Conv2d` with a frozen kernel, which alone the gradient of the input needs.

    Kept for the backward pass: 0 bits an element. PyTorch's own convolution keeps its input
    whether or not its kernel is trained. A bias may be trained. Once its kernel requires a gradient
    it is PyTorch's own.

    Padding is given in numbers and filled with zeros.
    """

    @classmethod
    def from_convolution(cls, conv: nn.Conv2d) -> "FrozenConv2d":
        """Take over kernel and bias of a convolution (the same objects, not copies)."""
        frozen = same_shape(cls, conv)
        frozen.weight = conv.weight
        return frozen

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if is_recorded(input, bias) and not weight.requires_grad:
            return frozen_convolution(self, input, bias, _as_it_is, weight)
        y: Tensor = super()._conv_forward(input, weight, bias)
        return y


def frozen_convolution(
    conv: nn.Conv2d,
    x: Tensor,
    bias: Tensor | None,
    kernel: Callable[..., Tensor],
    *stored: Tensor,
) -> Tensor:
    """The map of a convolution of `conv`'s shape, which keeps nothing but what is stored anyway.

    Args:
        conv: what gives stride, padding, dilation and groups.
        x: the map that comes in.
        bias: may be trained.
        kernel: makes the kernel of what is stored, for each pass anew.
        stored: what the kernel is stored as.
    """
    numbers = (conv.stride, conv.padding, conv.dilation, conv.groups)
    y: Tensor = _FrozenConvolution.apply(x, bias, numbers, kernel, *stored)  # type: ignore[no-untyped-call]
    return y


def _as_it_is(weight: Tensor) -> Tensor:
    return weight


class _FrozenConvolution(torch.autograd.Function):
    """The input's gradient as a transposed convolution, which asks for no input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        bias: Tensor | None,
        numbers: tuple[Any, ...],
        kernel: Callable[..., Tensor],
        *stored: Tensor,
    ) -> Any:
        return functional.conv2d(x, kernel(*stored), bias, *numbers)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        x, _, ctx.numbers, ctx.kernel, *stored = inputs
        ctx.size = x.shape[-2:]
        ctx.save_for_backward(*stored)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x_gradient = bias_gradient = None
        if ctx.needs_input_grad[0]:
            kernel = ctx.kernel(*ctx.saved_tensors)
            x_gradient = input_gradient(gradient, kernel, ctx.size, *ctx.numbers)
        if ctx.needs_input_grad[1]:
            bias_gradient = gradient.sum((0, 2, 3) if gradient.dim() == 4 else (1, 2))
        return x_gradient, bias_gradient, *(None,) * (len(ctx.needs_input_grad) - 2)


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
            gradient.shape[-2:], stride, padding, dilation, weight.shape[2:], strict=True
        )
    ]
    left = [whole - covered for whole, covered in zip(size, reached, strict=True)]
    return functional.conv_transpose2d(
        gradient, weight.to(gradient.dtype), None, stride, padding, left, groups, dilation
    )


Conv = TypeVar("Conv", bound=nn.Conv2d)


def same_shape(cls: type[Conv], conv: nn.Conv2d, **options: Any) -> Conv:
    """A `cls` with the channels, kernel size, stride and so on of `conv`.

    It is in the same mode and has its bias, the same object. Its kernel is on the meta device,
    for the caller to put one there.

    Args:
        cls: the class of the convolution to make.
        conv: the convolution that it is to be like.
        options: further arguments of `cls`.

    Raises:
        PocketuneError: if its kernel is computed anew in every step.
    """
    require_kernel(conv)
    made = cls(
        conv.in_channels,
        conv.out_channels,
        conv.kernel_size,  # type: ignore[arg-type]
        conv.stride,  # type: ignore[arg-type]
        conv.padding,  # type: ignore[arg-type]
        conv.dilation,  # type: ignore[arg-type]
        conv.groups,
        bias=conv.bias is not None,
        padding_mode=conv.padding_mode,
        device="meta",
        **options,
    )
    made.bias = conv.bias
    return made.train(conv.training)


def computes_kernel(conv: nn.Module) -> bool:
    """Whether a hook makes the kernel of other parameters, as `nn.utils.spectral_norm`'s does."""
    return "weight" not in conv._parameters


def require_kernel(conv: nn.Module) -> None:
    """Refuse a convolution whose kernel cannot be taken over.

    Raises:
        PocketuneError: if it is computed anew in every step.
    """
    if computes_kernel(conv):
        raise PocketuneError(
            f"{conv} computes its kernel anew in every step, and a layer in its place would not: "
            "remove that first, as torch.nn.utils.remove_spectral_norm and remove_weight_norm do"
        )
