"""Ending a network early: the same features as inside the whole network, and a new classifier."""

import pytest
import torch
from torch import Tensor, nn

import pocketune
from pocketune.errors import PocketuneError
from pocketune.methods import LastLayer, TopBlocks, adapt, create_method
from pocketune.networks import Normalization, about, anatomy
from pocketune.surgery import prune, truncate
from pocketune.weights import create_network, save_network
from pocketune.weights.describe import describe_network

from ..networks import modern
from .test_prune import small

SEQUENTIAL = ["mobilenet_v2", "efficientnet_lite0", "efficientnet_b0", "resnet18", "mcunet_5fps"]


def features_after(network: nn.Module, block: str, images: Tensor) -> Tensor:
    """The plain reference: the pooled output of a block of the whole network."""
    seen: list[Tensor] = []
    handle = network.get_submodule(block).register_forward_hook(lambda _, __, y: seen.append(y))
    network(images)
    handle.remove()
    return seen[0].mean((2, 3))


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_features_are_those_inside_the_whole_network(name: str) -> None:
    network = small(name).double()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    names = [block.name for block in anatomy(network).blocks]
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    for count in (1, len(names) // 2, len(names)):
        short = truncate(network, count).eval()
        body = anatomy(short)
        assert [block.name for block in body.blocks] == names[:count]
        assert not body.feature_fusion
        output = short.get_submodule(body.classifier[-1])
        expected = output(features_after(network, names[count - 1], images))
        torch.testing.assert_close(short(images), expected, rtol=1e-12, atol=1e-12)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


def test_a_transformer_ends_early_too() -> None:
    network = create_network("vit_tiny", classes=3)
    short = truncate(network, 4)
    assert len(anatomy(short).blocks) == 4
    assert short.eval()(torch.zeros(1, 3, 224, 224)).shape == (1, 3)


class OfOneSize(nn.Module):
    """Classifies all places of the maps of 32 px."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 4, 1)
        self.blocks = nn.Sequential(*(small_block() for _ in range(3)))
        self.fc = nn.Linear(8 * 8 * 8, 5)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.blocks(self.stem(x)).flatten(1))
        return scores


def small_block() -> nn.Module:
    return nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())


def test_a_network_of_one_size_reads_the_features_of_that_size() -> None:
    short = truncate(OfOneSize(), 2)
    assert short.fc.in_features == 512
    assert short(torch.zeros(2, 3, 32, 32)).shape == (2, 5)


def test_a_removed_convolution_takes_its_norm_with_it() -> None:
    short = truncate(modern.vgg(), 1)
    assert [block.name for block in anatomy(short).blocks] == ["1.0"]
    assert {name.rpartition(".")[0] for name, _ in short[1].named_parameters()} == {"0", "1"}
    assert short(torch.zeros(2, 3, 32, 32)).shape == (2, modern.CLASSES)


def test_weights_of_the_whole_network_and_of_a_short_one(tmp_path) -> None:
    options = {"width": 0.25, "classes": 4}
    whole = create_network("mobilenet_v2", **options, normalization=Normalization.HALF)
    save_network(whole, tmp_path / "whole.safetensors")
    short = create_network(
        "mobilenet_v2", **options, weights=tmp_path / "whole.safetensors", first_blocks=9
    )
    assert about(short).config.first_blocks == 9
    assert about(short).normalization == Normalization.HALF
    own = short.state_dict()
    shared = {name: value for name, value in whole.state_dict().items() if name in own}
    del shared["classifier.1.weight"], shared["classifier.1.bias"]
    assert len(shared) == len(own) - 2
    assert all(torch.equal(value, own[name]) for name, value in shared.items())

    save_network(short, tmp_path / "short.safetensors")
    again = create_network("mobilenet_v2", **options, weights=tmp_path / "short.safetensors")
    assert about(again).config == about(short).config
    for name, value in again.state_dict().items():
        assert torch.equal(value, own[name]), name
    shorter = create_network("mobilenet_v2", **options, weights=again, first_blocks=3)
    assert len(anatomy(shorter).blocks) == about(shorter).config.first_blocks == 3


def test_a_description_needs_no_network() -> None:
    described = describe_network("mobilenet_v2", width=0.25, classes=4, first_blocks=9)
    network = create_network("mobilenet_v2", width=0.25, classes=4, first_blocks=9)
    assert described == about(network).config


def test_pruned_blocks_that_stay_are_in_the_description() -> None:
    network = create_network("mobilenet_v2", width=0.25)
    pruned = prune(network, {"features.2": 0.5, "features.12": 0.5}, importance="weight")
    short = truncate(pruned, 5)
    kept = about(pruned).config.hidden
    assert about(short).config.hidden == {"features.2": kept["features.2"]}
    rebuilt = create_network("mobilenet_v2", width=0.25, hidden=kept, first_blocks=5)
    shapes = [value.shape for value in rebuilt.state_dict().values()]
    assert shapes == [value.shape for value in short.state_dict().values()]


@pytest.mark.parametrize("method", ["last", "blocks", "mobiletl", "tinytl", "repnet"])
def test_methods_adapt_a_short_network(method: str) -> None:
    short = truncate(create_network("mobilenet_v2", width=0.25, classes=4), 9)
    adapted = adapt(short, create_method(method))
    adapted(torch.randn(2, 3, 64, 64)).sum().backward()
    assert any(p.grad is not None for p in adapted.parameters())


@pytest.mark.parametrize("blocks", [0, 18, 2.5, "many"])
def test_a_wrong_number_of_blocks_is_named(blocks: object) -> None:
    network = create_network("mobilenet_v2", width=0.25)
    with pytest.raises(PocketuneError, match=r"first_blocks=.* must be from 1 to 17"):
        truncate(network, blocks)  # type: ignore[arg-type]


def test_networks_that_cannot_end_early_say_why() -> None:
    adapted = adapt(create_network("mobilenet_v2", width=0.25), TopBlocks(blocks=1))
    with pytest.raises(PocketuneError, match="truncate it before adapting it"):
        truncate(adapted, 3)
    with pytest.raises(PocketuneError, match="more than one linear layer behind its blocks"):
        truncate(create_network("mobilenet_v3_small", width=0.25), 3)
    with pytest.raises(PocketuneError, match="does not run without its last blocks"):
        truncate(create_network("convnext_atto"), 3)


def test_a_kit_of_a_short_network_trains_it(tmp_path) -> None:
    short = create_network("mobilenet_v2", width=0.25, classes=3, first_blocks=7)
    path = tmp_path / "short.zip"
    task = pocketune.Classification(("a", "b", "c"))
    kit = pocketune.compile(adapt(short, LastLayer()), path, batch=2, size=32, task=task)
    assert kit.manifest.network["first_blocks"] == 7
