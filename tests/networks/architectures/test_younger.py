"""EfficientNet, ConvNeXt, ViT and others have timm's and torchvision's tensors and outputs."""

import zlib

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.networks import Normalization, about, list_networks
from pocketune.networks.architectures.transformer import resized_positions
from pocketune.networks.registry import list_backbones
from pocketune.weights import create_network, load_network, save_network

from ..names import YOUNGER
from ..tiny import tiny

every = pytest.mark.parametrize("name", YOUNGER)
WITHOUT_BATCH_NORM = ("convnext_atto", "deit_tiny", "vit_tiny")

# Where the tensors come from, and the CRC-32 of their names and shapes there.
SOURCES = {
    "convnext_atto": ("convnext_atto", 101_520_568),
    "deit_tiny": ("deit_tiny_patch16_224", 1_405_465_828),
    "efficientnet_b0": ("torchvision", 3_873_908_317),
    "efficientnet_lite0": ("efficientnet_lite0", 852_808_283),
    "efficientnet_v2_s": ("torchvision", 550_274_246),
    "fastvit_t8": ("fastvit_t8", 3_040_179_817),
    "mobilevit_xxs": ("mobilevit_xxs", 426_204_069),
    "repvit_m0_9": ("repvit_m0_9", 2_108_272_528),
    "mobilenet_v4_small": ("mobilenetv4_conv_small", 3_036_973_666),
    "vit_tiny": ("vit_tiny_patch16_224", 1_405_465_828),
}


def images(size: int = 32, count: int = 2) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(3))


def digest(state: dict[str, Tensor]) -> int:
    lines = [f"{name} {tuple(tensor.shape)}" for name, tensor in state.items()]
    return zlib.crc32("\n".join(lines).encode())


@every
def test_the_tensors_are_those_of_the_source(name: str) -> None:
    with torch.device("meta"):
        assert digest(create_network(name).state_dict()) == SOURCES[name][1]


@every
def test_the_source_computes_the_same(name: str) -> None:
    source, _ = SOURCES[name]
    if source == "torchvision":
        original = pytest.importorskip("torchvision.models").get_model(name)
    else:
        original = pytest.importorskip("timm").create_model(source)
    network = create_network(name, weights=original).eval()
    x = images(224, 1)
    torch.testing.assert_close(network(x), original.eval()(x), rtol=1e-4, atol=1e-5)


@every
def test_a_step_trains_every_parameter(name: str) -> None:
    network = tiny(name).train()
    logits = network(images())
    assert logits.shape == (2, 3)
    functional.cross_entropy(logits, torch.tensor([0, 2])).backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@every
def test_a_file_brings_it_back(name: str, tmp_path) -> None:
    network = tiny(name).eval()
    save_network(network, tmp_path / "net.safetensors")
    again = load_network(tmp_path / "net.safetensors").eval()
    assert torch.equal(again(images()), network(images()))
    assert about(again) == about(network)
    other = tiny(name, weights=tmp_path / "net.safetensors", classes=7, depth=None)
    assert other.eval()(images()).shape == (2, 7)
    assert about(other).config.depth == about(network).config.depth < 1


@every
def test_width_and_depth(name: str) -> None:
    def count(**options: float) -> int:
        with torch.device("meta"):
            network = create_network(name, classes=10, **options)
        return sum(parameter.numel() for parameter in network.parameters())

    assert count(width=0.5) < 0.5 * count()
    assert count(depth=0.25) < 0.8 * count()
    assert count(width=1.4) > 1.2 * count()


@every
def test_the_classifier_starts_within_fan_in(name: str) -> None:
    *_, output = (m for m in tiny(name, classes=50).modules() if type(m) is nn.Linear)
    bound = output.in_features**-0.5
    assert 0.9 * bound < output.weight.abs().max() <= bound
    assert not output.bias.any()


def test_normalization_is_that_of_the_published_weights() -> None:
    assert about(tiny("vit_tiny")).normalization == Normalization.HALF
    assert about(tiny("deit_tiny")).normalization == Normalization.IMAGENET
    chosen = tiny("vit_tiny", normalization=Normalization.IMAGENET)
    assert about(chosen).normalization == Normalization.IMAGENET


@pytest.mark.parametrize("name", WITHOUT_BATCH_NORM)
@pytest.mark.parametrize("option", [{"padding": "same"}, {"norm": "group"}])
def test_options_that_they_do_not_have(name: str, option: dict[str, str]) -> None:
    with pytest.raises(PocketuneError, match=f"{name} exists with {next(iter(option))}="):
        tiny(name, **option)


def test_depth_and_stages_are_options_of_some() -> None:
    with pytest.raises(PocketuneError, match="mobilenet_v2 exists at depth 1 only: depth is an"):
        create_network("mobilenet_v2", depth=0.5)
    with pytest.raises(PocketuneError, match="depth='deep' must be a number above 0"):
        create_network("vit_tiny", depth="deep")
    with pytest.raises(PocketuneError, match="vit_tiny has no dilations: output_stride is an"):
        create_network("vit_tiny", output_stride=16)
    with pytest.raises(PocketuneError, match="there is no backbone 'vit_tiny'; choose from eff"):
        create_network("fcn", backbone="vit_tiny")
    assert set(list_networks(dense=False)) - set(list_backbones()) < set(YOUNGER)


def test_lite0_of_tensorflow() -> None:
    """Padding and the epsilon of its norms are TensorFlow's."""
    network = tiny("efficientnet_lite0", padding="same")
    assert {m.eps for m in network.modules() if isinstance(m, nn.BatchNorm2d)} == {1e-3}
    assert network.eval()(images(33)).shape == (2, 3)


class TestPositions:
    """Of ViT, in images of other sizes."""

    def test_a_constant_and_the_same_grid_stay(self) -> None:
        constant = torch.full((1, 196, 2), 3.0)
        resized = resized_positions(constant, (14, 14), (6, 9))
        torch.testing.assert_close(resized, torch.full((1, 54, 2), 3.0))
        assert resized_positions(constant, (14, 14), (14, 14)) is constant

    def test_as_an_image_is_resized(self) -> None:
        positions = torch.randn(1, 49, 5, dtype=torch.float64)
        image = positions.transpose(1, 2).reshape(1, 5, 7, 7)
        expected = functional.interpolate(image, size=(4, 10), mode="bicubic", antialias=True)
        resized = resized_positions(positions, (7, 7), (4, 10))
        found = resized.transpose(1, 2).reshape(1, 5, 4, 10)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)

    def test_sizes_are_whole_patches(self) -> None:
        with pytest.raises(PocketuneError, match="images of 40 x 40 pixels do not divide into"):
            tiny("vit_tiny")(images(40))
