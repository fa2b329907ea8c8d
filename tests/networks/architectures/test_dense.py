"""Networks that classify pixels: published counts, dilations, resolutions, and their options."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.methods import TopBlocks, adapt
from pocketune.networks import NetworkConfig, about, anatomy, list_networks
from pocketune.networks.architectures.parts import OutputStride
from pocketune.networks.registry import list_backbones
from pocketune.surgery import prune
from pocketune.weights import create_network, load_network, save_network

from ..meta import on_meta

PUBLISHED = {  # parameters at 21 classes, multiply-accumulates of convolutions at 512 x 512
    ("fcn", "resnet18_v1c"): (12_673_781, 55_432_445_952),
    ("pspnet", "resnet18_v1c"): (12_641_525, 54_227_763_200),
    ("deeplabv3", "resnet18_v1c"): (13_837_813, 59_928_805_376),
    ("pspnet", "mobilenet_v2"): (2_938_005, 11_609_325_568),
    ("deeplabv3", "mobilenet_v2"): (3_741_077, 15_398_969_344),
    ("upernet", "resnet18_v1c"): (40_808_309, 220_228_747_264),
}
TORCHVISION = {  # parameters at 21 classes, without the auxiliary heads
    ("lraspp", "mobilenet_v3_large"): 3_221_538 - 21,  # one bias for two classifiers
    ("deeplabv3_torchvision", "mobilenet_v3_large"): 11_029_328 - 3_851,
    ("fcn_torchvision", "resnet50"): 35_322_218 - 2_365_205,
    ("fcn_torchvision", "resnet101"): 54_314_346 - 2_365_205,
    ("deeplabv3_torchvision", "resnet50"): 42_004_074 - 2_365_205,
    ("deeplabv3_torchvision", "resnet101"): 60_996_202 - 2_365_205,
}
NAMES = list_networks(dense=True)


def narrow(name: str, **options: Any) -> nn.Module:
    options = {"width": 0.1, "head_channels": 8, "classes": 3, **options}
    return create_network(name, **options)


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def test_no_values_are_drawn_that_nobody_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch would import its compiler for it: seconds, and a folder among the temporary ones."""

    def draw(*_: object, **__: object) -> None:
        raise AssertionError

    for name in ("normal_", "kaiming_normal_"):
        monkeypatch.setattr(nn.init, name, draw)
    assert all(p.is_meta for p in on_meta("deeplabv3").parameters())


@pytest.mark.parametrize(("name", "backbone"), PUBLISHED)
def test_published_counts(name: str, backbone: str) -> None:
    network = on_meta(name, backbone=backbone, classes=21)
    macs = []
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(
                lambda m, _, y: macs.append(y.numel() * m.weight[0].numel())
            )
    logits = network.eval()(torch.empty(1, 3, 512, 512, device="meta"))
    assert (parameters(network), sum(macs)) == PUBLISHED[name, backbone]
    assert logits.shape[2:] == ((128, 128) if name == "upernet" else (64, 64))


def test_parts_of_the_published_counts() -> None:
    """Parameters of backbones and heads; the channels of the norms."""
    for (name, backbone), head, channels in (
        (("fcn", "resnet18_v1c"), 1_475_328, 384),
        (("pspnet", "resnet18_v1c"), 1_443_072, 640),
        (("deeplabv3", "resnet18_v1c"), 2_639_360, 768),
        (("pspnet", "mobilenet_v2"), 1_123_584, 640),
        (("upernet", "resnet18_v1c"), 29_601_792, 6_144),
    ):
        network = on_meta(name, backbone=backbone, classes=21)
        assert parameters(network.decode_head) == head
        norms = [m.num_features for m in network.decode_head.modules() if type(m) is nn.BatchNorm2d]
        assert sum(norms) == channels
        expected = 1_811_712 if backbone == "mobilenet_v2" else 11_195_744
        assert parameters(network.backbone) == expected


@pytest.mark.parametrize(("name", "backbone"), TORCHVISION)
def test_torchvisions_counts(name: str, backbone: str) -> None:
    network = on_meta(name, backbone=backbone, classes=21)
    assert parameters(network) == TORCHVISION[name, backbone]
    side = 16 if "deeplab" in name and "mobilenet" in backbone else 8
    assert network.eval()(torch.empty(1, 3, 64, 96, device="meta")).shape == (
        1,
        21,
        64 // side,
        96 // side,
    )


def spatial(module: nn.Module) -> list[tuple[int, int]]:
    """Stride and dilation of the convolutions larger than 1x1."""
    convs = [m for m in module.modules() if isinstance(m, nn.Conv2d) and m.kernel_size[0] > 1]
    assert all(conv.padding[0] == conv.dilation[0] * (conv.kernel_size[0] // 2) for conv in convs)
    return [(conv.stride[0], conv.dilation[0]) for conv in convs]


def test_a_resnet_is_dilated_in_the_first_convolution_of_its_blocks() -> None:
    """The first block of a stage at half the dilation of the stage."""
    backbone = on_meta("fcn").backbone
    stages = [spatial(backbone[name]) for name in ("layer2", "layer3", "layer4")]
    assert stages == [
        [(2, 1), (1, 1), (1, 1), (1, 1)],
        [(1, 1), (1, 1), (1, 2), (1, 1)],
        [(1, 2), (1, 1), (1, 4), (1, 1)],
    ]
    bottlenecks = on_meta("fcn_torchvision").backbone["layer4"]
    assert spatial(bottlenecks) == [(1, 2), (1, 4), (1, 4)]


def test_mobilenet_v2_is_dilated_in_the_first_block_of_a_stage() -> None:
    backbone = on_meta("pspnet", backbone="mobilenet_v2").backbone
    strides = {place: spatial(module)[0] for place, module in backbone.items()}
    assert {p for p, (stride, _) in strides.items() if stride == 2} == {"0", "2", "4"}
    dilated = {p: dilation for p, (_, dilation) in strides.items() if dilation > 1}
    assert dilated == {"7": 2, "11": 2, "14": 4, "17": 4}


def test_mobilenet_v3_is_dilated_in_its_last_stage() -> None:
    backbone = on_meta("lraspp").backbone
    assert [spatial(backbone[str(place)])[0] for place in (12, 13, 14, 15)] == [(1, 1)] + 3 * [
        (1, 2)
    ]
    assert backbone.taps == ("4", "16")
    assert on_meta("lraspp", backbone="mobilenet_v3_small").backbone.taps == ("2", "12")


def test_output_strides_become_dilations() -> None:
    reach = OutputStride(8)
    assert [reach(stride) for stride in (2, 1, 2, 2, 1, 2)] == [
        (2, 1),
        (1, 1),
        (2, 1),
        (1, 2),
        (1, 2),
        (1, 4),
    ]
    assert reach.reached == [2, 4, 4, 8, 16, 16, 32]
    unlimited = OutputStride(None)
    assert [unlimited(stride) for stride in (4, 2, 2, 2)] == [(4, 1), (2, 1), (2, 1), (2, 1)]
    coarse = OutputStride(4, stem=4)
    assert [coarse(stride) for stride in (2, 2)] == [(1, 2), (1, 4)]


@pytest.mark.parametrize("backbone", [n for n in list_backbones() if "101" not in n])
def test_every_backbone(backbone: str) -> None:
    with torch.device("meta"):
        images = torch.empty(1, 3, 64, 96)
        network = create_network("pspnet", backbone=backbone, output_stride=16, classes=5)
        assert network.eval()(images).shape == (1, 5, 4, 6)
        assert on_meta("upernet", backbone=backbone).eval()(images).shape[2:] == (16, 24)


@pytest.mark.parametrize("name", ["resnet50", "efficientnet_lite0"])
def test_dilated_blocks_compute_the_same_on_a_finer_grid(name: str) -> None:
    """Every fourth pixel of a dilated network has the values of the plain one."""
    torch.manual_seed(0)
    plain = create_network(name, width=0.1).double().eval()
    dilated = create_network(name, width=0.1, output_stride=8).double().eval()
    dilated.load_state_dict(plain.state_dict())
    coarse = fine = torch.randn(1, 3, 96, 64, dtype=torch.float64)
    stages = (each.stages(feature_fusion=False) for each in (plain, dilated))
    for stage, wide in zip(*stages, strict=True):
        coarse, fine = stage.module(coarse), wide.module(fine)
    assert (coarse.shape[2:], fine.shape[2:]) == ((3, 2), (12, 8))
    torch.testing.assert_close(fine[:, :, ::4, ::4], coarse)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_trains_every_parameter(name: str) -> None:
    network = narrow(name).train()
    logits = network(torch.randn(2, 3, 32, 64))
    assert logits.shape[:2] == (2, 3)
    functional.cross_entropy(logits, torch.zeros(2, *logits.shape[2:], dtype=torch.long)).backward()
    assert all(p.grad is not None for p in network.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_the_config_builds_the_same_again(name: str, tmp_path) -> None:
    network = narrow(name).eval()
    config = about(network).config
    described = json.loads(json.dumps(config.to_dict()))
    assert NetworkConfig.from_dict(described) == config
    assert config.backbone and config.output_stride and config.head_channels == 8
    save_network(network, tmp_path / "dense.safetensors")
    again = load_network(tmp_path / "dense.safetensors").eval()
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(network(images), again(images))
    assert about(again).config == config


@pytest.mark.parametrize("name", NAMES)
def test_anatomy(name: str) -> None:
    network = narrow(name)
    body = anatomy(network)
    assert all(block.name.startswith("backbone.") for block in body.blocks)
    assert all(layer.conv.startswith("decode_head.") for layer in body.decode_head)
    assert body.main[-len(body.decode_head) :] == body.decode_head
    convs = [path for path, module in network.named_modules() if isinstance(module, nn.Conv2d)]
    (classifier,) = body.classifier
    squeezes = tuple(f"{block.squeeze_excite}." for block in body.blocks if block.squeeze_excite)
    main = [path for path in convs if path != classifier and not path.startswith(squeezes or " ")]
    assert {layer.conv for layer in body.layers} == set(main)
    output = network.get_submodule(classifier)
    assert output.out_channels == 3 and not output.bias.any() and output.weight.std() < 0.02


def test_the_names_of_the_decode_heads() -> None:
    heads = {
        name: [layer.conv[12:] for layer in anatomy(narrow(name)).decode_head] for name in NAMES
    }
    pooled = [f"psp_modules.{place}.0" for place in range(4)]
    aspp = ["image_pool.0", *(f"aspp.{place}.0" for place in range(4))]
    assert heads == {
        "deeplabv3": [*aspp, "bottleneck.0"],
        "deeplabv3_torchvision": [*aspp, "project.0", "bottleneck.0"],
        "fcn": ["convs.0.0", "convs.1.0", "conv_cat.0"],
        "fcn_torchvision": ["bottleneck.0"],
        "lraspp": ["cbr.0", "scale.0"],
        "pspnet": [*pooled, "bottleneck.0"],
        "upernet": [
            *pooled,
            "bottleneck.0",
            *(f"{kind}.{place}.0" for kind in ("lateral_convs", "fpn_convs") for place in range(3)),
            "fpn_bottleneck.0",
        ],
    }


def test_dropout_is_the_published_one() -> None:
    for name in ("fcn", "pspnet", "deeplabv3", "upernet"):
        dropout = narrow(name).classifier[0]
        assert type(dropout) is nn.Dropout2d and dropout.p == 0.1
    assert narrow("fcn_torchvision").classifier[0].p == 0.1
    assert narrow("deeplabv3_torchvision").decode_head.dropout.p == 0.5
    assert len(narrow("lraspp").classifier) == 1


def test_lraspp_is_that_of_two_classifiers() -> None:
    """torchvision adds the logits of the two maps, and resizes the features of one."""
    torch.manual_seed(0)
    network = narrow("lraspp", backbone="mobilenet_v3_small").double().eval()
    images = torch.randn(2, 3, 72, 56, dtype=torch.float64)
    low, high = network.backbone(images)
    head, output = network.decode_head, network.classifier[0]
    scale = torch.sigmoid(head.scale[0](high.mean((2, 3), keepdim=True)))
    weights = output.weight.split([low.shape[1], 8], 1)
    logits = functional.conv2d(head.cbr(high) * scale, weights[1])
    logits = functional.interpolate(logits, low.shape[2:], mode="bilinear", align_corners=False)
    expected = functional.conv2d(low, weights[0], output.bias) + logits
    torch.testing.assert_close(network(images), expected)


def test_pruned_and_adapted_like_any_network() -> None:
    network = narrow("deeplabv3", backbone="mobilenet_v2").eval()
    blocks = [block.name for block in anatomy(network).blocks[3:6]]
    pruned = prune(network, dict.fromkeys(blocks, 0.5), importance="weight")
    assert set(about(pruned).config.hidden) == set(blocks)
    assert parameters(pruned) < parameters(network)
    adapted = adapt(pruned, TopBlocks(blocks=0))
    trained = {name.split(".")[0] for name, p in adapted.named_parameters() if p.requires_grad}
    assert trained == {"decode_head", "classifier"}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mobilenet_v2", {"backbone": "resnet18"}, "mobilenet_v2 classifies images and has no dec"),
        ("resnet18", {"head_channels": 8}, "options of deeplabv3, "),
        ("fcn", {"backbone": "resnet19"}, "there is no backbone 'resnet19'; choose from effici"),
        ("fcn", {"backbone": "fcn"}, "there is no backbone 'fcn'"),
        ("fcn", {"head_channels": 0}, "head_channels=0 must be"),
        ("fcn", {"output_stride": 7}, "output_stride=7 must be one of 4, 8, 16, 32"),
        ("fcn", {"padding": "same"}, "resnet18_v1c exists with padding='symmetric' only"),
    ],
)
def test_what_is_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        create_network(name, **options)
