"""Convolution whose backward pass works on patch averages: gradient filtering.

Yang, Li, Marculescu: Efficient On-device Training via Gradient Filtering, CVPR 2023.

The gradient of the output is replaced by its average over patches of r x r pixels. A convolution
then needs of its input only a sum for each patch, and of its kernel only the sum over its taps:
its backward pass is that of a 1x1 convolution on maps r * r times smaller.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.layers.patch_gradients import input_gradient, kernel_gradient
from pocketune.layers.patch_rules import ALIGNMENTS, Geometry
from pocketune.layers.patches import Pair, patch_mean, patch_spread, patch_sum
from pocketune.layers.same_shape import same_shape

Filtered = TypeVar("Filtered", bound="FilteredConv2d")


class FilteredConv2d(nn.Conv2d):
    """`nn.Conv2d` with filtered gradients; output and gradient of the bias are exact.

    With the gradient of the output g averaged over patches of `patch` x `patch` pixels (2), the
    input x summed over the patches below them, and the kernel W summed over its taps:

    * gradient of the kernel, in every tap: `sum over images and patches of g[o] * x[i]`
    * gradient of the input, all over its patch: `sum over o of W[o, i] * g[o]`

    Where dilation puts the taps a patch or more apart, the second is a dilated convolution of the
    patches with the whole kernel.

    Kept for the backward pass: 32 bits for each patch and input channel if the kernel is trained
    (patches are `ceil(H / patch) * ceil(W / patch)` of the output's height and width), and
    32 bits for each pair of input and output channels in a group if the input needs a gradient
    and the kernel is larger than 1x1.

    The state dict is that of `nn.Conv2d`.

    Args:
        patch: rows and columns of a patch of the output.
        alignment: where patches lie and what averages divide by: `"natural"`, `"paper"` or
            `"reference"`; the rules are in `pocketune.layers.patch_rules`.
        options: all other arguments of `nn.Conv2d`.

    Raises:
        PocketuneError: if `patch` is not a whole number of at least 1, or there is no such
            alignment.
    """

    def __init__(
        self, *arguments: Any, patch: int = 2, alignment: str = "natural", **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        check_filter(patch, alignment)
        self.patch = patch
        self.alignment = alignment

    @classmethod
    def from_convolution(
        cls: type[Filtered], conv: nn.Module, patch: int = 2, alignment: str = "natural"
    ) -> Filtered:
        """Take over the parameters of a convolution (the same objects, not copies).

        Raises:
            PocketuneError: if `conv` is no two-dimensional convolution, or one with a forward
                pass of its own.
        """
        _refuse_other_layers(cls, conv)
        assert isinstance(conv, nn.Conv2d)
        filtered = same_shape(cls, conv, patch=patch, alignment=alignment)
        filtered.weight = conv.weight
        return filtered

    def extra_repr(self) -> str:
        """As `nn.Conv2d`, then patch and alignment, for `repr`."""
        usual: str = super().extra_repr()  # type: ignore[no-untyped-call]
        return f"{usual}, patch={self.patch}, alignment={self.alignment!r}"

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if isinstance(padding, str) or self.padding_mode != "zeros":
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            x, padding = functional.pad(x, self._reversed_padding_repeated_twice, mode), (0, 0)
        y: Tensor = _FilteredConv.apply(  # type: ignore[no-untyped-call]
            x, weight, bias, self.stride, padding, self.dilation, self.groups, self
        )
        return y


def check_filter(patch: object, alignment: object) -> None:
    """Refuse what is no patch size or no alignment.

    Raises:
        PocketuneError: naming the argument.
    """
    if not isinstance(patch, int) or isinstance(patch, bool) or patch < 1:
        raise PocketuneError(f"patch={patch!r} must be a whole number of at least 1")
    if alignment not in ALIGNMENTS:
        raise PocketuneError(f"alignment={alignment!r} must be one of {', '.join(ALIGNMENTS)}")


class _FilteredConv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
        layer: FilteredConv2d,
    ) -> Tensor:
        y = functional.conv2d(x, weight, bias, stride, padding, dilation, groups)
        sizes = (_size(tensor) for tensor in (x, y))
        geometry = Geometry(_size(weight), stride, padding, dilation, *sizes)
        filter = ALIGNMENTS[layer.alignment](geometry, layer.patch)
        needs_input, needs_kernel, _, *_ = ctx.needs_input_grad
        ctx.save_for_backward(
            _taps(weight, filter.dilation) if needs_input else None,
            patch_sum(x, filter.input) if needs_kernel else None,
        )
        ctx.filter, ctx.groups = filter, groups
        ctx.input_shape, ctx.kernel_shape = x.shape[2:], weight.shape
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        taps, sums = ctx.saved_tensors
        average = patch_mean(g, ctx.filter.output, ctx.filter.divisor)
        if ctx.filter.meets > 1:
            average = average / ctx.filter.meets
        of_input = of_kernel = of_bias = None
        if ctx.needs_input_grad[0]:
            small = input_gradient(average, taps, ctx.filter.dilation, ctx.groups)
            of_input = patch_spread(small, ctx.filter.input, ctx.input_shape)
        if ctx.needs_input_grad[1]:
            small = kernel_gradient(average, sums, ctx.groups)
            of_kernel = small.expand(ctx.kernel_shape)
        if ctx.needs_input_grad[2]:
            of_bias = g.sum((0, 2, 3))
        return of_input, of_kernel, of_bias, None, None, None, None, None


def _size(tensor: Tensor) -> Pair:
    return tensor.shape[2], tensor.shape[3]


def _taps(weight: Tensor, dilation: Pair) -> Tensor:
    """What the gradient of the input needs of the kernel."""
    if weight.shape[2:] == (1, 1) or any(dilation):
        return weight
    return weight.sum((2, 3), keepdim=True)


def _refuse_other_layers(cls: type[FilteredConv2d], conv: nn.Module) -> None:
    kind = type(conv).__name__
    if not isinstance(conv, nn.Conv2d):
        raise PocketuneError(
            f"{kind} cannot have filtered gradients: only two-dimensional convolutions that are "
            "not transposed can"
        )
    if not issubclass(cls, type(conv)):
        raise PocketuneError(
            f"{kind} cannot have filtered gradients: it is a convolution with a forward pass of "
            "its own"
        )
