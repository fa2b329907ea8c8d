"""A user's group norms of which the shift alone is trained, in channels-last maps."""

from pathlib import Path

import torch
from torch import Tensor, nn

from pocketune.compiler import compile
from pocketune.methods import BiasAndLast, FullFineTune, adapt
from pocketune.surgery.group_norm import make_contiguous


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(2, 8)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(2, 8)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        return x + y


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.GroupNorm(2, 8))
        self.block = Block()
        self.fc = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.block(self.stem(x)).mean((2, 3)))
        return scores


def test_gradients_of_channels_last_maps_are_those_of_contiguous_ones() -> None:
    """Without the copies the process ends here."""
    adapted = adapt(Grouped(), BiasAndLast())
    x = torch.randn(2, 3, 10, 10)
    trained = [p for p in adapted.parameters() if p.requires_grad]
    expected = torch.autograd.grad(adapted(x).square().sum(), trained)
    adapted.to(memory_format=torch.channels_last)
    x = x.contiguous(memory_format=torch.channels_last)
    found = torch.autograd.grad(adapted(x).square().sum(), trained)
    torch.testing.assert_close(found, expected)


def test_it_compiles(tmp_path: Path) -> None:
    network = Grouped().to(memory_format=torch.channels_last)
    kit = compile(adapt(network, BiasAndLast()), tmp_path / "kit", batch=2, size=16)
    assert "stem.1.bias" in {spec.name for spec in kit.manifest.parameters}


def test_norms_trained_in_full_or_not_at_all_stay_as_they_are() -> None:
    network = Grouped()
    make_contiguous(network.requires_grad_(False))
    for module in (*network.modules(), *adapt(network, FullFineTune()).modules()):
        assert not module._forward_pre_hooks
