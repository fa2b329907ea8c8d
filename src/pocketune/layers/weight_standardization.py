"""Convolutions with standardized kernels."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.layers.autograd import is_recorded
from pocketune.layers.conv import Conv2d, is_plain, require_kernel

EPS = 1e-5


class _Standardize(torch.autograd.Function):
    """`(w - mean) / (std + eps)` of each filter; keeps `w`, which is stored anyway."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor) -> Tensor:
        return _standardized(weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """`(g - mean(g) - y d) / (deviation + EPS)`, with the result y.

        Of a filter's n weights, `d = sum(g y) (deviation + EPS) / (deviation (n - 1))`.
        """
        (gradient,) = gradients
        centered, deviation = _moments(ctx.saved_tensors[0])
        divisor = deviation + EPS
        result = centered / divisor
        # the deviation depends on every weight of the filter; where it is 0, so is `result`
        cross = (gradient * result).sum((1, 2, 3), keepdim=True)
        slope = cross * (divisor / (deviation + _TINY)) * (1 / _freedom(result))
        mean = gradient.mean((1, 2, 3), keepdim=True)
        return (gradient - mean - result * slope) / divisor


_TINY = 1e-20


def _standardized(weight: Tensor) -> Tensor:
    centered, deviation = _moments(weight)
    return centered / (deviation + EPS)


def _moments(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Filters minus their means, and their standard deviations with Bessel's correction."""
    centered = weight - weight.mean((1, 2, 3), keepdim=True)
    norm = torch.linalg.vector_norm(centered, dim=(1, 2, 3), keepdim=True)
    return centered, norm * _freedom(weight) ** -0.5


def _freedom(weight: Tensor) -> int:
    return max(weight[0].numel() - 1, 1)


def standardize(weight: Tensor) -> Tensor:
    """Filters (out, in / groups, kh, kw), each of mean 0 and standard deviation 1.

    `(w - mean) / (std + 1e-5)` with the unbiased standard deviation over a filter's weights
    (Qiao et al., Micro-Batch Training with Batch-Channel Normalization and Weight
    Standardization, 2019, section 4.2). A filter of equal weights becomes 0.
    """
    if not is_recorded(weight):
        return _standardized(weight)
    result: Tensor = _Standardize.apply(weight)  # type: ignore[no-untyped-call]
    return result


class StandardizedConv2d(Conv2d):
    """A convolution that standardizes its filters in every step and trains the original ones.

    Kept for the backward pass: 32 bits an element (the input), as in `nn.Conv2d`, and the
    standardized filters. Standardizing keeps nothing else.
    """

    def kernel(self) -> Tensor:
        """The standardized filters."""
        return standardize(self.weight)


def standardize_convolution(conv: nn.Module) -> StandardizedConv2d:
    """`conv` with standardized filters and the same parameters; see `StandardizedConv2d`.

    Raises:
        PocketuneError: `conv` has its own forward pass.
    """
    if not is_plain(conv):
        raise PocketuneError(
            f"the filters of a {type(conv).__name__} cannot be standardized while they are "
            "trained: the convolution has its own forward pass"
        )
    return StandardizedConv2d.from_convolution(conv)


def settled(conv: nn.Conv2d) -> Conv2d:
    """The ordinary convolution that computes what a `StandardizedConv2d` does now."""
    made = Conv2d.like(conv)
    kernel = standardize(conv.weight.detach())
    made.weight = nn.Parameter(kernel, requires_grad=conv.weight.requires_grad)
    return made


def standardized(conv: nn.Conv2d) -> nn.Conv2d:
    """A copy of `conv` with its filters standardized once, for a convolution that stays frozen.

    Raises:
        PocketuneError: If its kernel is computed in every step.
    """
    require_kernel(conv)
    twin = copy.deepcopy(conv)
    with torch.no_grad():
        twin.weight.copy_(standardize(conv.weight))
    return twin
