"""Sums and other values that a network writes into a tensor, a part of it or a view of it."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pocketune.compiler import compile
from pocketune.methods import FullFineTune, adapt


class Ghost(nn.Module):
    """Adds its input to the first channels of two maps, as GhostNet's blocks do.

    With `again`, what follows reads the whole maps, which PyTorch has changed.
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


@pytest.mark.parametrize("again", [False, True])
def test_a_sum_into_a_part_of_a_tensor_compiles(again: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    kit = compile(adapt(Ghost(again), FullFineTune()), tmp_path / "kit", batch=2, size=16)
    assert "conv.weight" in [parameter.name for parameter in kit.manifest.parameters]


class Tokens(nn.Module):
    """Changes maps through views of them: tokens, groups of channels, every second row."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        tokens = y.flatten(2).transpose(1, 2)
        tokens[:, 1:, :3] += x.flatten(2).transpose(1, 2)[:, 1:]
        y.unflatten(1, (2, 2))[:, 1].mul_(2).clamp_(min=-1)
        y[:, :, ::2].div_(3)
        scores: Tensor = self.linear((y * y).mean((2, 3)))
        return scores


def test_maps_that_are_changed_through_their_views(tmp_path: Path) -> None:
    torch.manual_seed(0)
    kit = compile(adapt(Tokens(), FullFineTune()), tmp_path / "kit", batch=2, size=16)
    assert len(kit.manifest.parameters) == 4


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
