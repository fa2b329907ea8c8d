"""Convolution whose backward pass works on patch averages: gradient filtering.

Yang, Li, Marculescu: Efficient On-device Training via Gradient Filtering, CVPR 2023.

The gradient of the output is replaced by its average over patches of r x r pixels. A convolution
then needs of its input only a sum for each patch, and of its kernel only the sum over its taps:
its backward pass is that of a 1x1 convolution on maps r * r times smaller.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError, check_positive
from pocketune.filtering.geometry import ALIGNMENTS, Filter, Geometry, convolution_geometry
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
from pocketune.filtering.pooled import PooledMap
from pocketune.layers.autograd import first_order, is_recorded
from pocketune.layers.bits import is_channels_last
from pocketune.layers.conv import Conv2d
from pocketune.layers.weight_standardization import StandardizedConv2d

Filtered = TypeVar("Filtered", bound="FilteredConv2d")


class FilteredConv2d(Conv2d):
    """`Conv2d` with filtered gradients; output and gradient of the bias are exact.

    With the gradient of the output g averaged over patches of `patch` x `patch` pixels (2), the
    input x summed over the patches below them, and the kernel W summed over its taps:

    * gradient of the kernel, in every tap: `sum over images and patches of g[o] * x[i]`
    * gradient of the input, all over its patch: `sum over o of W[o, i] * g[o]`

    Where dilation puts the taps a patch or more apart, the second is a dilated convolution of the
    patches with the whole kernel.

    Kept for the backward pass: 32 bits for each patch and input channel if the kernel is trained
    (patches are `ceil(H / patch) * ceil(W / patch)` of the output's height and width), and
    32 bits for each pair of input and output channels in a group if the input needs a gradient
    and the kernel is larger than 1x1. With `bits=8` a patch takes 8 bits, and the averages of the
    output's gradient are rounded to 8 bits too, before either product; see
    `pocketune.filtering.gradients`.

    Where another such layer with the same patches comes next, its gradient can stay in patches in
    between (`passes_pooled`, set by `pocketune.surgery.chain_filters`): it then returns a
    `PooledMap`, and the other layer keeps the slopes of that besides.

    The state dict is that of `nn.Conv2d`. Second derivatives are refused.

    Attributes:
        passes_pooled: whether it returns a `PooledMap` where gradients are recorded.

    Args:
        patch: rows and columns of a patch of the output.
        alignment: where patches lie and what averages divide by: `"natural"`, `"paper"` or
            `"reference"`; the rules are in `pocketune.filtering.geometry`.
        bits: 8 or 32, of the patch sums and of the averages.
        options: all other arguments of `nn.Conv2d`.

    Raises:
        PocketuneError: if `patch` is not a whole number of at least 1, there is no such alignment,
            or `bits` is another number.
    """

    def __init__(
        self,
        *arguments: Any,
        patch: int = 2,
        alignment: str = "natural",
        bits: int = 32,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        check_filter(patch, alignment, bits)
        self.patch = patch
        self.alignment = alignment
        self.bits = bits
        self.passes_pooled = False

    @classmethod
    def from_convolution(
        cls: type[Filtered],
        conv: nn.Module,
        patch: int = 2,
        alignment: str = "natural",
        bits: int = 32,
    ) -> Filtered:
        """Take over the parameters of a convolution (the same objects, not copies).

        Raises:
            PocketuneError: if `conv` is no two-dimensional convolution, or one with a forward
                pass of its own.
        """
        _refuse_other_layers(cls, conv)
        assert isinstance(conv, nn.Conv2d)
        filtered = cls.like(conv, patch=patch, alignment=alignment, bits=bits)
        filtered.weight = conv.weight
        return filtered

    def extra_repr(self) -> str:
        """As `nn.Conv2d`, then patch, alignment, and bits if they are 8, for `repr`."""
        rounded = ", bits=8" if self.bits == 8 else ""
        return f"{super().extra_repr()}, patch={self.patch}, alignment={self.alignment!r}{rounded}"

    def forward(self, input: Tensor | PooledMap) -> Tensor | PooledMap:  # type: ignore[override]
        """(N, in, H, W) or (in, H, W) -> the output, as a `PooledMap` where that is passed on.

        Raises:
            PocketuneError: for a `PooledMap` that would have to be padded first.
        """
        kernel = self.kernel()
        if isinstance(input, PooledMap):
            self._require_numbers()
            return self._filter(input, kernel, self.passes_pooled)
        x = self.pad(input)
        if not is_recorded(x, kernel, self.bias):
            y: Tensor = self._conv_forward(x, kernel, self.bias)
            return y
        if not self._pads_in_numbers():
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            x = functional.pad(x, self._reversed_padding_repeated_twice, mode)
        if x.dim() == 3:  # one image without its batch is not passed on as a pooled map
            single = self._filter(x.unsqueeze(0), kernel, False)
            assert isinstance(single, Tensor)
            return single.squeeze(0)
        return self._filter(x, kernel, self.passes_pooled)

    def _filter(self, x: Tensor | PooledMap, kernel: Tensor, pooled: bool) -> Tensor | PooledMap:
        carrier = slopes = patches = None
        if isinstance(x, PooledMap):
            carrier, slopes, patches = x.carrier, x.slopes, x.patches
            x = x.value
        geometry = convolution_geometry(
            _size(kernel),
            _pair(self.stride),
            _pair(self.padding) if self._pads_in_numbers() else (0, 0),
            _pair(self.dilation),
            _size(x),
        )
        filter = ALIGNMENTS[self.alignment](geometry, self.patch)
        call = _Call(geometry, self.groups, filter, patches, pooled, self.bits == 8)
        result: Any = _FilteredConv.apply(  # type: ignore[no-untyped-call]
            x, carrier, slopes, kernel, self.bias, call
        )
        if not pooled:
            y: Tensor = result
            return y
        y, carrier = result
        return PooledMap(y, carrier, filter.output)

    def _pads_in_numbers(self) -> bool:
        """Whether the convolution itself pads, with `padding` zeros on each side."""
        return not isinstance(self.padding, str) and self.padding_mode == "zeros"

    def _require_numbers(self) -> None:
        if self.same_padding or not self._pads_in_numbers():
            raise PocketuneError(
                f"{self} cannot pad a pooled map; set passes_pooled=False on the layer before it"
            )


def check_filter(patch: object, alignment: object, bits: object) -> None:
    """Refuse what is no patch size, no alignment or no number of bits.

    Raises:
        PocketuneError: naming the argument.
    """
    check_positive(patch=patch)
    if not isinstance(alignment, str) or alignment not in ALIGNMENTS:
        raise PocketuneError(f"alignment={alignment!r} must be one of {', '.join(ALIGNMENTS)}")
    if bits not in (8, 32):
        raise PocketuneError(f"bits={bits!r} is not possible; gradients are filtered in 8 or 32")


class FilteredStandardizedConv2d(StandardizedConv2d, FilteredConv2d):
    """`StandardizedConv2d` with filtered gradients of its standardized filters."""


def filter_convolution(
    conv: nn.Module, *, patch: int = 2, alignment: str = "natural", bits: int = 32
) -> FilteredConv2d:
    """`conv` with filtered gradients and the same parameters; see `FilteredConv2d`.

    Raises:
        PocketuneError: if `conv` is not a two-dimensional convolution of a known class.
    """
    standardizes = type(conv) is StandardizedConv2d
    cls = FilteredStandardizedConv2d if standardizes else FilteredConv2d
    return cls.from_convolution(conv, patch, alignment, bits)


class _Call(NamedTuple):
    """One call of a layer: where the patches of its maps lie, and which maps are pooled ones."""

    geometry: Geometry
    groups: int
    filter: Filter
    before: Patches | None
    """Patches of the input where that is a pooled map."""
    pooled: bool
    """Whether the output is."""
    rounds: bool
    """Whether sums and averages are rounded to 8 bits."""


class _FilteredConv(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        carrier: Tensor | None,  # noqa: ARG004 - only its gradient counts
        slopes: Tensor | None,  # noqa: ARG004 - for the way back
        weight: Tensor,
        bias: Tensor | None,
        call: _Call,
    ) -> Tensor | tuple[Tensor, Tensor]:
        conv, filter = call.geometry, call.filter
        y = functional.conv2d(
            x, weight, bias, conv.stride, conv.padding, conv.dilation, call.groups
        )
        if not call.pooled:
            return y
        return y, y.new_zeros(()).expand(*y.shape[:2], *filter.output.count)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, _, slopes, weight, _, call = inputs
        filter = call.filter
        needs_x, needs_carrier, _, needs_kernel, *_ = ctx.needs_input_grad
        sums = scale = None
        if needs_kernel:
            sums = patch_sum(x, filter.input)
            if call.rounds:
                sums, scale = to_int8(sums)
        ctx.save_for_backward(
            _taps(weight, filter.dilation) if needs_x or needs_carrier else None,
            sums,
            scale,
            slopes if needs_carrier else None,
        )
        ctx.call, ctx.kernel_shape = call, weight.shape
        ctx.channels_last = is_channels_last(x)
        if call.pooled:
            ctx.mark_non_differentiable(output[0])
            ctx.set_materialize_grads(False)  # no zeros the size of y

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        call: _Call = ctx.call
        taps, sums, scale, slopes = ctx.saved_tensors
        needs_x, needs_carrier, _, needs_kernel, needs_bias, _ = ctx.needs_input_grad
        g = gradients[-1]
        if ctx.channels_last:  # a global average pool's is not, and all before it would not be
            g = g.contiguous(memory_format=torch.channels_last)
        average, divisor = _average(g, call)
        of_x = of_carrier = of_kernel = of_bias = None
        if needs_x or needs_carrier:
            # Autocast has g in fewer bits than the kernel.
            taps = _divided(taps.to(g.dtype), divisor)
            small = input_gradient(average, taps, call.filter.dilation, call.groups)
            if needs_carrier:
                of_carrier = _hand_down(small, slopes, call)
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


def _average(g: Tensor, call: _Call) -> tuple[Tensor, int]:
    """Of the output's gradient, or, for a pooled output, of its sums over patches.

    Returns:
        What is the average once it is divided by the number that comes with it: kernels are
        smaller than maps, and are divided instead.
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


def _hand_down(g: Tensor, slopes: Tensor | None, call: _Call) -> Tensor:
    """Sums over the patches of a pooled input of its gradient, which is `g` all over a patch."""
    below, patches = call.filter.input, call.before
    assert patches is not None
    times = below.size[0] // patches.size[0], below.size[1] // patches.size[1]
    if times != (1, 1):
        g = patch_spread(g, Patches(times, (0, 0), below.count), patches.count)
    if slopes is None:
        return g * patch_elements(patches, call.geometry.x, g)
    return g * slopes.to(g.dtype)


def _pair(numbers: Any) -> Pair:
    down, across = numbers
    return down, across


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
