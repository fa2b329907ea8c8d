"""Linear layers and 1x1 convolutions whose backward pass works on a few Walsh bases.

Yang, Chiang, Li, Marculescu, Marculescu: Efficient Low-rank Backpropagation for Vision Transformer
Adaptation, NeurIPS 2023 (LBP-WHT).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError, whole_number
from pocketune.layers.autograd import first_order, is_recorded
from pocketune.layers.conv import Conv2d
from pocketune.layers.walsh import Bases, Grid, grid_of_tokens, walsh_bases


def check_bases(order: object, rank: object) -> None:
    """Check the side of patches and the number of sequencies.

    Raises:
        PocketuneError: Naming the argument that is wrong.
    """
    side = whole_number(order)
    if side is None or side < 2 or side & (side - 1):
        raise PocketuneError(f"order={order!r} must be a power of two, from 2")
    most = 2 * side - 1
    if (number := whole_number(rank)) is None or not 1 <= number <= most:
        raise PocketuneError(f"rank={rank!r} must be from 1 to {most}, where all bases are kept")


class LowRankLinear(nn.Linear):
    """`nn.Linear` on tokens with a backward pass of low rank; output and bias gradient are exact.

    With the bases B_k of `layers.walsh`, the input x and the gradient of the output g (equations 6
    to 8 of the paper):

    * x_k = sum over a patch of x B_k, and g_k = mean over a patch of g B_k
    * gradient of the weight: `sum over images, patches and k of g_k^T x_k`
    * gradient of the input: `sum over k of B_k (g_k W)`

    Both are exact if x and g have no other sequencies. Tokens are a square grid with up to two more
    in front, which stay exact, (N, T, C), or a map with the channels last, (N, H, W, C). Other
    inputs, and grids of no more tokens than bases, have the exact backward pass.

    Kept for the backward pass: 32 bits for each basis and input channel, of about
    `rank (rank + 1) / 2` in each patch, instead of for each token; nothing if the weight is frozen.

    The state dict is that of `nn.Linear`. Second derivatives are refused.

    Args:
        order: Side of a patch in tokens, a power of two.
        rank: Bases of sequencies i + j < rank are kept.
        options: All other arguments of `nn.Linear`.

    Raises:
        PocketuneError: Order or rank is out of range.
    """

    def __init__(self, *arguments: Any, order: int = 8, rank: int = 6, **options: Any) -> None:
        super().__init__(*arguments, **options)
        check_bases(order, rank)
        self.order, self.rank = order, rank

    @classmethod
    def from_linear(cls, linear: nn.Linear, order: int = 8, rank: int = 6) -> LowRankLinear:
        """Take over weight and bias of a linear layer (the same objects, not copies)."""
        made = cls(
            linear.in_features,
            linear.out_features,
            bias=linear.bias is not None,
            order=order,
            rank=rank,
            device="meta",
        )
        made.weight, made.bias = linear.weight, linear.bias
        return made.train(linear.training)

    def forward(self, input: Tensor) -> Tensor:
        """(N, T, in) or (N, H, W, in) -> the same with `out` features; other shapes as usual."""
        grid = _grid(input)
        bases = None if grid is None else walsh_bases(grid, self.order, self.rank)
        if bases is None or not is_recorded(input, self.weight, self.bias):
            return super().forward(input)
        y: Tensor = _LowRank.apply(input, self.weight, self.bias, _Call(bases, False))  # type: ignore[no-untyped-call]
        return y

    def extra_repr(self) -> str:
        """As `nn.Linear`, then order and rank, for `repr`."""
        return f"{super().extra_repr()}, order={self.order}, rank={self.rank}"


class LowRankConv2d(Conv2d):
    """A 1x1 convolution with the backward pass of `LowRankLinear`; its pixels are the tokens.

    Kept for the backward pass: as `LowRankLinear`.

    Args:
        order: Side of a patch in pixels, a power of two.
        rank: Bases of sequencies i + j < rank are kept.
        options: All other arguments of `Conv2d`.

    Raises:
        PocketuneError: Order or rank is out of range.
    """

    def __init__(self, *arguments: Any, order: int = 8, rank: int = 6, **options: Any) -> None:
        super().__init__(*arguments, **options)
        check_bases(order, rank)
        self.order, self.rank = order, rank

    @classmethod
    def from_pointwise(cls, conv: nn.Conv2d, order: int = 8, rank: int = 6) -> LowRankConv2d:
        """Take over the parameters of a 1x1 convolution (the same objects, not copies)."""
        made = cls.like(conv, order=order, rank=rank)
        made.weight = conv.weight
        return made

    def convolve(self, x: Tensor) -> Tensor:
        """The output; the gradients of low rank are those of maps in a batch."""
        grid = Grid(*x.shape[-2:])
        bases = walsh_bases(grid, self.order, self.rank) if x.dim() == 4 else None
        if bases is None or not is_recorded(x, self.weight, self.bias):
            return super().convolve(x)
        y: Tensor = _LowRank.apply(x, self.weight, self.bias, _Call(bases, True))  # type: ignore[no-untyped-call]
        return y

    def extra_repr(self) -> str:
        """As `Conv2d`, then order and rank, for `repr`."""
        return f"{super().extra_repr()}, order={self.order}, rank={self.rank}"


def _grid(x: Tensor) -> Grid | None:
    if x.dim() == 3:
        return grid_of_tokens(x.shape[1])
    return Grid(x.shape[1], x.shape[2]) if x.dim() == 4 else None


class _Call(NamedTuple):
    """One call of a layer: its bases, and whether the channels come before the pixels."""

    bases: Bases
    channels_first: bool


class _LowRank(torch.autograd.Function):
    """The exact output; both products of the backward pass are those of the bases."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, call: _Call) -> Tensor:
        compute = functional.conv2d if call.channels_first else functional.linear
        return compute(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        x, weight, _, ctx.call = inputs
        ctx.shape = x.shape
        needs_x, needs_weight, *_ = ctx.needs_input_grad
        ctx.save_for_backward(
            weight if needs_x or needs_weight else None,
            _projected(x, ctx.call.bases.sums, ctx.call) if needs_weight else None,
        )

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,), call = gradients, ctx.call
        weight, sums = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        of_x = of_weight = of_bias = None
        if needs_x or needs_weight:
            small = _projected(g, call.bases.means, call)
            rows = small.reshape(-1, small.shape[2])
            if needs_x:
                coefficients = rows @ weight.to(g.dtype).flatten(1)
                coefficients = coefficients.view(*small.shape[:2], -1)
                of_x = _spread(coefficients, call, ctx.shape)
            if needs_weight:
                columns = sums.to(g.dtype).reshape(-1, sums.shape[2])
                of_weight = (rows.t() @ columns).view(weight.shape)
        if needs_bias:
            of_bias = g.sum((0, 2, 3) if call.channels_first else tuple(range(g.dim() - 1)))
        return of_x, of_weight, of_bias, None


def _projected(x: Tensor, matrix: NDArray[Any], call: _Call) -> Tensor:
    """A coefficient for each image, basis and channel, (N, K, C)."""
    if call.channels_first:
        return torch.bmm(x.flatten(2), _for_each(matrix.T, x)).transpose(1, 2)
    return torch.bmm(_for_each(matrix, x), x.reshape(len(x), -1, x.shape[-1]))


def _spread(coefficients: Tensor, call: _Call, shape: torch.Size) -> Tensor:
    """The coefficients (N, K, C) times their bases, in the shape of the input."""
    values = call.bases.values
    if call.channels_first:
        maps = torch.bmm(coefficients.transpose(1, 2), _for_each(values, coefficients))
        return maps.view(shape)
    return torch.bmm(_for_each(values.T, coefficients), coefficients).view(shape)


def _for_each(matrix: NDArray[Any], x: Tensor) -> Tensor:
    """A matrix as a batch of the same one for each image of `x`."""
    single = torch.tensor(matrix[None], dtype=x.dtype, device=x.device)
    return single.expand(len(x), -1, -1)
