"""Readers of a copy read the original."""

import pytest
import torch
from torch import Tensor

from pocketune.compiler.passes.skip_copies import skip_copies

from ..lowering import leaf
from .programs import program_of, run, targets


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
