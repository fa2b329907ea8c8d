"""Anatomy of our own networks."""

import copy

import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.networks import Layer, about, anatomy, list_networks
from pocketune.weights import create_network

from ..names import EVERY_METHOD

BLOCKS = {  # blocks, those with a shortcut, those with squeeze-excite, kind
    "mcunet_5fps": (14, 7, 0, "inverted_residual"),
    "mobilenet_v2": (17, 10, 0, "inverted_residual"),
    "mobilenet_v3_large": (15, 10, 8, "inverted_residual"),
    "mobilenet_v3_small": (11, 6, 9, "inverted_residual"),
    "ofa_mobilenet_v2": (12, 5, 0, "inverted_residual"),
    "proxylessnas_mobile": (20, 13, 0, "inverted_residual"),
    "resnet18": (8, 8, 0, "basic"),
    "resnet18_v1c": (8, 8, 0, "basic"),
    "resnet34": (16, 16, 0, "basic"),
    "resnet50": (16, 16, 0, "bottleneck"),
    "resnet101": (33, 33, 0, "bottleneck"),
}
ROLES = {
    "inverted_residual": ("expand", "depthwise", "project"),
    "basic": ("conv1", "conv2", "downsample"),
    "bottleneck": ("conv1", "conv2", "conv3", "downsample"),
}
CLASSIFIERS = {
    "mcunet_5fps": ("classifier.0",),
    "mobilenet_v2": ("classifier.1",),
    "mobilenet_v3_large": ("classifier.0", "classifier.3"),
    "mobilenet_v3_small": ("classifier.0", "classifier.3"),
    "ofa_mobilenet_v2": ("classifier.1",),
    "proxylessnas_mobile": ("classifier.1",),
    "resnet18": ("fc",),
    "resnet18_v1c": ("fc",),
    "resnet34": ("fc",),
    "resnet50": ("fc",),
    "resnet101": ("fc",),
}
WITHOUT_FUSION = ("mcunet_5fps", *list_networks("resnet*"))


@pytest.fixture(scope="module", params=EVERY_METHOD)
def network(request):
    with torch.device("meta"):
        return create_network(request.param)


def test_blocks(network):
    blocks = anatomy(network).blocks
    residual = sum(block.residual for block in blocks)
    squeeze_excite = sum(block.squeeze_excite is not None for block in blocks)
    assert {block.kind for block in blocks} == {BLOCKS[about(network).config.name][3]}
    assert (len(blocks), residual, squeeze_excite) == BLOCKS[about(network).config.name][:3]


def test_roles_come_in_order(network):
    for block in anatomy(network).blocks:
        roles = [layer.role for layer in block.layers]
        assert roles == [role for role in ROLES[block.kind] if role in roles]
        assert block.layer("stem") is None
        assert all(block.layer(role).role == role for role in roles)


def test_stem_feature_fusion_classifier(network):
    body = anatomy(network)
    deep = about(network).config.name == "resnet18_v1c"
    assert [layer.role for layer in body.stem] == ["stem"] * (3 if deep else 1)
    expected = [] if about(network).config.name in WITHOUT_FUSION else ["feature_fusion"]
    assert [layer.role for layer in body.feature_fusion] == expected
    assert body.classifier == CLASSIFIERS[about(network).config.name]


def test_every_module_is_somewhere(network):
    """All convolutions and norms, once each; paths name what they say."""
    body = anatomy(network)
    modules = dict(network.named_modules())
    gates = tuple(f"{block.squeeze_excite}." for block in body.blocks if block.squeeze_excite)
    convs = [
        name
        for name, module in modules.items()
        if isinstance(module, nn.Conv2d) and not name.startswith(gates)
    ]
    norms = [name for name, module in modules.items() if isinstance(module, nn.BatchNorm2d)]
    assert [layer.conv for layer in body.layers] == convs
    assert [layer.norm for layer in body.layers] == norms
    for layer in body.layers:
        if layer.activation is not None:
            assert isinstance(modules[layer.activation], nn.ReLU | nn.ReLU6 | nn.Hardswish)


def test_layers_without_activation(network):
    """Projections are linear, and so are shortcuts."""
    linear = {layer.role for layer in anatomy(network).layers if layer.activation is None}
    inverted = BLOCKS[about(network).config.name][3] == "inverted_residual"
    assert linear == ({"project"} if inverted else {"downsample"})


def test_one_block_in_full():
    block = anatomy(create_network("mobilenet_v3_small")).blocks[3]
    path = "features.4.block"
    assert block.name == "features.4"
    assert block.squeeze_excite == f"{path}.2"
    assert not block.residual
    assert block.layers == (
        Layer("expand", f"{path}.0.0", f"{path}.0.1", f"{path}.0.2"),
        Layer("depthwise", f"{path}.1.0", f"{path}.1.1", f"{path}.1.2"),
        Layer("project", f"{path}.3.0", f"{path}.3.1", None),
    )


def test_torchvisions_shared_relu():
    block = anatomy(create_network("resnet50")).blocks[0]
    activations = [layer.activation for layer in block.layers]
    assert activations == ["layer1.0.relu"] * 3 + [None]


def test_without_feature_fusion():
    body = anatomy(create_network("mobilenet_v2", feature_fusion=False))
    assert (len(body.blocks), body.feature_fusion, body.classifier) == (17, (), ("classifier.1",))


def test_inside_a_wrapper():
    """A network within a module of the user's."""

    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = create_network("resnet18")
            self.backbone.fc = nn.Identity()
            self.output = nn.Linear(512, 3)

    body = anatomy(Wrapper())
    assert body.blocks[0].name == "backbone.layer1.0"
    assert body.stem[0] == Layer("stem", "backbone.conv1", "backbone.bn1", "backbone.relu")
    assert body.classifier == ("output",)


class QuietReLU6(nn.Module):
    def forward(self, x):
        return x


class StillNorm(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(features))


def test_replaced_layers_keep_their_role():
    """Methods put layers of their own where a norm or an activation was."""
    network = create_network("mobilenet_v2")
    changed = copy.deepcopy(network)
    for name, module in network.named_modules():
        parent = changed.get_submodule(name.rpartition(".")[0])
        if isinstance(module, nn.ReLU6):
            setattr(parent, name.rpartition(".")[2], QuietReLU6())
        elif isinstance(module, nn.BatchNorm2d):
            setattr(parent, name.rpartition(".")[2], StillNorm(module.num_features))
    assert anatomy(changed) == anatomy(network)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (
            nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3)),
            "Sequential has no blocks, modules that map features to features",
        ),
        (nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), "its module '1' raises RuntimeError"),
        (create_network("resnet18").layer1, "no classifier after its last block"),
    ],
)
def test_what_has_no_anatomy(network, message):
    with pytest.raises(PocketuneError, match=message):
        anatomy(network)


@pytest.mark.parametrize(
    ("name", "path", "parts", "hidden"),
    [
        ("mobilenet_v2", "features.1", ["depthwise", "project"], [(None, "depthwise", "project")]),
        (
            "mobilenet_v3_small",
            "features.4",
            ["expand", "depthwise", "project"],
            [("expand", "depthwise", "project")],
        ),
        (
            "resnet18",
            "layer2.0",
            ["expand", "project", "project"],
            [("conv1", None, "conv2")],
        ),
        (
            "resnet50",
            "layer1.0",
            ["expand", "depthwise", "project", "project"],
            [("conv1", None, "conv2"), ("conv2", None, "conv3")],
        ),
    ],
)
def test_a_block_answers_what_methods_ask(name, path, parts, hidden):
    blocks = anatomy(create_network(name)).blocks
    block = next(block for block in blocks if block.name == path)
    assert [block.part(layer) for layer in block.layers] == parts
    roles = [tuple(layer and layer.role for layer in layers) for layers in block.hidden]
    assert roles == hidden
    resnet = name.startswith("resnet")
    assert block.is_bottleneck is (name == "resnet50")
    assert block.lacks_expansion is (path == "features.1")
    assert block.main == tuple(layer for layer in block.layers if layer.role != "downsample")
    assert block.hidden_squeeze_excite == (None if resnet else block.squeeze_excite)


def test_an_anatomy_is_printed_by_its_parts():
    lines = str(anatomy(create_network("mobilenet_v2", width=0.1))).splitlines()
    assert lines[:2] == ["stem               features.0.0", "inverted_residual  features.1"]
    assert lines[-2:] == ["feature_fusion     features.18.0", "classifier         classifier.1"]
    assert len(lines) == 20
