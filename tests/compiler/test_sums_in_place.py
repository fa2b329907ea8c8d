"""Sums and other values that a network writes into a part of a tensor."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pocketune.compiler import compile
from pocketune.compiler.check import CompileError
from pocketune.methods import FullFineTune, adapt


class Ghost(nn.Module):
    """Adds its input to the first channels of two maps, as GhostNet's blocks do.

    With `again`, what follows reads the maps behind these channels, which PyTorch has changed.
    """

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.again = again
        self.conv = nn.Conv2d(3, 4, 1)
        self.linear = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        maps = torch.cat([y, y.square()], 1)
        part = maps[:, :6]
        part += x.repeat(1, 2, 1, 1)
        read = maps if self.again else torch.cat([part, y[:, :2]], 1)
        scores: Tensor = self.linear(read.mean((2, 3)))
        return scores


def test_a_sum_into_a_part_of_a_tensor_compiles(tmp_path: Path) -> None:
    torch.manual_seed(0)
    kit = compile(adapt(Ghost(again=False), FullFineTune()), tmp_path / "kit", batch=2, size=16)
    assert "conv.weight" in [parameter.name for parameter in kit.manifest.parameters]


def test_a_tensor_that_is_read_after_a_sum_into_its_part_is_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    with pytest.raises(CompileError, match="disagrees with PyTorch"):
        compile(adapt(Ghost(again=True), FullFineTune()), tmp_path / "kit", batch=2, size=16)
    assert not (tmp_path / "kit").exists()


class Shifted(nn.Module):
    """Writes a part of each map into another one, behind frozen layers and behind trained ones."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Conv2d(3, 4, 1).requires_grad_(False)
        self.conv = nn.Conv2d(4, 4, 1)
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.frozen(x)
        x[:, :2] = x[:, 2:].square()
        y = self.conv(x)
        y[:, :1, 1:] = y[:, 1:2, :-1]
        y[..., 0] = 0
        scores: Tensor = self.linear((x * y).mean((2, 3)))
        return scores


def test_parts_of_frozen_and_of_trained_maps_are_written(tmp_path: Path) -> None:
    torch.manual_seed(0)
    kit = compile(Shifted(), tmp_path / "kit", batch=2, size=16)
    assert len(kit.manifest.parameters) == 4
