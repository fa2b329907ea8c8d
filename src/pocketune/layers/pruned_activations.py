"""Layers that keep only the largest elements of their input.

They follow Dynamic Sparse Graph (Liu et al., Dynamic Sparse Graph for Efficient Deep Learning,
ICLR 2019), in which the elements with the smallest activation are zero in the forward and in the
backward pass. With `forward=False` nothing is zeroed in the forward pass, and the backward pass
computes with zeros for what was not kept.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.layers.autograd import first_order, is_recorded
from pocketune.layers.bits import is_channels_last, mask_gradient
from pocketune.layers.conv import Conv2d
from pocketune.layers.norm import require_usual
from pocketune.layers.survivors import (
    drop_small,
    magnitude_threshold,
    pack_above,
    restore,
    survivor_count,
    survivors,
    threshold,
    zero_dropped,
)
from pocketune.layers.weight_standardization import StandardizedConv2d

aten = torch.ops.aten


def ternary(*shape: int) -> Tensor:
    """A random tensor of -sqrt(3), 0 and sqrt(3), two thirds zeros (equation 6 with s = 3).

    Layers of the same shape have the same, on any machine.
    """
    drawn = np.random.default_rng(0).choice([-1.0, 0.0, 0.0, 0.0, 0.0, 1.0], size=shape)
    return torch.from_numpy((math.sqrt(3) * drawn).astype(np.float32))


def estimate_dimensions(filters: int, epsilon: float) -> int:
    """Dimensions in which products with `filters` kernels are off by `epsilon` with a bound.

    The paper gives their order, log(filters) / epsilon^2 (section 2.2). The constants are those of
    Dasgupta and Gupta's proof of the lemma (An Elementary Proof of a Theorem of Johnson and
    Lindenstrauss, 2003).

    >>> estimate_dimensions(128, 0.5)
    232
    """
    return max(1, int(4 * math.log(filters) / (epsilon**2 / 2 - epsilon**3 / 3)))


class PrunedConv2d(Conv2d):
    """A convolution of the largest elements of its input, with a trained kernel.

    Of each image, the share `ratio` with the smallest magnitude is set to zero first. Padding adds
    nothing to the elements that are counted, and is filled with zeros.

    Kept for the backward pass: 32 bits for each survivor and 1 bit an element. `nn.Conv2d` keeps 32
    bits an element.

    With `dimensions`, the layer also estimates its output, for the norm behind it (`estimate_for`):
    in the dimension-reduction search of section 2.2, kernel and input are projected to so many
    dimensions by a random matrix of -sqrt(3), 0 and sqrt(3).

    Args:
        arguments: Those of `Conv2d`.
        ratio: Share of the elements to drop, from 0 to less than 1.
        forward: Whether the forward pass computes with the zeros, too.
        dimensions: Of the projection; None estimates nothing. Of one group only.
        options: Keyword arguments of `Conv2d`.
    """

    projection: Tensor | None

    def __init__(
        self,
        *arguments: Any,
        ratio: float = 0.5,
        forward: bool = True,
        dimensions: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.ratio, self.masks_forward = ratio, forward
        matrix = None
        if dimensions is not None:
            matrix = ternary(dimensions, self.in_channels, *self.kernel_size)
        self.register_buffer("projection", matrix, persistent=False)
        self._readers: tuple[PrunedBatchNorm2d, ...] = ()

    def estimate_for(self, norm: PrunedBatchNorm2d) -> None:
        """Let the norm that reads the output select by its estimate."""
        self._readers = (norm,)  # a tuple, so that it is not a part of this module

    def forward(self, input: Tensor) -> Tensor:
        """(N, in, H, W) or (in, H, W) -> the same with `out_channels`, and the output's size."""
        if input.dim() == 3:
            return self.forward(input[None])[0]
        for norm in self._readers:
            vars(norm)[_ESTIMATE] = self._estimate(input)
        count = survivor_count(math.prod(input.shape[1:]), self.ratio)
        if not (self.training and is_recorded(input, self.weight, self.bias)):
            plain: Tensor = super().forward(
                drop_small(input, count) if self.masks_forward else input
            )
            return plain
        call = _Convolution(
            (self.stride, self.padding, self.dilation), self.groups, self.pads(input)
        )
        pruning = _Pruning(count, self.masks_forward, is_channels_last(input))
        y: Tensor = _PrunedConvolution.apply(  # type: ignore[no-untyped-call]
            input, self.kernel(), self.bias, call, pruning
        )[0]
        return y

    @torch.no_grad()
    def _estimate(self, x: Tensor) -> Tensor:
        """The output without its bias, from products in fewer dimensions (equations 4 and 5)."""
        assert self.projection is not None
        matrix = self.projection.to(x.dtype)
        kernel = self.kernel().detach().flatten(1) @ matrix.flatten(1).t()
        padded = functional.pad(x.detach(), self.pads(x)) if self.same_padding else x.detach()
        small = functional.conv2d(padded, matrix, None, self.stride, self.padding, self.dilation)
        return functional.conv2d(small, (kernel / len(matrix))[:, :, None, None])

    def extra_repr(self) -> str:
        """As `Conv2d`, then the share that is dropped, for `repr`."""
        return f"{super().extra_repr()}, ratio={self.ratio}"


class PrunedStandardizedConv2d(StandardizedConv2d, PrunedConv2d):
    """`PrunedConv2d` with filters that are standardized in every step."""


class PrunedBatchNorm2d(nn.BatchNorm2d):
    """Batch norm that keeps the elements of its input whose output is largest.

    Of each image, the share `ratio` of the output with the smallest magnitude is set to zero, in
    evaluation as in training. Where a ReLU follows, its output counts, so that negative elements
    are the first to go. The statistics are those of the whole input. The gradient reaches the
    survivors alone: what it would be for the others, through the statistics, is left out.

    Kept for the backward pass: 32 bits for each survivor, 1 bit an element, and the deviation of
    each channel. `nn.BatchNorm2d` keeps 32 bits an element.

    Args:
        features: Number of channels.
        ratio: Share of the elements to drop, from 0 to less than 1.
        forward: Whether the forward pass computes with the zeros, too.
        rectified: Whether a ReLU follows.
        options: Keyword arguments of `nn.BatchNorm2d`.
    """

    def __init__(
        self,
        features: int,
        *,
        ratio: float = 0.5,
        forward: bool = True,
        rectified: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(features, **options)
        self.ratio, self.masks_forward, self.rectified = ratio, forward, rectified

    @classmethod
    def from_batch_norm(cls, norm: nn.BatchNorm2d, **options: Any) -> PrunedBatchNorm2d:
        """Take over the tensors of a batch norm (the same objects, not copies).

        Args:
            norm: The batch norm.
            options: Further arguments of this class.

        Raises:
            PocketuneError: It has no weight and bias, no running statistics, or a forward pass of
                its own.
        """
        require_usual(norm)
        if not (norm.affine and norm.track_running_stats):
            raise PocketuneError(
                f"{norm} cannot be pruned: it needs a weight, a bias and running statistics "
                "(affine=True, track_running_stats=True)"
            )
        made = cls(norm.num_features, eps=norm.eps, momentum=norm.momentum, **options)
        made.weight, made.bias = norm.weight, norm.bias
        made.running_mean, made.running_var = norm.running_mean, norm.running_var
        made.num_batches_tracked = norm.num_batches_tracked
        for name, module in norm.named_children():
            made.add_module(name, module)
        return made.train(norm.training)

    def forward(self, input: Tensor) -> Tensor:
        """(N, features, H, W) -> the same shape."""
        y = self._normalize(input)
        for module in self.children():
            y = module(y)
        return y

    def _normalize(self, x: Tensor) -> Tensor:
        estimate = vars(self).pop(_ESTIMATE, None)
        count = survivor_count(math.prod(x.shape[1:]), self.ratio)
        if not self.training:
            y: Tensor = super().forward(x)
            if not self.masks_forward:
                return y
            score = y if estimate is None else super().forward(estimate)
            score = functional.relu(score) if self.rectified else score
            return y * (score.abs() > threshold(score, count).view(-1, 1, 1, 1))
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = self.momentum
        if momentum is None:
            momentum = 1 / float(self.num_batches_tracked)
        pruning = _Pruning(count, self.masks_forward, is_channels_last(x), self.rectified)
        statistics = (self.running_mean, self.running_var, momentum, self.eps)
        pruned: Tensor = _PrunedNorm.apply(  # type: ignore[no-untyped-call]
            x, self.weight, self.bias, estimate, statistics, pruning
        )[0]
        return pruned

    def extra_repr(self) -> str:
        """As `nn.BatchNorm2d`, then the share that is dropped, for `repr`."""
        usual: str = super().extra_repr()  # type: ignore[no-untyped-call]
        return f"{usual}, ratio={self.ratio}"


_ESTIMATE = "_estimate"
"""Attribute of a norm that holds the estimate of its input until it runs."""


class _Pruning(NamedTuple):
    """How a layer is pruned.

    Attributes:
        most: Survivors of an image.
        masks_forward: Whether the forward pass is pruned.
        channels_last: The order of the bits.
        rectified: Whether negative elements count as zeros.
    """

    most: int
    masks_forward: bool
    channels_last: bool
    rectified: bool = False

    def select(self, score: Tensor, estimate: Tensor | None = None) -> Tensor:
        """The packed bits of the survivors; of those whose estimate is large enough, if given.

        The threshold of the first image's estimate serves the whole batch (section 2.1).
        """
        score = self._rectify(score)
        if estimate is not None:
            estimate = self._rectify(estimate)
            shared = magnitude_threshold(estimate[:1], self.most)
            packed = pack_above(estimate, shared, self.channels_last)
            score = zero_dropped(score, packed, self.channels_last)
        return pack_above(score, magnitude_threshold(score, self.most), self.channels_last)

    def _rectify(self, score: Tensor) -> Tensor:
        return functional.relu(score) if self.rectified else score

    def zero(self, x: Tensor, packed: Tensor) -> Tensor:
        """What the forward pass computes with."""
        return zero_dropped(x, packed, self.channels_last) if self.masks_forward else x

    def keep(self, x: Tensor, packed: Tensor) -> Tensor:
        """The values of the survivors."""
        return survivors(x, packed, self.most, self.channels_last)

    def restore(self, values: Tensor, packed: Tensor, shape: torch.Size) -> Tensor:
        """The input with zeros for what was dropped."""
        return restore(values, packed, list(shape), self.channels_last)

    def mask(self, gradient: Tensor, packed: Tensor) -> Tensor:
        """The gradient of what `zero` returns, as one of its argument."""
        return (
            mask_gradient(gradient, packed, self.channels_last) if self.masks_forward else gradient
        )


class _Convolution(NamedTuple):
    """Stride, padding and dilation of a convolution, its groups, and the zeros put around first."""

    numbers: tuple[Any, Any, Any]
    groups: int
    pads: tuple[int, int, int, int]

    def pad(self, x: Tensor) -> Tensor:
        return functional.pad(x, self.pads) if any(self.pads) else x

    def crop(self, gradient: Tensor) -> Tensor:
        left, right, top, bottom = self.pads
        return (
            functional.pad(gradient, (-left, -right, -top, -bottom)) if any(self.pads) else gradient
        )


class _PrunedConvolution(torch.autograd.Function):
    """The output, and what is kept: values and bits."""

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor | None, call: _Convolution, pruning: _Pruning
    ) -> tuple[Tensor, Tensor, Tensor]:
        packed = pruning.select(x)
        padded = call.pad(pruning.zero(x, packed))
        y = functional.conv2d(padded, weight, bias, *call.numbers, call.groups)
        return y, pruning.keep(x, packed), packed

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, weight, bias, ctx.call, ctx.pruning = inputs
        _, values, packed = output
        ctx.mark_non_differentiable(values, packed)
        ctx.set_materialize_grads(False)
        ctx.shape, ctx.bias = x.shape, None if bias is None else list(bias.shape)
        ctx.save_for_backward(values, packed, weight)

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        call, pruning, g = ctx.call, ctx.pruning, gradients[0]
        values, packed, weight = ctx.saved_tensors
        x = call.pad(pruning.restore(values, packed, ctx.shape))
        wanted = list(ctx.needs_input_grad[:3])
        of_x, of_weight, of_bias = aten.convolution_backward(
            g, x.to(g.dtype), weight.to(g.dtype), ctx.bias,
            *call.numbers, False, (0, 0), call.groups, wanted,
        )  # fmt: skip
        if of_x is not None:
            of_x = pruning.mask(call.crop(of_x), packed)
        return of_x, of_weight, of_bias, None, None


class _PrunedNorm(torch.autograd.Function):
    """The output with its zeros, and what is kept: values less their means, bits, deviations."""

    @staticmethod
    def forward(
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        estimate: Tensor | None,
        statistics: tuple[Any, ...],
        pruning: _Pruning,
    ) -> tuple[Tensor, ...]:
        running_mean, running_var, momentum, eps = statistics
        y, mean, inverse = torch.native_batch_norm(
            x, weight, bias, running_mean, running_var, True, momentum, eps
        )
        mean = mean.view(1, -1, 1, 1)
        if estimate is not None:
            scale, shift = (weight * inverse).view(mean.shape), bias.view(mean.shape)
            estimate = (estimate - mean) * scale + shift
        packed = pruning.select(y, estimate)
        return pruning.zero(y, packed), pruning.keep(x - mean, packed), packed, inverse

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, weight, _, _, (*_, ctx.eps), ctx.pruning = inputs
        ctx.shape = x.shape
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weight, *output[1:])

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weight, values, packed, inverse = ctx.saved_tensors
        pruning: _Pruning = ctx.pruning
        g = pruning.mask(gradients[0], packed)
        centered = pruning.restore(values, packed, ctx.shape)
        zeros = torch.zeros(inverse.shape, dtype=inverse.dtype, device=inverse.device)
        of_x, of_weight, of_bias = aten.native_batch_norm_backward(
            g, centered.to(g.dtype), weight, None, None, zeros, inverse, True, ctx.eps,
            list(ctx.needs_input_grad[:3]),
        )  # fmt: skip
        if of_x is not None:
            of_x = pruning.mask(of_x, packed)
        return of_x, of_weight, of_bias, None, None, None
