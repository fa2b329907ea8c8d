"""The gradient of a clip reads the clip's output."""

import torch
from torch import Tensor
from torch.nn import functional as F

from pocketune.compiler.passes.program import Program
from pocketune.compiler.passes.reuse_clips import reuse_clips

from ..lowering import leaf
from .programs import program_of, run, targets

X, G = torch.linspace(-2, 8, 41).requires_grad_(), leaf(41, grad=False)


def sources(program: Program) -> list[str]:
    """What the masks of gradients are taken from."""
    reuse_clips(program)
    backward = torch.ops.aten.hardtanh_backward.default
    return [str(n.args[1].target) for n in program.needed() if n.target is backward]


def test_the_output_is_read_and_says_the_same() -> None:
    def step(x: Tensor, g: Tensor) -> list[Tensor]:
        y = F.relu6(x)
        return [y, *torch.autograd.grad(y, [x], g)]

    program = program_of(step, [X, G])
    assert sources(program) == ["aten.hardtanh.default"]
    torch.testing.assert_close(run(program, [X, G]), step(X, G))


def test_each_clip_has_its_own_limits() -> None:
    def step(x: Tensor, g: Tensor) -> list[Tensor]:
        y = F.relu6(x) + F.hardtanh(x)
        return [y, *torch.autograd.grad(y, [x], g)]

    program = program_of(step, [X, G])
    assert sources(program) == ["aten.hardtanh.default"] * 2
    torch.testing.assert_close(run(program, [X, G]), step(X, G))


def test_an_output_that_nothing_needs_is_not_made_for_it() -> None:
    def step(x: Tensor, g: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(F.relu6(x), [x], g))

    assert "hardtanh.default" not in targets(program_of(step, [X, G]))
    program = program_of(step, [X, G])
    reuse_clips(program)
    assert targets(program) == ["hardtanh_backward.default"]
