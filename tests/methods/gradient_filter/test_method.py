"""Gradient filtering as a method: which layers, alone and in sums."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.filtering import FilteredConv2d
from pocketune.layers import FrozenBatchNorm2d
from pocketune.methods import (
    FullFineTune,
    GradientFilter,
    LastLayer,
    LoRA,
    MethodConflict,
    TopBlocks,
    adapt,
    create_method,
    method_from_dict,
    method_to_dict,
)
from pocketune.methods.gradient_filter import method as gradient_filter
from pocketune.methods.gradient_filter.choice import FilterChoice
from pocketune.networks import about
from pocketune.weights import create_network

from ..names import trained


def network(name: str = "mobilenet_v2", **options: object) -> nn.Module:
    return create_network(name, classes=4, **{"width": 0.35, **options})


def filtered(adapted: nn.Module) -> list[str]:
    return [n for n, module in adapted.named_modules() if isinstance(module, FilteredConv2d)]


PAPER = {  # golden numbers, section 5.1: the last 2, then 2 more
    "mobilenet_v2": (
        ["features.17.conv.2", "features.18.0"],
        ["features.17.conv.0.0", "features.17.conv.1.0"],
    ),
    "resnet18": (
        ["layer4.1.conv1", "layer4.1.conv2"],
        ["layer4.0.conv1", "layer4.0.conv2"],
    ),
}


@pytest.mark.parametrize("name", PAPER)
def test_filters_the_last_convolutions_of_the_paper(name: str) -> None:
    last, more = PAPER[name]
    for layers, expected in ((2, last), (4, more + last)):
        adapted = adapt(network(name), GradientFilter(layers=layers))
        assert sorted(filtered(adapted)) == sorted(expected)
        classifier = {n for n in trained(adapted) if n.startswith(("classifier", "fc"))}
        assert trained(adapted) - classifier == {f"{path}.weight" for path in expected}
        assert len(classifier) == 2


def test_mcunet_has_no_feature_fusion_before_its_classifier() -> None:
    adapted = adapt(network("mcunet_5fps", width=1.0), GradientFilter(layers=2))
    roles = [adapted.get_submodule(path).groups > 1 for path in filtered(adapted)]
    assert roles == [True, False]  # depthwise and projection of the last block


def test_batch_norms_are_frozen_and_the_forward_pass_is_exact() -> None:
    original = network().eval()
    adapted = adapt(original, GradientFilter()).train()
    norms = [m for m in adapted.modules() if hasattr(m, "running_mean")]
    assert norms
    assert all(isinstance(norm, FrozenBatchNorm2d) for norm in norms)
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(adapted.eval()(x), original(x), rtol=1e-4, atol=1e-5)


def test_knobs_reach_the_layers() -> None:
    method = GradientFilter(patch=4, layers=2, alignment="reference", bits=8)
    adapted = adapt(network(), method)
    layers = [adapted.get_submodule(path) for path in filtered(adapted)]
    knobs = {(layer.patch, layer.alignment, layer.bits) for layer in layers}
    assert knobs == {(4, "reference", 8)}


def test_named_layers() -> None:
    names = ("features.3.conv.1.0", "features.18.0")
    adapted = adapt(network(), GradientFilter(layers=names))
    assert filtered(adapted) == list(names)
    assert {f"{name}.weight" for name in names} < trained(adapted)


def test_convolutions_that_pad_by_themselves() -> None:
    adapted = adapt(network(padding="same"), GradientFilter(layers=("features.14.conv.1.0",)))
    x = torch.randn(2, 3, 64, 64)
    adapted(x).sum().backward()
    gradient = adapted.get_submodule("features.14.conv.1.0").weight.grad
    assert gradient.abs().max() > 0
    torch.testing.assert_close(gradient, gradient[:, :, :1, :1].expand_as(gradient))


def patches(adapted: nn.Module) -> dict[str, int]:
    modules = adapted.named_modules()
    return {n: module.patch for n, module in modules if isinstance(module, FilteredConv2d)}


def test_a_patch_for_each_layer() -> None:
    sizes = {"features.17.conv.2": 2, "features.18.0": 4}
    method = GradientFilter(sizes)
    assert method.layers == tuple(sizes)
    adapted = adapt(network(), method)
    assert patches(adapted) == sizes
    both = GradientFilter(2, layers=("features.17.conv.2",)) + GradientFilter(
        4, layers=("features.18.0",)
    )
    assert patches(adapt(network(), both)) == sizes
    assert trained(adapt(network(), both)) == trained(adapted)
    described = json.loads(json.dumps(method_to_dict(method)))
    assert method_from_dict(described) == method


def test_layers_without_a_patch_are_trained_exactly() -> None:
    adapted = adapt(network(), GradientFilter({"features.18.0": 4}, layers=3))
    assert patches(adapted) == {"features.18.0": 4}
    assert trained(adapted) == trained(adapt(network(), GradientFilter(layers=3)))
    assert not patches(adapt(network(), GradientFilter({}, layers=3)))


@pytest.mark.parametrize("method", [GradientFilter({}), GradientFilter(layers=[])], ids=str)
def test_no_layers_are_refused_where_nothing_else_is_trained(method: GradientFilter) -> None:
    for each in (method, LastLayer() + method):
        with pytest.raises(PocketuneError, match=r"names no layers, .*; name convolutions, .*Last"):
            adapt(network(), each)
    assert not filtered(adapt(network(), TopBlocks(1) + method))


def test_methods_that_are_equal_have_the_same_hash() -> None:
    patches = {"features.18.0": 4, "features.17.conv.2": 2}
    method, again = GradientFilter(patches), GradientFilter(dict(reversed(patches.items())), ["a"])
    again = replace(again, layers=method.layers)
    assert method == again
    assert hash(method) == hash(again) == hash(replace(method))
    assert len({method, again, GradientFilter(), GradientFilter(2), GradientFilter(3)}) == 3


def test_a_patch_for_some_of_the_layers_that_others_train() -> None:
    method = TopBlocks(blocks=1) + GradientFilter({"features.18.0": 4}, layers="trained")
    adapted = adapt(network(), method)
    assert patches(adapted) == {"features.18.0": 4}
    assert trained(adapted) == TopBlocks(blocks=1).plan(network()).trained


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch": {"features.18.0": 0}}, "patch=0 must be a whole number of at least 1"),
        ({"patch": {"features.18.0": "4"}}, "patch='4' must be"),
        ({"patch": {"features.18.0": 4}, "layers": "auto"}, "measures one patch for all layers"),
        (
            {"patch": {"features.1.conv.1": 4}, "layers": 2},
            "patch has the layer features.1.conv.1, which is not among the trained ones: features",
        ),
        ({"patch": {"features.99": 4}}, "no layer features.99"),
    ],
)
def test_patches_that_do_not_fit(options: dict[str, object], message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        adapt(network(), GradientFilter(**options))


# ---- networks that classify pixels


def dense(name: str, **options: object) -> nn.Module:
    torch.manual_seed(0)
    return create_network(name, classes=3, **{"width": 0.1, "head_channels": 8, **options})


PUBLISHED_LAYERS = {  # the first and the last one, and how many are in the backbone
    ("fcn", None, 5): ("backbone.layer4.1.conv1", "decode_head.conv_cat.0", 2),
    ("pspnet", None, 5): ("decode_head.psp_modules.0.0", "decode_head.bottleneck.0", 0),
    ("pspnet", "mobilenet_v2", 10): ("backbone.16.conv.1.0", "decode_head.bottleneck.0", 5),
    ("deeplabv3", None, 5): ("decode_head.aspp.0.0", "decode_head.bottleneck.0", 0),
    ("deeplabv3", "mobilenet_v2", 10): ("backbone.16.conv.2", "decode_head.bottleneck.0", 4),
}


@pytest.mark.parametrize(("name", "backbone", "count"), PUBLISHED_LAYERS)
def test_the_papers_last_layers_of_networks_that_classify_pixels(name, backbone, count) -> None:
    first, last, below = PUBLISHED_LAYERS[name, backbone, count]
    adapted = adapt(dense(name, backbone=backbone), GradientFilter({}, layers=count))
    kernels = [n for n, p in adapted.named_parameters() if p.requires_grad]
    assert kernels[-2:] == ["classifier.1.weight", "classifier.1.bias"]
    convs = [name.removesuffix(".weight") for name in kernels[:-2]]
    assert (convs[0], convs[-1], len(convs)) == (first, last, count)
    assert sum(conv.startswith("backbone.") for conv in convs) == below


def test_a_chain_runs_through_neighbors_of_a_decode_head() -> None:
    """The maps of FCN that are concatenated end a chain, and one inside the backbone goes on."""
    adapted = adapt(dense("fcn", width=0.2), GradientFilter(patch=2, layers=7))
    assert set(about(adapted).filter_chains) == {
        ("decode_head.convs.0.0", "decode_head.convs.1.0"),
        ("backbone.layer4.0.conv1", "backbone.layer4.0.conv2"),
        ("backbone.layer4.1.conv1", "backbone.layer4.1.conv2"),
    }


def test_a_map_that_a_decode_head_reads_ends_a_chain() -> None:
    layers = tuple(f"backbone.{n}.conv.{k}" for n in (13, 14) for k in ("0.0", "1.0", "2"))
    chains = {
        name: about(adapt(original, GradientFilter(layers=layers))).filter_chains
        for name in ("pspnet", "upernet")
        if (original := dense(name, backbone="mobilenet_v2"))
    }
    assert chains == {"pspnet": (layers,), "upernet": (layers[:3], layers[3:])}


@pytest.mark.parametrize(
    ("name", "backbone", "layers"),
    [
        ("fcn", None, 7),
        ("upernet", "mobilenet_v2", 24),
        ("deeplabv3", "mobilenet_v2", 12),
        ("lraspp", "mobilenet_v3_small", 8),
        ("deeplabv3_torchvision", "mobilenet_v2", 12),
    ],
)
def test_chains_of_dense_networks_change_no_gradient(name, backbone, layers) -> None:
    original = dense(name, backbone=backbone).double()
    images = torch.randn(2, 3, 72, 56, dtype=torch.float64)
    found = []
    for chain in (True, False):
        adapted = adapt(original, GradientFilter(patch=2, layers=layers, chain=chain)).eval()
        assert bool(about(adapted).filter_chains) is chain
        logits = adapted(images)
        weights = torch.linspace(-1, 1, logits.numel(), dtype=torch.float64)
        (logits.flatten() * weights).sum().backward()
        found.append({n: p.grad for n, p in adapted.named_parameters() if p.grad is not None})
    assert len(found[0]) == layers + 2
    torch.testing.assert_close(found[0], found[1])


# ---- sums


def test_trained_filters_what_others_train() -> None:
    original = network()
    method = TopBlocks(blocks=1) + GradientFilter(layers="trained")
    adapted = adapt(original, method)
    block = ["features.17.conv.0.0", "features.17.conv.1.0", "features.17.conv.2"]
    assert filtered(adapted) == [*block, "features.18.0"]
    assert trained(adapted) == TopBlocks(blocks=1).plan(original).trained
    norms = [m for m in adapted.features[17].modules() if type(m) is nn.BatchNorm2d]
    assert len(norms) == 3  # as TopBlocks has them


def test_trained_leaves_branches_in_squeeze_excite_exact() -> None:
    """LoRA's convolutions inside a squeeze-excite module have maps of one pixel, too."""
    adapted = adapt(network("mobilenet_v3_small"), LoRA(2) + GradientFilter(layers="trained"))
    names = filtered(adapted)
    assert names
    assert not any(".fc1." in name or ".fc2." in name for name in names)


class Gated(nn.Module):
    """Blocks with a gate of one convolution, which is no squeeze-excite module."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.blocks = nn.Sequential(GatedBlock(), GatedBlock())
        self.classifier = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.blocks(self.stem(x)).mean((2, 3)))


class GatedBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))
        self.gate = nn.Conv2d(8, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv2(self.conv1(x).relu())
        return x + y * self.gate(y.mean((2, 3), keepdim=True)).sigmoid()


def test_trained_leaves_maps_of_one_pixel_exact() -> None:
    adapted = adapt(Gated(), FullFineTune() + GradientFilter(layers="trained"))
    names = {name.rpartition(".")[2] for name in filtered(adapted)}
    assert names == {"0", "conv1", "conv2"}


def test_trained_leaves_squeeze_excite_exact() -> None:
    original = network("mobilenet_v3_small", width=0.25)
    adapted = adapt(original, TopBlocks(blocks=1) + GradientFilter(layers="trained"))
    block = [f"features.11.block.{layer}.0" for layer in (0, 1, 3)]
    assert filtered(adapted) == [*block, "features.12.0"]
    assert trained(adapted) == TopBlocks(blocks=1).plan(original).trained


def test_what_is_settled_is_recorded_and_makes_the_same_network_again() -> None:
    original = network()
    adapted = adapt(original, TopBlocks(blocks=1) + GradientFilter(layers="trained"))
    described = json.loads(json.dumps(method_to_dict(about(adapted).method)))
    assert described["methods"][1]["layers"] == filtered(adapted)
    again = adapt(original, method_from_dict(described))
    assert filtered(again) == filtered(adapted)
    assert about(again).method == about(adapted).method


def test_auto_filters_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def measure(network: nn.Module, layers: tuple[str, ...], **options: object) -> list:
        asked.update(options)
        return [
            FilterChoice(n, 1.0, 2.0 if n.startswith("features.18") else 0.5, 8, 4) for n in layers
        ]

    monkeypatch.setattr(gradient_filter, "measure_filters", measure)
    method = TopBlocks(blocks=1) + GradientFilter(4, layers="auto", batch=2, size=96)
    adapted = adapt(network(), method)
    assert "features.18.0" not in filtered(adapted)
    assert len(filtered(adapted)) == 3
    assert "features.18.0.weight" in trained(adapted)
    assert asked == {"patch": 4, "alignment": "natural", "bits": 32, "batch": 2, "size": 96}


@pytest.mark.parametrize("layers", ["trained", "auto"])
def test_refuses_to_filter_what_nobody_trains(layers: str) -> None:
    with pytest.raises(PocketuneError, match="no convolution is trained: add a method"):
        adapt(network(), LastLayer() + GradientFilter(layers=layers))


def test_what_is_trained_but_no_convolution_has_a_filter_of_its_own() -> None:
    vit = create_network("vit_tiny", classes=4)
    with pytest.raises(PocketuneError, match=r"no convolution is trained: for .* LowRankBackward"):
        adapt(vit, TopBlocks(2) + GradientFilter(layers="trained"))
    with pytest.raises(PocketuneError, match=r"network of 1 convolution; give 1, or names"):
        adapt(vit, GradientFilter(layers=3))


def test_two_filters_on_one_layer_conflict() -> None:
    with pytest.raises(MethodConflict, match=r"both replace layer features.17.conv.0.0"):
        adapt(network(), GradientFilter(2) + GradientFilter(4))


# ---- knobs


def test_created_by_name() -> None:
    assert create_method("gradfilter", patch=7, layers=2) == GradientFilter(7, 2)
    assert create_method("gradfilter", layers=["a", "b"]).layers == ("a", "b")


@pytest.mark.parametrize("patch", [0, -1, 2.0])
def test_refuses_a_bad_patch(patch: object) -> None:
    with pytest.raises(PocketuneError, match=r"patch=.* must be a whole number of at least 1"):
        GradientFilter(patch=patch)


def test_refuses_an_unknown_alignment() -> None:
    with pytest.raises(
        PocketuneError, match="alignment='center' must be one of natural, paper, reference"
    ):
        GradientFilter(alignment="center")


def test_refuses_other_bits() -> None:
    with pytest.raises(PocketuneError, match="bits=4 must be 8 or 32"):
        GradientFilter(bits=4)


@pytest.mark.parametrize("layers", ["all", 2.5, True, [1, 2]])
def test_refuses_layers_that_say_nothing(layers: object) -> None:
    with pytest.raises(PocketuneError, match="must be a number, a list of names, 'trained'"):
        GradientFilter(layers=layers)


@pytest.mark.parametrize("layers", [0, -1, 53])
def test_refuses_more_layers_than_there_are(layers: int) -> None:
    with pytest.raises(PocketuneError, match="does not fit a network of 52 convolutions"):
        GradientFilter(layers=layers).plan(network())


@pytest.mark.parametrize("name", ["batch", "size"])
def test_refuses_bad_sizes_to_measure_at(name: str) -> None:
    with pytest.raises(PocketuneError, match=f"{name}=0 must be a whole number"):
        GradientFilter(layers="auto", **{name: 0})


def test_refuses_a_layer_that_does_not_exist() -> None:
    with pytest.raises(PocketuneError, match=r"no layer features.99"):
        GradientFilter(layers=("features.99",)).plan(network())


def test_refuses_a_layer_of_a_branch_that_does_not_exist() -> None:
    with pytest.raises(PocketuneError, match=r"no layer features.3.branch.conv to replace"):
        adapt(network(), GradientFilter(layers=("features.3.branch.conv",)))


def test_refuses_a_layer_that_is_no_convolution() -> None:
    with pytest.raises(
        PocketuneError, match=r"features.18.1 is a BatchNorm2d, not a two-dimensional convolution"
    ):
        GradientFilter(layers=("features.18.1",)).plan(network())
