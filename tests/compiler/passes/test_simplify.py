"""Constants are folded, copies skipped, and the gradient of a clip reads the clip's output."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn import functional as F

from pocketune.compiler.passes.program import Program
from pocketune.compiler.passes.simplify import fold_constants, reuse_clips, skip_copies

from ..lowering import leaf
from .programs import program_of, run, targets


def test_chains_of_constants() -> None:
    def forward(x: Tensor, a: Tensor, b: Tensor) -> list[Tensor]:
        scale = (a + b).exp()
        return [x * scale, scale.neg()]

    inputs = [leaf(3), leaf(3, seed=1, grad=False), leaf(3, seed=2, grad=False)]
    program = program_of(forward, inputs[:1], inputs[1:])
    fold_constants(program)
    assert targets(program) == ["mul.Tensor"]
    torch.testing.assert_close(run(program, inputs[:1]), forward(*inputs))


def test_operators_with_several_results() -> None:
    def forward(x: Tensor, a: Tensor) -> list[Tensor]:
        y, indices = functional.max_pool2d(a, 2, return_indices=True)
        return [x + y, indices]

    inputs = [leaf(1, 1, 2, 2), leaf(1, 1, 4, 4, seed=1, grad=False)]
    program = program_of(forward, inputs[:1], inputs[1:])
    fold_constants(program)
    assert targets(program) == ["add.Tensor"]
    torch.testing.assert_close(run(program, inputs[:1]), forward(*inputs))


@pytest.mark.parametrize(
    "copied",
    [
        torch.clone,
        torch.detach,
        torch.ops.aten.alias,
        lambda x: x.view(3, 4),
        lambda x: x.expand(3, 4),
        lambda x: torch.ops.aten._to_copy(x, dtype=torch.float32),
    ],
)
def test_what_changes_nothing_goes(copied: torch.nn.Module) -> None:
    program = program_of(lambda x: [copied(copied(x)).exp(), copied(x)], [leaf(3, 4)])
    skip_copies(program)
    assert targets(program) == ["exp.default"]
    x = torch.randn(3, 4)
    torch.testing.assert_close(run(program, [x]), [x.exp(), x])


@pytest.mark.parametrize(
    ("changed", "target"),
    [
        (lambda x: x.view(4, 3), "view.default"),
        (lambda x: x.expand(2, 3, 4), "expand.default"),
        (lambda x: x.to(torch.uint8), "_to_copy.default"),
    ],
)
def test_what_changes_shape_or_type_stays(changed: torch.nn.Module, target: str) -> None:
    def forward(x: Tensor) -> list[Tensor]:
        return [changed(x)]

    program = program_of(forward, [leaf(3, 4)])
    skip_copies(program)
    assert targets(program) == [target]


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
