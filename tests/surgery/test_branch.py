"""Letting another module run beside a block."""

import copy

import pytest
import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.layers import FrozenConv2d
from pocketune.networks import anatomy
from pocketune.surgery import add_branches, swap
from pocketune.weights import create_network


@pytest.fixture
def network() -> nn.Module:
    return create_network("mobilenet_v2", width=0.35, classes=3).eval()


def pointwise(block: nn.Module) -> nn.Module:
    first, last = block.conv[0][0], block.conv[-2]
    return nn.Conv2d(first.in_channels, last.out_channels, 1)


def test_branch_is_added_to_the_output_of_its_block(network: nn.Module) -> None:
    x = torch.randn(2, 3, 32, 32)
    inside = network.features[:3](x)
    before = network.features[3](inside)
    add_branches(network, {"features.3": pointwise})
    expected = before + network.features[3].branch(inside)
    torch.testing.assert_close(network.features[3](inside), expected)


def test_the_network_keeps_its_names_and_gains_the_branch(network: nn.Module) -> None:
    before = set(network.state_dict())
    add_branches(network, {"features.3": pointwise})
    added = {"features.3.branch.weight", "features.3.branch.bias"}
    assert set(network.state_dict()) == before | added


def test_anatomy_does_not_see_the_branch(network: nn.Module) -> None:
    before = anatomy(network)
    add_branches(network, dict.fromkeys(("features.2", "features.3"), pointwise))
    assert anatomy(network) == before


def test_a_copy_has_a_branch_of_its_own(network: nn.Module) -> None:
    add_branches(network, {"features.3": pointwise})
    twin, x = copy.deepcopy(network), torch.randn(1, 3, 32, 32)
    before = twin(x)
    nn.init.zeros_(network.features[3].branch.weight)
    assert torch.equal(twin(x), before)
    assert not torch.equal(network(x), before)


@pytest.mark.parametrize("training", [True, False])
def test_branch_is_in_the_mode_of_its_block(network: nn.Module, training: bool) -> None:
    add_branches(network.train(training), {"features.3": pointwise})
    assert network.features[3].branch.training is training


@pytest.mark.parametrize("change", [torch.float64, "meta"], ids=str)
def test_branch_is_of_the_type_and_on_the_device_of_its_block(
    network: nn.Module, change: torch.dtype | str
) -> None:
    network.to(change)
    network.features[2] = nn.Identity()  # a block without parameters goes by the network
    add_branches(network, dict.fromkeys(("features.2", "features.3"), lambda _: nn.Conv2d(8, 8, 1)))
    like = network.features[0][0].weight
    for block in network.features[2:4]:
        assert (block.branch.weight.dtype, block.branch.weight.device) == (like.dtype, like.device)


def test_a_second_branch_on_a_block_is_an_error(network: nn.Module) -> None:
    add_branches(network, {"features.3": pointwise})
    with pytest.raises(PocketuneError, match=r"features\.3 has a side branch already"):
        add_branches(network, {"features.3": pointwise})


def test_unknown_block_is_an_error(network: nn.Module) -> None:
    with pytest.raises(AttributeError):
        add_branches(network, {"nothing": pointwise})


class ReadsImage(nn.Module):
    reads_image = True

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.conv(image[:, :, ::4, ::4])


def test_branches_may_read_the_image(network: nn.Module) -> None:
    images = torch.randn(2, 3, 32, 32)
    inside = network.features[:3](images)
    places = dict.fromkeys(("features.2", "features.3"), lambda _: ReadsImage(inside.shape[1]))
    add_branches(network, places)
    seen = []
    handle = network.features[3].register_forward_hook(lambda _, inputs, y: seen.append(y))
    network(images)
    handle.remove()
    first, second = (network.features[i].branch.conv(images[:, :, ::4, ::4]) for i in (2, 3))
    block = network.features[3]
    changed = inside + first
    expected = changed + block.conv(changed) + second
    torch.testing.assert_close(seen[0], expected)


class Resizes(nn.Module):
    resizes = True

    def forward(self, x: torch.Tensor, size: torch.Size) -> torch.Tensor:
        return torch.ones(len(x), 1, *size)


def test_branches_may_be_told_the_size_of_the_output(network: nn.Module) -> None:
    """Of a block that pools."""
    inside = network.features[:3](torch.randn(2, 3, 40, 56))
    block = network.features[3]
    block.conv[0].append(nn.MaxPool2d(3, 2))
    block.use_res_connect = False
    before = block(inside)
    add_branches(network, {"features.3": lambda _: Resizes()})
    assert before.shape[2:] == (4, 6)
    torch.testing.assert_close(block(inside), before + 1)


def test_a_branch_stays_when_its_block_is_replaced(network: nn.Module) -> None:
    images = torch.randn(2, 3, 32, 32)
    add_branches(network, {"features.0.0": lambda _: nn.Conv2d(3, 16, 1, stride=2)})
    before = network(images)
    swap(network, {"features.0.0": FrozenConv2d.from_convolution})
    assert torch.equal(network(images), before)
    assert "features.0.0.branch.weight" in network.state_dict()


def test_a_block_that_would_run_the_branch_itself_is_refused(network: nn.Module) -> None:
    with pytest.raises(PocketuneError, match=r"features\.0 is an nn\.Sequential"):
        add_branches(network, {"features.0": lambda _: nn.Identity()})


def test_what_reads_the_images_needs_the_whole_network(network: nn.Module) -> None:
    images = torch.randn(2, 3, 32, 32)
    add_branches(network, {"features.2": lambda _: ReadsImage(8)})
    assert torch.equal(network(x=images), network(images))
    with pytest.raises(PocketuneError, match="call the whole network"):
        network.features(images)


class Row(nn.Module):
    """Runs whatever is in it, as timm's RegStage does."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.children():
            x = layer(x)
        return x


def test_a_block_that_would_run_its_branch_as_a_layer_is_refused() -> None:
    network = nn.ModuleDict({"block": Row()})
    add_branches(network, {"block": lambda _: nn.Conv2d(3, 3, 1)})
    for _ in range(2):
        with pytest.raises(PocketuneError, match="runs every module inside it"):
            network["block"](torch.zeros(1, 3, 2, 2))
