"""The base class of our convolutions, and the convolution with a frozen kernel."""

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.layers.autograd import is_recorded

Conv = TypeVar("Conv", bound="Conv2d")


class Conv2d(nn.Conv2d):
    """`nn.Conv2d` that can pad like TensorFlow's "SAME".

    Layers that freeze, quantize, standardize or filter derive from it and override `kernel` or
    `convolve`; all of them pad in the same way. The state dict is that of `nn.Conv2d`.

    Kept for the backward pass: 32 bits an element (the padded input), as in `nn.Conv2d`.

    Args:
        arguments: Those of `nn.Conv2d`.
        same_padding: Pad with as many zeros as give `ceil(size / stride)` rows and columns, half
            of them on each side, and an odd one on the right and at the bottom. Their number
            depends on the size of the input; `padding` stays 0.
        options: Keyword arguments of `nn.Conv2d`.
    """

    def __init__(self, *arguments: Any, same_padding: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.same_padding = same_padding

    @classmethod
    def like(cls: type[Conv], conv: nn.Conv2d, **options: Any) -> Conv:
        """A layer of this class with the channels, kernel size, stride and so on of `conv`.

        It has the same mode and the same bias, not a copy. Its kernel is on the meta device, for
        the caller to replace.

        Args:
            conv: The convolution to imitate.
            options: Further arguments of this class.

        Raises:
            PocketuneError: If `conv` computes its kernel in every step.
        """
        require_kernel(conv)
        made = cls(
            conv.in_channels,
            conv.out_channels,
            conv.kernel_size,
            conv.stride,
            conv.padding,
            conv.dilation,
            conv.groups,
            bias=conv.bias is not None,
            padding_mode=conv.padding_mode,
            same_padding=isinstance(conv, Conv2d) and conv.same_padding,
            device="meta",
            **options,
        )
        made.bias = conv.bias
        return made.train(conv.training)

    @classmethod
    def from_convolution(cls: type[Conv], conv: nn.Conv2d) -> Conv:
        """Take over kernel and bias of a convolution (the same objects, not copies).

        Raises:
            PocketuneError: If `conv` computes its kernel in every step.
        """
        made = cls.like(conv)
        made.weight = conv.weight
        return made

    def forward(self, input: Tensor) -> Tensor:
        """(N, in, H, W) or (in, H, W) -> the same with `out_channels`, and the output's size."""
        return self.convolve(self.pad(input))

    def convolve(self, x: Tensor) -> Tensor:
        """The output for an input that is padded already."""
        y: Tensor = self._conv_forward(x, self.kernel(), self.bias)
        return y

    def kernel(self) -> Tensor:
        """The kernel (out, in / groups, height, width) that the layer computes with."""
        return self.weight

    def pad(self, x: Tensor) -> Tensor:
        """The input with "SAME" padding; the input itself if `same_padding` is not set."""
        if not self.same_padding:
            return x
        return functional.pad(x, self.pads(x), value=self.padding_value(x))

    def pads(self, x: Tensor) -> tuple[int, int, int, int]:
        """What "SAME" padding adds on the left, on the right, above and below; 0 without it."""
        if not self.same_padding:
            return 0, 0, 0, 0
        return *self._same_pads(x.shape[-1], 1), *self._same_pads(x.shape[-2], 0)

    def padding_value(self, x: Tensor) -> float:  # noqa: ARG002 (for overriding)
        """The number that represents zero in `x`."""
        return 0.0

    def extra_repr(self) -> str:
        """As `nn.Conv2d`, then `same_padding` if it is set, for `repr`."""
        usual: str = super().extra_repr()  # type: ignore[no-untyped-call]
        return f"{usual}, same_padding=True" if self.same_padding else usual

    def _same_pads(self, size: int, axis: int) -> tuple[int, int]:
        stride, extent = self.stride[axis], self.dilation[axis] * (self.kernel_size[axis] - 1) + 1
        total = max((-(-size // stride) - 1) * stride + extent - size, 0)
        return total // 2, total - total // 2


def is_plain(module: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether one of our layers can replace a module.

    It can replace PyTorch's convolution and our base class. A derived class has its own forward
    pass.
    """
    return type(module) in (nn.Conv2d, Conv2d)


def pads_in_numbers(conv: nn.Conv2d) -> bool:
    """Whether the convolution itself pads, with `padding` zeros on each side."""
    return not isinstance(conv.padding, str) and conv.padding_mode == "zeros"


def computes_kernel(conv: nn.Module) -> bool:
    """Whether a hook computes the kernel, such as that of `nn.utils.spectral_norm`."""
    return "weight" not in conv._parameters


def require_kernel(conv: nn.Module) -> None:
    """Check that the kernel of a convolution can be taken over.

    Raises:
        PocketuneError: The kernel is computed in every step.
    """
    if computes_kernel(conv):
        raise PocketuneError(
            f"{conv} computes its kernel in every step, and its replacement would not; remove "
            "that first, with torch.nn.utils.remove_spectral_norm or remove_weight_norm"
        )


class FrozenConv2d(Conv2d):
    """`Conv2d` with a frozen kernel; the gradient of the input needs nothing else.

    Kept for the backward pass: 0 bits an element. PyTorch's convolution keeps its input whether or
    not its kernel is trained. A bias may be trained. If its kernel requires a gradient, the layer
    works like PyTorch's.

    Padding is given in numbers, or by `same_padding`, and filled with zeros.
    """

    def convolve(self, x: Tensor) -> Tensor:
        """The output; nothing is kept while the kernel is frozen."""
        if is_recorded(x, self.bias) and not self.weight.requires_grad:
            return frozen_convolution(self, x, self.bias, _as_stored, self.weight)
        return super().convolve(x)


def frozen_convolution(
    conv: nn.Conv2d,
    x: Tensor,
    bias: Tensor | None,
    kernel: Callable[..., Tensor],
    *stored: Tensor,
) -> Tensor:
    """The output of a convolution shaped like `conv` that keeps only its stored kernel.

    Args:
        conv: Gives stride, padding, dilation and groups.
        x: The input.
        bias: May be trained.
        kernel: Computes the kernel from `stored`, once in each pass.
        stored: The tensors that represent the kernel.
    """
    numbers = (conv.stride, conv.padding, conv.dilation, conv.groups)
    y: Tensor = _FrozenConvolution.apply(x, bias, numbers, kernel, *stored)  # type: ignore[no-untyped-call]
    return y


def _as_stored(weight: Tensor) -> Tensor:
    return weight


class _FrozenConvolution(torch.autograd.Function):
    """The gradient of the input is a transposed convolution, which does not need the input."""

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
    """The gradient of a convolution's input, from that of its output: a transposed convolution.

    `size` is the height and width of the input, which itself is not needed. The kernel takes the
    gradient's type, because autocast computes a convolution in fewer bits than its kernel has.
    """
    reached = [  # size covered by the windows; a stride may leave rows and columns at the end
        (outputs - 1) * s - 2 * p + d * (k - 1) + 1
        for outputs, s, p, d, k in zip(
            gradient.shape[-2:], stride, padding, dilation, weight.shape[2:], strict=True
        )
    ]
    left = [whole - covered for whole, covered in zip(size, reached, strict=True)]
    return functional.conv_transpose2d(
        gradient, weight.to(gradient.dtype), None, stride, padding, left, groups, dilation
    )
