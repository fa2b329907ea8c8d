"""The autograd function of a convolution with filtered gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from pocketune.filtering.geometry import Filter, Geometry
from pocketune.filtering.gradients import (
    from_int8,
    in_int8,
    input_gradient,
    kernel_gradient,
    to_int8,
)
from pocketune.filtering.patches import (
    Pair,
    Patches,
    patch_elements,
    patch_mean,
    patch_spread,
    patch_sum,
)
from pocketune.layers.autograd import first_order
from pocketune.layers.bits import is_channels_last


class Call(NamedTuple):
    """One call of a layer: where the patches of its feature maps are, and which are pooled maps.

    Attributes:
        geometry: Of the convolution.
        groups: Of its channels.
        filter: Patches of its output and of its input.
        before: Patches of the input if that is a pooled map.
        pooled: Whether the output is a pooled map.
        rounds: Whether sums and averages are rounded to 8 bits.
    """

    geometry: Geometry
    groups: int
    filter: Filter
    before: Patches | None
    pooled: bool
    rounds: bool


class FilteredConvolution(torch.autograd.Function):
    """The exact output, and with it the carrier of its gradient if the output is pooled."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        carrier: Tensor | None,  # noqa: ARG004 - only its gradient counts
        slopes: Tensor | None,  # noqa: ARG004 - for the backward pass
        kernel: Tensor,
        bias: Tensor | None,
        call: Call,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """The output, and a carrier of zeros if it is pooled."""
        conv, filter = call.geometry, call.filter
        y = functional.conv2d(
            x, kernel, bias, conv.stride, conv.padding, conv.dilation, call.groups
        )
        if not call.pooled:
            return y
        return y, y.new_zeros(()).expand(*y.shape[:2], *filter.output.count)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep the sums of the kernel's taps, of the input's patches and of the slopes."""
        x, _, slopes, kernel, _, call = inputs
        filter = call.filter
        needs_x, needs_carrier, _, needs_kernel, *_ = ctx.needs_input_grad
        sums = scale = None
        if needs_kernel:
            sums = patch_sum(x, filter.input)
            if call.rounds:
                sums, scale = to_int8(sums)
        ctx.save_for_backward(
            _taps(kernel, filter.dilation) if needs_x or needs_carrier else None,
            sums,
            scale,
            slopes if needs_carrier else None,
        )
        ctx.call, ctx.kernel_shape = call, kernel.shape
        ctx.channels_last = is_channels_last(x)
        if call.pooled:
            ctx.mark_non_differentiable(output[0])
            ctx.set_materialize_grads(False)  # no zeros the size of y

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the input or of its carrier, of the kernel and of the bias."""
        call: Call = ctx.call
        taps, sums, scale, slopes = ctx.saved_tensors
        needs_x, needs_carrier, _, needs_kernel, needs_bias, _ = ctx.needs_input_grad
        g = gradients[-1]
        if ctx.channels_last:  # that of a global average pool is not
            g = g.contiguous(memory_format=torch.channels_last)
        average, divisor = _average(g, call)
        of_x = of_carrier = of_kernel = of_bias = None
        if needs_x or needs_carrier:
            # under autocast g has fewer bits than the kernel
            taps = _divided(taps.to(g.dtype), divisor)
            small = input_gradient(average, taps, call.filter.dilation, call.groups)
            if needs_carrier:
                of_carrier = _carried(small, slopes, call)
            else:
                of_x = patch_spread(small, call.filter.input, call.geometry.x)
        if needs_kernel:
            if call.rounds:
                sums = from_int8(sums, scale)
            small = kernel_gradient(average, sums.to(g.dtype), call.groups)
            of_kernel = _divided(small, divisor).expand(ctx.kernel_shape)
        if needs_bias:
            of_bias = g.sum((0, 2, 3))
        return of_x, of_carrier, None, of_kernel, of_bias, None


def _average(g: Tensor, call: Call) -> tuple[Tensor, int]:
    """The average over patches of the output's gradient `g`, times a number.

    `g` is the gradient itself, or its sums over patches if the output is pooled.

    Returns:
        The average before it is divided, and the number to divide by: the kernels are divided
        instead, which are smaller than feature maps.
    """
    filter, divisor = call.filter, call.filter.meets
    if not call.pooled:
        g = patch_mean(g, filter.output, filter.divisor)
    else:
        elements = filter.divisor or patch_elements(filter.output, call.geometry.y, g)
        if isinstance(elements, int):
            divisor *= elements
        else:
            g = g / elements
    return in_int8(g) if call.rounds else g, divisor


def _divided(x: Tensor, divisor: int) -> Tensor:
    return x if divisor == 1 else x / divisor


def _carried(g: Tensor, slopes: Tensor | None, call: Call) -> Tensor:
    """Sums over patches of the gradient of a pooled input, which is `g` everywhere in a patch."""
    below, patches = call.filter.input, call.before
    assert patches is not None
    times = below.size[0] // patches.size[0], below.size[1] // patches.size[1]
    if times != (1, 1):
        g = patch_spread(g, Patches(times, (0, 0), below.count), patches.count)
    if slopes is None:
        return g * patch_elements(patches, call.geometry.x, g)
    return g * slopes.to(g.dtype)


def _taps(kernel: Tensor, dilation: Pair) -> Tensor:
    """The part of the kernel that the gradient of the input needs."""
    if kernel.shape[2:] == (1, 1) or any(dilation):
        return kernel
    return kernel.sum((2, 3), keepdim=True)
