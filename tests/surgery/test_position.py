"""Blocks whose own code mixes hidden channels by their place are not pruned."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.surgery import prune
from pocketune.weights import create_network

Operator = Callable[[Tensor], Tensor]


class Inverted(nn.Module):
    """An inverted residual with an operator in front of its projection."""

    def __init__(self, operator: Operator) -> None:
        super().__init__()
        self.expand, self.bn1 = nn.Conv2d(8, 32, 1, bias=False), nn.BatchNorm2d(32)
        self.depthwise = nn.Conv2d(32, 32, 3, padding=1, groups=32, bias=False)
        self.bn2, self.act = nn.BatchNorm2d(32), nn.ReLU6()
        self.project, self.bn3 = nn.Conv2d(32, 8, 1, bias=False), nn.BatchNorm2d(8)
        nn.init.zeros_(self.bn3.weight)  # as ResNets are initialized
        self.operator = operator

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.bn1(self.expand(x)))
        y = self.operator(self.act(self.bn2(self.depthwise(y))))
        return x + self.bn3(self.project(y))


def network(operator: Operator) -> nn.Module:
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
    blocks = nn.Sequential(Inverted(torch.clone), Inverted(operator), Inverted(torch.clone))
    pool = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(stem, blocks, *pool, nn.Linear(8, 3)).eval()


def shuffled(x: Tensor) -> Tensor:
    return x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)


MIXING: dict[str, Operator] = {
    "rotated": lambda x: torch.cat([x[:, 2:], x[:, :2]], 1),
    "shuffled": shuffled,
    "flipped": lambda x: x.flip(1),
    "counted": lambda x: x / x.shape[1],
    "centered": lambda x: x - x.mean(1, keepdim=True),
    "softmax": lambda x: x.softmax(1),
}
ALIKE: dict[str, Operator] = {
    "scaled": lambda x: 2 * x,
    "pixels": lambda x: x - x.mean((2, 3), True),
}
SOME = [torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))]


@pytest.mark.parametrize("batches", [None, SOME], ids=["weight", "l2"])
@pytest.mark.parametrize("operator", MIXING)
def test_channels_that_depend_on_their_place(operator: str, batches: list[Tensor] | None) -> None:
    importance = "l2" if batches else "weight"
    with pytest.raises(PocketuneError, match=r"1\.1 cannot be pruned: .* mixes .*; leave it out"):
        prune(
            network(MIXING[operator]),
            {"1.0": 0.5, "1.1": 0.5},
            importance=importance,
            batches=batches,
        )


@pytest.mark.parametrize("operator", ALIKE)
def test_channels_that_are_treated_alike(operator: str) -> None:
    plain = network(ALIKE[operator])
    pruned = prune(plain, dict.fromkeys(("1.0", "1.1", "1.2"), 0.5), importance="weight")
    assert pruned.get_submodule("1.1.project").in_channels == 16


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_than_float32(dtype: torch.dtype) -> None:
    plain = create_network("mobilenet_v3_small", width=0.35, classes=3).to(dtype)
    pruned = prune(plain, {"features.5": 0.5, "features.9": 0.3}, importance="weight")
    assert next(pruned.parameters()).dtype == dtype
