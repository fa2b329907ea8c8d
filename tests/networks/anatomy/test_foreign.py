"""Anatomy of networks with the names and layouts of timm's, and of what nobody knows."""

import copy

import pytest
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.networks import Layer, anatomy

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
    """timm's ``noskip`` blocks could have a shortcut and have none."""
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


@pytest.mark.parametrize("place", [0, 3, 6])
def test_an_unknown_block_is_named(place):
    """Wherever it is: it must not pass for a stem or a feature fusion layer."""
    network = MobileNetV2()
    network.blocks[place][0] = Separable(8)
    with pytest.raises(PocketuneError, match=rf"the block 'blocks.{place}.0' of MobileNetV2"):
        anatomy(network)


def test_parallel_branches_are_no_block():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.left = nn.Conv2d(8, 4, 3, padding=1)
            self.right = nn.Conv2d(8, 4, 3, padding=1)

    network = MobileNetV2()
    network.blocks[2][1] = Branches()
    with pytest.raises(PocketuneError, match=r"'blocks\.2\.1'"):
        anatomy(network)


def test_a_lost_convolution_is_named():
    network = MobileNetV2()
    network.blocks[2].append(nn.Conv2d(32, 32, 1))
    with pytest.raises(PocketuneError, match=r"'blocks\.2\.3'"):
        anatomy(network)
