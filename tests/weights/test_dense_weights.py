"""Weights of networks that classify pixels: torchvision's, our own, and those of backbones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import QuantizedConv2d
from pocketune.methods import TinyTL
from pocketune.networks import Normalization, about, anatomy
from pocketune.surgery import prune
from pocketune.weights import create_network, load_network, save_network
from pocketune.weights.describe import describe_network

from ..networks.torchvision_dense import TorchvisionDense

SMALL = {"width": 0.1, "head_channels": 8, "classes": 3}
OF_TORCHVISION = [  # ours, torchvision's, its backbone
    ("fcn_torchvision", "fcn", "resnet50"),
    ("fcn_torchvision", "fcn", "resnet101"),
    ("deeplabv3_torchvision", "deeplabv3", "resnet50"),
    ("deeplabv3_torchvision", "deeplabv3", "resnet101"),
    ("deeplabv3_torchvision", "deeplabv3", "mobilenet_v3_large"),
    ("lraspp", "lraspp", "mobilenet_v3_large"),
]


def moved(network: nn.Module) -> nn.Module:
    """With norms that change something, in evaluation mode."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    return network.eval()


def reference(kind: str, backbone: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return moved(TorchvisionDense(kind, backbone, **{**SMALL, **options}))


@pytest.mark.parametrize(("name", "kind", "backbone"), OF_TORCHVISION)
def test_torchvisions_state_dicts_load_unchanged(name, kind, backbone, tmp_path) -> None:
    theirs = reference(kind, backbone)
    channels = theirs.classifier[0].out_channels if kind == "fcn" else 8
    options = {**SMALL, "head_channels": channels, "backbone": backbone}
    torch.save(theirs.state_dict(), tmp_path / "theirs.pth")
    images = torch.randn(2, 3, 64, 96)
    expected = theirs(images)
    for weights in (tmp_path / "theirs.pth", theirs.state_dict(), theirs):
        ours = create_network(name, weights=weights, **options).eval()
        assert not about(ours).random_decode_head
        torch.testing.assert_close(ours(images), expected, rtol=1e-4, atol=1e-5)


def test_without_the_auxiliary_head_and_with_other_classes() -> None:
    theirs = reference("deeplabv3", "resnet50", auxiliary=False)
    options = {**SMALL, "backbone": "resnet50", "classes": 7}
    ours = create_network("deeplabv3_torchvision", weights=theirs.state_dict(), **options)
    assert ours.classifier[0].out_channels == 7 and ours.classifier[0].weight.std() < 0.02
    found = ours.decode_head.project[0].weight
    assert torch.equal(found, theirs.classifier[0].project[0].weight)


def test_torchvisions_published_names() -> None:
    """Of the reference, some tensors of the published files."""
    state = TorchvisionDense("deeplabv3", "mobilenet_v3_large", **SMALL).state_dict()
    assert {
        "backbone.0.0.weight",
        "backbone.13.block.0.0.weight",
        "backbone.16.1.running_var",
        "classifier.0.convs.0.0.weight",
        "classifier.0.convs.4.2.running_mean",
        "classifier.0.project.1.bias",
        "classifier.1.weight",
        "classifier.2.weight",
        "classifier.4.bias",
        "aux_classifier.4.weight",
    } <= state.keys()
    state = TorchvisionDense("lraspp", "mobilenet_v3_large", **SMALL).state_dict()
    assert {
        "classifier.cbr.1.running_var",
        "classifier.scale.1.weight",
        "classifier.low_classifier.weight",
        "classifier.high_classifier.bias",
    } <= state.keys()


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("deeplabv3", "deeplabv3", "another decode head than deeplabv3.*create deeplabv3_torchvi"),
        ("fcn", "fcn", "create fcn_torchvision"),
        ("pspnet", "lraspp", "create lraspp"),
    ],
)
def test_torchvisions_weights_of_another_network(name, kind, message) -> None:
    theirs = reference(kind, "mobilenet_v3_large")
    with pytest.raises(PocketuneError, match=message):
        create_network(name, weights=theirs.state_dict(), backbone="mobilenet_v3_large", **SMALL)


BACKBONES = [
    ("deeplabv3", "mobilenet_v2", False),
    ("lraspp", "mobilenet_v3_small", True),
    ("upernet", "resnet18", False),
]


@pytest.mark.parametrize(("name", "backbone", "fusion"), BACKBONES)
def test_weights_of_a_classifier_of_images_become_the_backbone(
    name, backbone, fusion, tmp_path
) -> None:
    torch.manual_seed(0)
    source = moved(create_network(backbone, width=0.1, normalization=Normalization.HALF))
    save_network(source, tmp_path / "source.safetensors")
    images = torch.randn(1, 3, 64, 64)
    plain = create_network(name, backbone=backbone, output_stride=32, **SMALL).eval()
    taken = source.stages(feature_fusion=fusion)
    maps = images
    for stage in taken:
        maps = stage.module(maps)
    for weights in (tmp_path / "source.safetensors", source.state_dict(), source):
        network = create_network(
            name, weights=weights, backbone=backbone, output_stride=32, **SMALL
        ).eval()
        assert torch.equal(network.backbone(images)[-1], maps)
        assert about(network).random_decode_head
        assert network(images).shape == plain(images).shape
    from_file = create_network(
        name, weights=tmp_path / "source.safetensors", backbone=backbone, **SMALL
    )
    assert about(from_file).normalization == Normalization.HALF
    assert network.state_dict().keys() == from_file.state_dict().keys() == plain.state_dict().keys()


def test_pruned_backbones_and_their_modules_are_described(tmp_path: Path) -> None:
    source = create_network("mobilenet_v2", width=0.1)
    source = TinyTL().insert_modules(prune(source, {"features.5": 0.5}, importance="weight"))
    save_network(source, tmp_path / "source.safetensors")
    options = {"backbone": "mobilenet_v2", "weights": tmp_path / "source.safetensors", **SMALL}
    network = create_network("pspnet", **options).eval()
    config = about(network).config
    assert set(config.hidden) == {"backbone.5"} and "backbone.2" in config.branches
    assert describe_network("pspnet", **options) == config
    save_network(network, tmp_path / "network.safetensors")
    images = torch.randn(1, 3, 64, 64)
    again = load_network(tmp_path / "network.safetensors").eval()
    assert torch.equal(again(images), network(images))
    options["weights"] = tmp_path / "network.safetensors"
    same = create_network("pspnet", **options).eval()
    assert torch.equal(same(images), network(images))


def test_a_file_of_the_whole_network_has_to_be_of_the_same(tmp_path: Path) -> None:
    save_network(create_network("fcn", **SMALL), tmp_path / "fcn.safetensors")
    for options, message in (
        ({"name": "fcn", "output_stride": 16}, "a network with output_stride=8, not 16"),
        ({"name": "fcn", "backbone": "resnet18"}, "with backbone='resnet18_v1c', not 'resnet18'"),
        ({"name": "pspnet"}, "with name='fcn', not 'pspnet'"),
    ):
        with pytest.raises(PocketuneError, match=message):
            create_network(weights=tmp_path / "fcn.safetensors", **{**SMALL, **options})


def test_the_head_follows_a_file_of_the_whole_network(tmp_path: Path) -> None:
    source = create_network("lraspp", **SMALL, backbone="resnet18", output_stride=32)
    save_network(source, tmp_path / "whole.safetensors")
    for weights in (tmp_path / "whole.safetensors", source):
        network = create_network("lraspp", weights=weights, classes=SMALL["classes"])
        assert about(network).config == about(source).config
    described = describe_network("lraspp", weights=tmp_path / "whole.safetensors")
    assert (described.backbone, described.head_channels) == ("resnet18", 8)


def test_a_head_that_reads_the_feature_fusion_needs_it(tmp_path: Path) -> None:
    source = create_network("mobilenet_v3_small", width=0.1, feature_fusion=False)
    save_network(source, tmp_path / "source.safetensors")
    with pytest.raises(PocketuneError, match=r"no stage 12.*weights with the feature-fusion layer"):
        create_network(
            "lraspp",
            backbone="mobilenet_v3_small",
            weights=tmp_path / "source.safetensors",
            **SMALL,
        )


SHORT = {"backbone": "efficientnet_lite0", "first_blocks": 5, **SMALL}


def test_a_backbone_may_end_early(tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = moved(create_network("efficientnet_lite0", width=0.1))
    whole = create_network(
        "lraspp", weights=source, **{**SHORT, "first_blocks": None, "output_stride": 32}
    ).eval()
    short = create_network("lraspp", weights=source, output_stride=32, **SHORT).eval()
    images = torch.randn(1, 3, 64, 64)
    maps = images
    for stage in source.stages(feature_fusion=False)[:6]:  # the stem and five blocks
        maps = stage.module(maps)
    low, high = short.backbone(images)
    assert torch.equal(high, maps)
    assert torch.equal(low, whole.backbone(images)[0])
    assert len(anatomy(short).blocks) == 5
    assert describe_network("lraspp", output_stride=32, **SHORT) == about(short).config

    save_network(short, tmp_path / "short.safetensors")
    again = load_network(tmp_path / "short.safetensors").eval()
    assert torch.equal(again(images), short(images))
    options = {**SHORT, "weights": tmp_path / "short.safetensors", "output_stride": 32}
    del options["first_blocks"]
    assert about(create_network("lraspp", **options)).config.first_blocks == 5
    for weights in (tmp_path / "short.safetensors", short):
        with pytest.raises(PocketuneError, match="a network with first_blocks=5, not 7; ask for"):
            create_network("lraspp", **{**options, "weights": weights, "first_blocks": 7})


def test_a_head_is_put_where_its_weights_end(tmp_path: Path) -> None:
    source = moved(create_network("mobilenet_v2", width=0.1, first_blocks=7)).eval()
    save_network(source, tmp_path / "short.safetensors")
    images = torch.randn(1, 3, 64, 64)
    options = {"backbone": "mobilenet_v2", "output_stride": 32, **SMALL}
    maps = images
    for stage in source.stages(feature_fusion=False)[:8]:  # the stem and seven blocks
        maps = stage.module(maps)
    for weights in (tmp_path / "short.safetensors", source):
        network = create_network("fcn", weights=weights, **options).eval()
        assert torch.equal(network.backbone(images)[-1], maps)
        assert about(network).config.first_blocks == 7
        described = describe_network("fcn", weights=weights, **options)
        assert described == about(network).config
        with pytest.raises(PocketuneError, match=r"end before stage 10, which .*: keep fewer"):
            create_network("fcn", weights=weights, first_blocks=10, **options)


def test_a_pruned_backbone_may_end_early(tmp_path: Path) -> None:
    source = create_network("efficientnet_lite0", width=0.1)
    source = prune(source, {"blocks.2.0": 0.5, "blocks.4.1": 0.5}, importance="weight").eval()
    save_network(source, tmp_path / "source.safetensors")
    options = {**SHORT, "weights": tmp_path / "source.safetensors", "output_stride": 32}
    network = create_network("lraspp", **options).eval()
    kept = about(source).config.hidden["blocks.2.0"]
    assert about(network).config.hidden == {"backbone.4": kept}
    images = torch.randn(1, 3, 64, 64)
    maps = images
    for stage in source.stages(feature_fusion=False)[:6]:
        maps = stage.module(maps)
    assert torch.equal(network.backbone(images)[-1], maps)


def test_a_backbone_ends_where_a_stage_does() -> None:
    options = {"backbone": "resnet18", **SMALL}
    assert len(anatomy(create_network("fcn", first_blocks=4, **options)).blocks) == 4
    message = "first_blocks=3 is no end of a stage of ResNet; choose from 2, 4, 6, 8"
    with pytest.raises(PocketuneError, match=message):
        create_network("fcn", first_blocks=3, **options)
    for name, message in (("lraspp", "of stride 8"), ("upernet", "of two strides from 4 on")):
        with pytest.raises(PocketuneError, match=message):
            create_network(name, first_blocks=2, **options)


@pytest.mark.parametrize("kind", ["float32.safetensors", "int8.npz"])
def test_published_weights_become_a_backbone(kind: str, shared_data: Path) -> None:
    path = shared_data / "weights" / f"mbv2-w0.35.{kind}"
    source = create_network("mobilenet_v2", width=0.35, weights=path).eval()
    network = create_network(
        "deeplabv3",
        backbone="mobilenet_v2",
        width=0.35,
        classes=11,
        head_channels=16,
        output_stride=32,
        weights=path,
    ).eval()
    images = torch.randn(1, 3, 64, 64)
    expected = images
    for stage in source.stages(feature_fusion=False):
        expected = stage.module(expected)
    (found,) = network.backbone(images)
    torch.testing.assert_close(found, expected)
    assert about(network).normalization == Normalization.HALF
    quantized = [m for m in network.modules() if isinstance(m, QuantizedConv2d)]
    assert bool(quantized) is kind.endswith("npz")
    assert not any(isinstance(m, QuantizedConv2d) for m in network.decode_head.modules())
