"""Anatomy of networks with the names and layouts of timm's, and of what nobody knows."""

import copy

import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.networks import Layer, anatomy
from pocketune.surgery import prune

from ..timm_like import EdgeResidual, InvertedResidual, MobileNetV2, MobileNetV3, SEResNet


def test_mobilenet_v2():
    body = anatomy(MobileNetV2())
    assert body.stem == (Layer("stem", "conv_stem", "bn1", "bn1.act"),)
    assert body.feature_fusion == (Layer("feature_fusion", "conv_head", "bn2", "bn2.act"),)
    assert body.classifier == ("classifier",)
    assert len(body.blocks) == 17
    assert sum(block.residual for block in body.blocks) == 10


def test_fused_norm_and_activation():
    first, second, *_ = anatomy(MobileNetV2()).blocks
    assert first.name == "blocks.0.0"
    assert first.layers == (
        Layer("depthwise", "blocks.0.0.conv_dw", "blocks.0.0.bn1", "blocks.0.0.bn1.act"),
        Layer("project", "blocks.0.0.conv_pw", "blocks.0.0.bn2", None),
    )
    assert second.layers == (
        Layer("expand", "blocks.1.0.conv_pw", "blocks.1.0.bn1", "blocks.1.0.bn1.act"),
        Layer("depthwise", "blocks.1.0.conv_dw", "blocks.1.0.bn2", "blocks.1.0.bn2.act"),
        Layer("project", "blocks.1.0.conv_pwl", "blocks.1.0.bn3", None),
    )


def test_mobilenet_v3():
    """Its classifier is a convolution behind the pooling, and a linear layer."""
    body = anatomy(MobileNetV3())
    fusion = Layer("feature_fusion", "blocks.11.0.conv", "blocks.11.0.bn1", "blocks.11.0.bn1.act")
    assert body.feature_fusion == (fusion,)
    assert body.classifier == ("conv_head", "classifier")
    assert [block.squeeze_excite is not None for block in body.blocks] == [True] + [False] * 2 + [
        True
    ] * 8
    assert body.blocks[0].squeeze_excite == "blocks.0.0.se"


def test_bottlenecks():
    body = anatomy(SEResNet())
    assert [layer.conv for layer in body.stem] == ["conv1.0", "conv1.3", "conv1.6"]
    assert [layer.norm for layer in body.stem] == ["conv1.1", "conv1.4", "bn1"]
    block = body.blocks[0]
    assert (block.kind, block.residual, block.squeeze_excite) == (
        "bottleneck",
        True,
        "layer1.0.se",
    )
    assert [layer.activation for layer in block.layers] == [
        "layer1.0.act1",
        "layer1.0.act2",
        "layer1.0.act3",
        None,
    ]
    assert block.layer("downsample") == Layer(
        "downsample", "layer1.0.downsample.1", "layer1.0.downsample.2", None
    )
    assert [block.layer("downsample") is None for block in body.blocks] == [False, True, False]


def test_a_flag_overrules_the_shape():
    """timm's `noskip` blocks could have a shortcut and have none."""
    network = MobileNetV2()
    block = network.blocks[1][1]
    block.has_skip = False
    residual = {block.name: block.residual for block in anatomy(network).blocks}
    assert not residual["blocks.1.1"]
    assert residual["blocks.2.1"]


def test_residual_by_shape():
    """Without a flag, what keeps its shape is taken to have a shortcut."""
    network = MobileNetV2()
    for block in network.modules():
        if hasattr(block, "has_skip"):
            del block.has_skip
    assert sum(block.residual for block in anatomy(network).blocks) == 10


def test_blocks_in_a_container_of_ones_own():
    """A stage of a single block is no block: the block is."""

    class Projected(nn.Module):
        def __init__(self):
            super().__init__()
            self.mobile_inverted_conv = nn.Sequential(InvertedResidual(8, 16, 8))
            self.shortcut = nn.Identity()

    network = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.Sequential(Projected(), Projected()), nn.Linear(8, 2)
    )
    assert [block.name for block in anatomy(network).blocks] == ["1.0", "1.1"]


def test_a_dense_expansion_is_part_of_an_inverted_residual():
    network = MobileNetV2()
    network.blocks[3][0] = EdgeResidual(8, 16, 8)
    (block,) = (block for block in anatomy(network).blocks if block.name == "blocks.3.0")
    assert [layer.role for layer in block.layers] == ["expand", "project"]


class Separable(nn.Module):
    """Two depthwise separable convolutions in one, as in Xception."""

    def __init__(self, channels):
        super().__init__()
        layers = [
            nn.Sequential(nn.Conv2d(channels, channels, 3, groups=channels, padding=1)),
            nn.Sequential(nn.Conv2d(channels, channels, 1)),
        ]
        self.layers = nn.Sequential(*layers, *copy.deepcopy(layers))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize(("place", "before"), [(3, 6), (6, 16)])
def test_an_unknown_block_is_a_block_too(place, before):
    """It must not pass for a feature fusion layer."""
    network = MobileNetV2()
    network.blocks[place][0] = Separable(network.blocks[place][0].conv_pw.in_channels)
    if place == 3:
        network.blocks[3][1] = InvertedResidual(32, 192, 64)
    else:
        network.conv_head = nn.Conv2d(160, 1280, 1, bias=False)
    block = anatomy(network).blocks[before]
    assert (block.name, block.kind, block.is_row) == (f"blocks.{place}.0", "other", False)
    with pytest.raises(
        PocketuneError, match=rf"block blocks.{place}.0 cannot be pruned: it is other"
    ):
        prune(network, {block.name: 0.5}, importance="weight")


def test_parallel_branches_are_a_block():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.left = nn.Conv2d(32, 16, 3, padding=1)
            self.right = nn.Conv2d(32, 16, 3, padding=1)

        def forward(self, x):
            return torch.cat([self.left(x), self.right(x)], 1)

    network = MobileNetV2()
    network.blocks[2][1] = Branches()
    (block,) = (block for block in anatomy(network).blocks if block.name == "blocks.2.1")
    assert block.kind == "other"
    assert block.features == ((32, 28, 28), (32, 28, 28))


def test_a_convolution_between_blocks_leads_to_the_next_one():
    network = MobileNetV2()
    network.blocks[2].append(nn.Conv2d(32, 32, 1))
    (block,) = (block for block in anatomy(network).blocks if block.entry)
    assert (block.name, block.entry) == ("blocks.3.0", ("blocks.2.3",))
