"""Group norm in the place of a batch norm, and group norms of a user's own."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pocketune.compiler import compile
from pocketune.errors import PocketuneError
from pocketune.layers import GroupNorm
from pocketune.layers.group_norm import group_size, make_contiguous
from pocketune.methods import BiasAndLast, FullFineTune, Method, NormAndLast, adapt

from .kept import kept_tensors


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


@pytest.mark.parametrize("method", [BiasAndLast(), NormAndLast(), FullFineTune()], ids=str)
def test_gradients_of_channels_last_maps_are_those_of_contiguous_ones(method: Method) -> None:
    """Without the copies the process ends here."""
    adapted = adapt(Grouped(), method)
    x = torch.randn(2, 3, 10, 10)
    trained = [p for p in adapted.parameters() if p.requires_grad]
    expected = torch.autograd.grad(adapted(x).square().sum(), trained)
    adapted.to(memory_format=torch.channels_last)
    x = x.contiguous(memory_format=torch.channels_last)
    found = torch.autograd.grad(adapted(x).square().sum(), trained)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("method", [BiasAndLast(), NormAndLast()], ids=str)
def test_it_compiles(method: Method, tmp_path: Path) -> None:
    network = Grouped().to(memory_format=torch.channels_last)
    kit = compile(adapt(network, method), tmp_path / "kit", batch=2, size=16)
    assert "stem.1.bias" in {spec.name for spec in kit.manifest.parameters}


def test_frozen_norms_stay_as_they_are() -> None:
    network = Grouped()
    make_contiguous(network.requires_grad_(False))
    for module in network.modules():
        assert not module._forward_pre_hooks


def test_norms_may_lack_a_bias_or_both() -> None:
    network = nn.Sequential(nn.GroupNorm(1, 4), nn.GroupNorm(1, 4, affine=False))
    network[0].register_parameter("bias", None)
    make_contiguous(network)
    assert [len(module._forward_pre_hooks) for module in network] == [1, 0]


@pytest.mark.parametrize(("channels", "size"), [(96, 8), (42, 7), (20, 5), (8, 8), (6, 6), (2, 2)])
def test_group_size(channels: int, size: int) -> None:
    assert group_size(channels) == size


@pytest.mark.parametrize("channels", [1, 11, 13, 121])
def test_refuses_channels_without_groups(channels: int) -> None:
    with pytest.raises(PocketuneError, match=f"{channels} channels"):
        GroupNorm(channels)


def test_group_norm_takes_over_scale_shift_and_eps() -> None:
    norm = nn.BatchNorm2d(16, eps=0.01)
    grouped = GroupNorm.from_batch_norm(norm)
    assert grouped.weight is norm.weight
    assert grouped.bias is norm.bias
    assert grouped.eps == norm.eps
    assert grouped.num_groups == 2


def test_group_norm_runs_what_was_inside_the_batch_norm() -> None:
    norm = nn.BatchNorm2d(16)
    norm.act = nn.ReLU()
    assert GroupNorm.from_batch_norm(norm)(torch.randn(2, 16, 4, 4)).min() == 0


def test_group_norm_of_a_batch_norm_without_scale_is_refused() -> None:
    with pytest.raises(PocketuneError, match="affine=False"):
        GroupNorm.from_batch_norm(nn.BatchNorm2d(16, affine=False))


def test_a_shift_alone_is_trained_on_a_channels_last_input() -> None:
    """PyTorch 2.13's own group norm ends the process here."""
    norm = GroupNorm(16)
    norm.weight.requires_grad_(False)
    x = torch.randn(2, 16, 4, 4).to(memory_format=torch.channels_last)
    norm(x).sum().backward()
    torch.testing.assert_close(norm.bias.grad, torch.full((16,), 32.0))


@pytest.mark.parametrize("trained", ["weight bias", "bias", ""])
def test_keeps_its_input_whatever_is_trained(trained: str) -> None:
    norm = GroupNorm(16)
    for name, parameter in norm.named_parameters():
        parameter.requires_grad_(name in trained.split())
    x = torch.randn(5, 16, 6, 6, requires_grad=True)
    maps = {t.data_ptr(): t.nbytes for t in kept_tensors(norm, x) if t.numel() >= x.numel()}
    assert sum(maps.values()) == x.nbytes
