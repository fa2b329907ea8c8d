"""Networks with group norms and standardized kernels: created, saved, and loaded from others."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import GroupNorm, LowRank, StandardizedConv2d
from pocketune.methods import FullFineTune, LastLayer, LoRA, Method, TinyTL, TopBlocks, adapt
from pocketune.networks import Normalization, about, anatomy
from pocketune.weights import create_network, load_network, save_network
from pocketune.weights.describe import describe_network
from pocketune.weights.saved import HEADER

from ..networks.names import EVERY_METHOD

GROUP = {"norm": "group", "standardized": True}


def small(**options: object) -> nn.Module:
    torch.manual_seed(0)
    return create_network("mobilenet_v2", width=0.35, classes=4, **options).eval()  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def batch_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    network = small()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 2)
            nn.init.normal_(module.bias)
            module.running_mean.normal_()
    path = tmp_path_factory.mktemp("weights") / "batch.safetensors"
    save_network(network, path)
    return path


@pytest.fixture(scope="module")
def group_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "group.safetensors"
    save_network(TinyTL().insert_modules(small(**GROUP)), path)
    return path


@pytest.mark.parametrize("name", [n for n in EVERY_METHOD if n != "resnet101"])
def test_every_network_that_classifies_images(name: str) -> None:
    with torch.device("meta"):
        network = create_network(name, **GROUP)  # type: ignore[arg-type]
        plain = create_network(name)
    assert anatomy(network) == anatomy(plain)
    norms = [layer.norm for layer in anatomy(network).layers]
    assert all(isinstance(network.get_submodule(str(norm)), GroupNorm) for norm in norms)
    shapes = {n: p.shape for n, p in network.state_dict().items()}
    assert shapes == {n: p.shape for n, p in plain.named_parameters()}


def test_a_network_that_classifies_pixels_on_a_backbone_of_either_kind(
    batch_file: Path, group_file: Path
) -> None:
    options = {"backbone": "mobilenet_v2", "width": 0.35, "classes": 3}
    for weights, asked in ((batch_file, GROUP), (group_file, {})):
        network = create_network("deeplabv3", weights=weights, **options, **asked)  # type: ignore[arg-type]
        assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
        config = about(network).config
        assert config is not None
        assert config.norm == "group" and config.standardized
        described = describe_network("deeplabv3", weights=weights, **options, **asked)  # type: ignore[arg-type]
        assert described.norm == "group" and described.standardized


def test_saved_and_loaded_with_its_modules(group_file: Path) -> None:
    first = load_network(group_file).eval()
    again = small(weights=group_file)
    assert about(again).config == about(first).config
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(again(images), first(images))
    with safe_open(group_file, "pt") as file:
        config = json.loads(file.metadata()[HEADER])["config"]
    assert (config["norm"], config["standardized"]) == ("group", True)


def test_group_norms_take_over_scale_and_shift(batch_file: Path) -> None:
    plain, network = small(weights=batch_file), small(weights=batch_file, **GROUP)
    for name, parameter in plain.named_parameters():
        assert torch.equal(network.get_parameter(name), parameter), name
    assert any(isinstance(module, StandardizedConv2d) for module in network.modules())
    for source in (plain, plain.state_dict()):
        other = small(weights=source, **GROUP)
        assert all(map(torch.equal, other.parameters(), network.parameters()))


def test_weights_of_group_norms_do_not_become_batch_norms(group_file: Path) -> None:
    with pytest.raises(PocketuneError, match=r"norm='group', not 'batch'; ask for that"):
        small(weights=group_file, norm="batch")
    with pytest.raises(PocketuneError, match="standardized=True, not False; ask for that"):
        small(weights=group_file, standardized=False)
    source = small(**GROUP)
    with pytest.raises(PocketuneError, match=r"no running statistics for the batch norm features"):
        small(weights=source.state_dict())
    with pytest.raises(PocketuneError, match=r"the given model has no running statistics"):
        small(weights=source, norm="batch", standardized=False)


def test_the_norms_of_the_weights_are_the_default(group_file: Path) -> None:
    for weights in (group_file, small(**GROUP)):
        config = about(small(weights=weights)).config
        assert config is not None
        assert config.norm == "group" and config.standardized
    assert describe_network("mobilenet_v2", width=0.35, weights=group_file).norm == "group"


@pytest.mark.parametrize("options", [{"norm": "group"}, {"standardized": True}], ids=str)
def test_folded_norms_are_refused(options: dict[str, object], tmp_path: Path) -> None:
    layers = ("stem", "classifier")
    state = {f"{layer}.{part}": torch.zeros(1) for layer in layers for part in ("weight", "bias")}
    save_file(state, tmp_path / "folded.safetensors")
    with pytest.raises(PocketuneError, match="has its batch norms folded into the kernels"):
        small(weights=tmp_path / "folded.safetensors", **options)


@pytest.mark.parametrize("bits", [32, 8])
def test_an_adapted_network_is_saved_as_what_it_computes(bits: int, tmp_path: Path) -> None:
    """Even filters that are nearly constant, which standardizing twice would change."""
    network = small(**GROUP)
    with torch.no_grad():
        network.features[3].conv[0][0].weight.mul_(1e-5)
    adapted = adapt(network, TopBlocks(blocks=1), frozen_bits=bits).eval()
    save_network(adapted, tmp_path / "adapted.safetensors")
    again = load_network(tmp_path / "adapted.safetensors").eval()
    images = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(again(images), adapted(images))
    torch.testing.assert_close(small(weights=adapted)(images), adapted(images))
    config = about(again).config
    assert config is not None
    assert config.norm == "group" and not config.standardized


def test_what_is_trained_as_a_whole_stays_standardized(tmp_path: Path) -> None:
    network = small(**GROUP)
    adapted = adapt(network, FullFineTune()).eval()
    save_network(adapted, tmp_path / "adapted.safetensors")
    again = load_network(tmp_path / "adapted.safetensors").eval()
    assert about(again).config == about(network).config
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(again(images), adapted(images))


@pytest.mark.parametrize(
    "method", [LoRA(), LoRA() + TopBlocks(1), LoRA() + FullFineTune()], ids=str
)
def test_updates_are_added_to_kernels_as_they_are_standardized(
    method: Method, tmp_path: Path
) -> None:
    adapted = adapt(small(**GROUP), method).eval()
    for module in adapted.modules():
        if isinstance(module, LowRank):
            nn.init.normal_(module.up.weight, std=0.1)
    save_network(adapted, tmp_path / "adapted.safetensors")
    again = load_network(tmp_path / "adapted.safetensors").eval()
    images = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(again(images), adapted(images))
    torch.testing.assert_close(small(weights=adapted)(images), adapted(images))


def test_a_network_of_ours_as_weights_says_what_it_is() -> None:
    """What is frozen is standardized already, and would change if it were standardized again."""
    options = {"feature_fusion": False, "normalization": Normalization.HALF}
    network = small(weights=adapt(small(**GROUP, **options), LastLayer(), frozen_bits=32))
    facts = about(network)
    assert facts.config is not None
    assert facts.normalization == Normalization.HALF
    assert (facts.config.norm, facts.config.standardized) == ("group", False)
    assert not facts.config.feature_fusion
