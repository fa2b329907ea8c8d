"""What depends on constants alone is computed while compiling."""

import torch
from torch import Tensor
from torch.nn import functional

from pocketune.compiler.passes.fold_constants import fold_constants

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


def test_numbers_without_inputs_are_constant() -> None:
    program = program_of(lambda x: [torch.where(x > 0, x, 0.5)], [leaf(3)])
    fold_constants(program)
    assert targets(program) == ["gt.Scalar", "where.self"]
