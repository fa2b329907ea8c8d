"""Layer norm that keeps its normalized input in 8 bits for the backward pass."""

from typing import Any

import torch
from torch import Tensor, nn

from pocketune.layers.autograd import first_order, is_recorded
from pocketune.layers.slopes import pack_slopes, scale_by_slopes

_CODES = "normalized", 8, False
"""Arguments of `pack_slopes`: cells of 1/8, and the code is the number of the cell."""


class FewBitLayerNorm(nn.LayerNorm):
    """Layer norm whose backward pass reads the normalized input in steps of 1/8, up to 16.

    The forward pass is that of `nn.LayerNorm`. The normalized input of n values is at most the root
    of n: no value of up to 256 channels is out of range.

    Kept for the backward pass: 8 bits an element, and 32 bits (the inverse deviation) for all that
    is normalized together. `nn.LayerNorm` keeps 32 bits an element (the input).

    Args:
        arguments: As of `nn.LayerNorm`.
        channels_first: Whether the channels of maps (N, C, H, W) are normalized.
    """

    def __init__(self, *arguments: Any, channels_first: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.channels_first = channels_first

    @classmethod
    def from_layer_norm(
        cls, norm: nn.LayerNorm, *, channels_first: bool = False
    ) -> "FewBitLayerNorm":
        """Take over weight and bias of a layer norm (the same objects, not copies)."""
        shape: Any = norm.normalized_shape
        made = cls(shape, norm.eps, device="meta", channels_first=channels_first)
        made.weight, made.bias = norm.weight, norm.bias
        made.elementwise_affine = norm.elementwise_affine
        return made.train(norm.training)

    def forward(self, input: Tensor) -> Tensor:
        """Any shape that ends in that of the norm, or (N, C, H, W) -> the same shape."""
        x = input.permute(0, 2, 3, 1) if self.channels_first else input
        if is_recorded(x, self.weight, self.bias):
            y: Tensor
            y, _, _ = _FewBitNorm.apply(x, self.weight, self.bias, self.normalized_shape, self.eps)  # type: ignore[no-untyped-call]
        else:
            y = super().forward(x)
        return y.permute(0, 3, 1, 2) if self.channels_first else y

    def extra_repr(self) -> str:
        """As `nn.LayerNorm`, for `repr`."""
        return super().extra_repr() + ", channels_first=True" * self.channels_first


class _FewBitNorm(torch.autograd.Function):
    """The output; the codes of the normalized input and the inverse deviation."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: tuple[int, ...], eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        normalized, _, inverse = torch.native_layer_norm(x, shape, None, None, eps)
        y = normalized if weight is None else normalized * weight
        y = y.clone() if bias is None and weight is None else y if bias is None else y + bias
        return y, pack_slopes(normalized, *_CODES), inverse

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, weight, _, ctx.shape, _ = inputs
        _, codes, inverse = output
        ctx.mark_non_differentiable(codes, inverse)
        ctx.set_materialize_grads(False)
        needs_x, needs_weight, *_ = ctx.needs_input_grad
        kept = (codes, inverse, weight) if needs_x else (codes, None, None)
        ctx.save_for_backward(*(kept if needs_x or needs_weight else (None, None, None)))

    @staticmethod
    @first_order
    def backward(ctx: Any, g: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        codes, inverse, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        leading = tuple(range(g.dim() - len(ctx.shape)))
        of_x = of_weight = of_bias = None
        if needs_x:
            of_x = _input_gradient(g if weight is None else g * weight, codes, inverse, ctx.shape)
        if needs_weight:
            of_weight = scale_by_slopes(g, codes, *_CODES).sum(leading)
        if needs_bias:
            of_bias = g.sum(leading)
        return of_x, of_weight, of_bias, None, None


def _input_gradient(g: Tensor, codes: Tensor, inverse: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`r (g - mean(g) - y mean(g y))`, with y normalized and r the inverse deviation."""
    dims = tuple(range(-len(shape), 0))
    cross = scale_by_slopes(g, codes, *_CODES).mean(dims, keepdim=True)
    rest = g - g.mean(dims, keepdim=True)
    return (rest - scale_by_slopes(cross.expand_as(g), codes, *_CODES)) * inverse
