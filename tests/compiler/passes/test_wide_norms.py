"""Which convolutions and norms are joined; that they compute the same, `test_wide_norm` checks."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pocketune.compiler.passes.simplify import skip_copies
from pocketune.compiler.passes.wide_norms import join_wide_norms, wide_norm, wide_norm_backward

from ..lowering import leaf
from .programs import program_of, targets

Layer = Callable[[Tensor, Tensor], Tensor]


def joined(
    layer: Layer = F.conv2d,
    shape: tuple[int, ...] = (2, 4, 6, 6),
    kernel: tuple[int, ...] = (8, 4, 1, 1),
    training: bool = True,
    trained: bool = True,
    reads: Callable[[Tensor, Tensor], Tensor] = lambda y, made: y,
) -> list[str]:
    """The operators left of such a layer, a norm and their gradients."""
    channels = kernel[0]

    def step(x: Tensor, w: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
        mean, var = torch.zeros(channels), torch.ones(channels)
        made = layer(x, w)
        y = F.batch_norm(made, mean, var, weight, bias, training, 0.1, 1e-5)
        wanted = [x, w, weight, bias] if trained else [x, weight, bias]
        return [y, *torch.autograd.grad(reads(y, made).square().sum(), wanted)]

    tensors = [leaf(*shape), leaf(*kernel, seed=1, grad=trained)]
    tensors += [leaf(channels, seed=2), leaf(channels, seed=3)]
    program = program_of(step, tensors)
    skip_copies(program)
    join_wide_norms(program)
    return targets(program)


NAMES = {str(wide_norm), str(wide_norm_backward)}
OPERATORS = {"convolution", "convolution_backward", "native_batch_norm"}


def test_nothing_is_left_of_both() -> None:
    left = joined()
    assert set(left) >= NAMES
    assert not OPERATORS & {name.split(".")[0] for name in left}


def by_three(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w, padding=1)


def by_stride(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w, stride=2)


def padded(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w, padding=1)


def with_bias(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w, w.mean((1, 2, 3)))


def grouped(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w, groups=2)


CASES = {
    "3x3": {"layer": by_three, "kernel": (8, 4, 3, 3)},
    "strided": {"layer": by_stride},
    "padded": {"layer": padded},
    "with a bias": {"layer": with_bias},
    "in groups": {"layer": grouped, "kernel": (8, 2, 1, 1)},
    "less than twice as many channels": {"kernel": (7, 4, 1, 1)},
    "more products than pixels": {"shape": (1, 40, 3, 3), "kernel": (80, 40, 1, 1)},
    "running statistics": {"training": False},
    "a frozen kernel": {"trained": False},
    "another reader": {"reads": lambda y, made: y + made},
}


@pytest.mark.parametrize("name", CASES)
def test_others_stay_as_they_are(name: str) -> None:
    assert not NAMES & set(joined(**CASES[name]))
