"""A convolution pads its input itself."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pocketune.compiler.passes.fold_padding import fold_padding

from ..lowering import check_function, leaf, operators
from .programs import program_of


def padded(pads: Sequence[int], value: float = 0.0, kernel: int = 3) -> list[tuple[int, ...]]:
    """The pads of the convolutions that were folded."""

    def forward(x: Tensor, w: Tensor) -> list[Tensor]:
        return [F.conv2d(F.pad(x, list(pads), value=value), w, padding=(1, 2))]

    program = program_of(forward, [leaf(2, 3, 5, 6), leaf(4, 3, kernel, kernel)])
    fold_padding(program)
    return [node.meta["pads"] for node in program.needed() if "pads" in node.meta]


def test_zeros_on_any_side_are_added_to_its_own() -> None:
    assert padded([1, 2, 3, 4]) == [(3 + 1, 1 + 2, 4 + 1, 2 + 2)]
    assert padded([1, 2]) == [(1, 1 + 2, 1, 2 + 2)]


@pytest.mark.parametrize(
    ("pads", "value", "kernel"),
    [
        ([1, 1, 1, 1], 0.5, 3),
        ([-1, 1, 1, 1], 0.0, 3),
        ([0, 0, 0, 0, 1, -1], 0.0, 3),
        ([1, 1, 1, 1], 0.0, 1),
    ],
)
def test_other_pads_stay(pads: list[int], value: float, kernel: int) -> None:
    def forward(x: Tensor, w: Tensor) -> list[Tensor]:
        return [F.conv2d(F.pad(x, pads, value=value), w)]

    program = program_of(forward, [leaf(2, 3, 6, 6), leaf(4, 3, kernel, kernel)])
    fold_padding(program)
    assert not any("pads" in node.meta for node in program.needed())


@pytest.mark.parametrize("stride", [1, 2])
def test_the_result_is_the_same(stride: int) -> None:
    def step(x: Tensor, w: Tensor, g: Tensor) -> list[Tensor]:
        y = F.conv2d(F.pad(x, (0, 1, 2, 1)), w, stride=stride, padding=1)
        return [y, *torch.autograd.grad(y, [x, w], g)]

    x, w = leaf(2, 4, 6, 5), leaf(4, 4, 3, 3, seed=1)
    g = torch.randn_like(F.conv2d(F.pad(x, (0, 1, 2, 1)), w, stride=stride, padding=1)).detach()
    check_function(step, [x, w, g])
    forward = check_function(lambda x, w: [F.conv2d(F.pad(x, (0, 1, 0, 1)), w)], [x, w])
    assert operators(forward) == ["Conv"]
