"""MobileTL trains, replaces and freezes what its paper says, in every kind of block."""

import copy
import warnings

import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import (
    FrozenBatchNorm2d,
    MaskedReLU6,
    SignedHardswish,
    SignedReLU,
    SignedReLU6,
)
from pocketune.methods import (
    LastLayer,
    MethodConflict,
    MobileTL,
    TinyTL,
    TopBlocks,
    adapt,
    create_method,
    method_from_dict,
    method_to_dict,
    trainable,
)
from pocketune.networks import anatomy
from pocketune.papers import published_memory, trace_modules
from pocketune.papers.mobiletl import MobileTLFlops
from pocketune.surgery import swap
from pocketune.weights import create_network


@pytest.fixture(scope="module")
def mobilenet_v2() -> nn.Module:
    return create_network("mobilenet_v2", classes=3, width=0.35)


@pytest.fixture(scope="module")
def mobilenet_v3() -> nn.Module:
    return create_network("mobilenet_v3_small", classes=3, width=0.35)


@pytest.mark.parametrize(
    ("classes", "method", "count"),
    [
        (100, TopBlocks(blocks=3), 1_695_972),
        (100, MobileTL(blocks=3), 1_691_364),
        (10, TopBlocks(blocks=3), 1_580_682),
        (10, MobileTL(blocks=3), 1_576_074),
        (10, MobileTL(blocks=3, norm="all"), 1_580_682),
        (10, MobileTL(blocks=3, patches="with"), 2_211_466),
        (10, MobileTL(blocks=3, patches="instead"), 1_060_362),
    ],
    ids=str,
)
def test_published_numbers_of_trained_parameters(classes, method, count):
    """Tables 3 and 5 of the paper, ProxylessNAS-Mobile."""
    network = create_network("proxylessnas_mobile", classes=classes)
    found = trainable(adapt(network, method))
    assert found.trained == count
    patches = 635_392 if getattr(method, "patches", "none") != "none" else 0
    assert found.total == sum(p.numel() for p in network.parameters()) + patches


@pytest.mark.parametrize("frozen_bits", [8, 32])
def test_published_memory_and_flops(frozen_bits):
    """Table 3: 33.7 MB and 7,699.0 MFLOPs (the shortcuts' additions as that table has them)."""
    network = create_network("proxylessnas_mobile", classes=100)
    adapted = adapt(network, MobileTL(blocks=3), frozen_bits=frozen_bits)
    memory = published_memory(adapted, "mobiletl", batch=8, size=224)
    assert memory.total_bytes / 1e6 == pytest.approx(33.692, abs=5e-4)
    flops = MobileTLFlops(addition=(2, 4)).count(trace_modules(adapted), 8)
    assert (flops.forward + flops.backward) / 1e6 == pytest.approx(7699.059, abs=5e-4)


@pytest.mark.parametrize(
    ("norm", "full"),
    [
        ("project", {"project"}),
        ("expand", {"expand"}),
        ("depthwise", {"depthwise"}),
        ("all", {"expand", "depthwise", "project"}),
        ("shift", set()),
    ],
)
def test_norms_trained_in_full(mobilenet_v2, norm, full):
    adapted = adapt(mobilenet_v2, MobileTL(blocks=2, norm=norm))
    parts = anatomy(adapted)
    for block in parts.blocks[-2:]:
        for layer in block.layers:
            module = adapted.get_submodule(layer.norm)
            assert type(module) is (nn.BatchNorm2d if layer.role in full else FrozenBatchNorm2d)
            assert module.bias.requires_grad
            assert module.weight.requires_grad == (layer.role in full)
            assert adapted.get_submodule(layer.conv).weight.requires_grad
    below = [name for name, p in adapted.named_parameters() if p.requires_grad]
    assert min(int(name.split(".")[1]) for name in below if name[0] == "f") == 16


def test_activations_of_a_mobilenet_v2(mobilenet_v2):
    adapted = adapt(mobilenet_v2, MobileTL(blocks=2))
    parts = anatomy(adapted)
    kinds = [
        {type(adapted.get_submodule(layer.activation)) for layer in layers if layer.activation}
        for layers in (parts.blocks[-3].layers, parts.blocks[-1].layers, parts.feature_fusion)
    ]
    assert kinds == [{nn.ReLU6}, {SignedReLU6}, {MaskedReLU6}]
    exact = adapt(mobilenet_v2, MobileTL(blocks=2, signed=False))
    last = anatomy(exact).blocks[-1].layers[0]
    assert type(exact.get_submodule(last.activation)) is MaskedReLU6


def test_activations_and_squeeze_excite_of_a_mobilenet_v3(mobilenet_v3):
    def last_block(**knobs: bool) -> tuple[nn.Module, set[type[nn.Module]]]:
        adapted = adapt(mobilenet_v3, MobileTL(blocks=1, **knobs))
        block = anatomy(mobilenet_v3).blocks[-1]
        inside = {layer.activation for layer in block.layers if layer.activation}
        excite = adapted.get_submodule(block.squeeze_excite)
        return excite, {type(adapted.get_submodule(name)) for name in inside}

    excite, activations = last_block()
    assert activations == {SignedHardswish}
    assert type(excite.activation) is nn.ReLU  # of few numbers an image: exact
    assert all(p.requires_grad for p in excite.parameters())
    assert last_block(hard_swish=False)[1] == {SignedReLU}
    assert last_block(hard_swish=False, signed=False)[1] == {nn.ReLU}
    assert last_block(signed=False)[1] == {nn.Hardswish}
    assert type(last_block(squeeze_excite=False)[0]) is nn.Identity


@pytest.mark.parametrize(
    ("name", "blocks", "inner", "outer"),
    [
        ("resnet18", 2, ["bn1"], ["bn2", "downsample.1"]),
        ("resnet50", 3, ["bn1", "bn2"], ["bn3", "downsample.1"]),
    ],
)
def test_inner_norms_of_residual_blocks(name, blocks, inner, outer):
    adapted = adapt(create_network(name, classes=3, width=0.25), MobileTL(blocks=blocks))
    block = adapted.get_submodule("layer4.0")
    assert all(type(block.get_submodule(norm)) is FrozenBatchNorm2d for norm in inner)
    assert all(type(block.get_submodule(norm)) is nn.BatchNorm2d for norm in outer)
    assert type(block.relu) is SignedReLU


def test_the_forward_pass_is_the_networks_own(mobilenet_v3):
    images = torch.randn(2, 3, 64, 64)
    adapted = adapt(mobilenet_v3, MobileTL(blocks=3)).eval()
    torch.testing.assert_close(adapted(images), mobilenet_v3.eval()(images))


def test_running_statistics_for_one_image(mobilenet_v2):
    adapted = adapt(mobilenet_v2, MobileTL(blocks=1, batch_statistics=False))
    norms = [m for m in adapted.modules() if isinstance(m, nn.BatchNorm2d)]
    assert not norms
    project = anatomy(adapted).blocks[-1].layer("project")
    assert adapted.get_submodule(project.norm).weight.requires_grad


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"blocks": 0}, "blocks=0 does not fit a network of 17 blocks"),
        ({"blocks": 18}, "give a whole number from 1 to 17"),
        ({"blocks": 17, "norm": "expand"}, "does not fit block features.1"),
        ({"patches": "beside"}, "patches='beside' must be one of none, with, instead"),
        ({"norm": "inner"}, "norm='inner' must be one of expand, depthwise"),
    ],
)
def test_bad_knobs(mobilenet_v2, knobs, message):
    with pytest.raises(PocketuneError, match=message):
        adapt(mobilenet_v2, MobileTL(**knobs))


@pytest.mark.parametrize("pretrained", [False, True], ids=["new", "pretrained"])
def test_patches_alone_freeze_their_blocks(mobilenet_v2, pretrained):
    network = TinyTL().insert_modules(mobilenet_v2) if pretrained else mobilenet_v2
    adapted = adapt(network, MobileTL(blocks=2, patches="instead"))
    blocks = [block.name for block in anatomy(mobilenet_v2).blocks]
    trained = {name for name, p in adapted.named_parameters() if p.requires_grad}
    inside = {name for name in trained if name.startswith(tuple(f"{b}." for b in blocks))}
    assert {name.split(".branch.")[0] for name in inside} == set(blocks[-2:])
    adapted(torch.randn(2, 3, 64, 64)).sum().backward()
    assert all(adapted.get_parameter(name).grad is not None for name in trained)


def test_no_patches_beside_bottlenecks():
    network = create_network("resnet50", classes=3, width=0.25)
    with pytest.raises(PocketuneError, match=r"patches='with' does not fit block layer4\.2"):
        adapt(network, MobileTL(blocks=1, patches="with"))


def test_no_depthwise_norm_in_a_basic_block():
    network = create_network("resnet18", classes=3, width=0.25)
    with pytest.raises(PocketuneError, match=r"norm='depthwise' does not fit block layer4\.0"):
        adapt(network, MobileTL(blocks=2, norm="depthwise"))


def test_a_network_without_activations_to_approximate(mobilenet_v2):
    network = copy.deepcopy(mobilenet_v2)
    relus = [name for name, module in network.named_modules() if isinstance(module, nn.ReLU6)]
    swap(network, dict.fromkeys(relus, lambda _: nn.GELU()))
    with pytest.warns(UserWarning, match="have no ReLU, ReLU6 or h-swish"):
        MobileTL(blocks=1).plan(network)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MobileTL(blocks=1, signed=False).plan(network)


def test_to_plain_values_and_back():
    method = MobileTL(blocks=5, norm="all", signed=False)
    assert method_from_dict(method_to_dict(method)) == method
    assert create_method("mobiletl") == MobileTL()


def test_sums(mobilenet_v2):
    both = adapt(mobilenet_v2, MobileTL(blocks=1) + LastLayer())
    assert trainable(both) == trainable(adapt(mobilenet_v2, MobileTL(blocks=1)))
    with pytest.raises(MethodConflict, match=r"both replace layer features\.17\.conv"):
        adapt(mobilenet_v2, MobileTL(blocks=1) + MobileTL(blocks=2))
