"""Removing channels: the same function as with those channels silenced, in fewer numbers."""

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.methods import LastLayer, adapt
from pocketune.networks import NetworkConfig, about, anatomy
from pocketune.surgery import prune
from pocketune.surgery.channels import hidden_channels
from pocketune.surgery.prune import rank_channels
from pocketune.weights import create_network

from ..networks.names import EVERY_METHOD
from ..networks.timm_like import MobileNetV3 as TimmLike
from ..networks.timm_like import SqueezeExcite

GOLDEN = {"features.1": 0.3, "features.2": 0.78, "features.3": 0.46, "features.4": 0.46}
WIDTHS = {"mobilenet_v3_small": 0.35, "mcunet_5fps": 1.0, "resnet50": 0.1}


def small(name: str) -> nn.Module:
    torch.manual_seed(3)
    network = create_network(name, classes=4, width=WIDTHS.get(name, 0.25))
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
            nn.init.normal_(module.bias, 0.3, 0.2)
    return network.eval()


def prunable(network: nn.Module) -> list[str]:
    names = []
    for block in anatomy(network).blocks:
        if block.layer("expand") or block.kind != "inverted_residual" or not block.residual:
            names.append(block.name)
    return names


def silenced(network: nn.Module, kept: dict[str, list[torch.Tensor]]) -> nn.Module:
    """The plain reference: all channels are there, and nothing reads those that are not kept."""
    for block, indices in kept.items():
        for hidden, keep in zip(hidden_channels(network, block), indices, strict=True):
            mask = torch.zeros(hidden.count(network)).index_fill(0, keep, 1).view(1, -1, 1, 1)
            readers = [network.get_submodule(hidden.consumer.conv)]
            if hidden.squeeze_excite:
                readers.append(next(network.get_submodule(hidden.squeeze_excite).children()))
            for reader in readers:
                reader.weight.data *= mask
    return network


@pytest.mark.parametrize("name", [n for n in EVERY_METHOD if n != "resnet101"])
def test_same_function_as_with_the_channels_silenced(name: str) -> None:
    network, blocks = small(name).double(), None
    blocks = prunable(network)
    ratios = {block: 0.2 + 0.05 * (place % 10) for place, block in enumerate(blocks)}
    pruned = prune(network, ratios, importance="weight")
    kept = {}
    for block in blocks:
        sets = hidden_channels(network, block)
        scores = rank_channels(network, sets, "weight")
        counts = [hidden.count(pruned) for hidden in hidden_channels(pruned, block)]
        assert all(n < hidden.count(network) for n, hidden in zip(counts, sets, strict=True))
        kept[block] = [s.topk(n).indices for s, n in zip(scores, counts, strict=True)]
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    torch.testing.assert_close(pruned(images), silenced(network, kept)(images))


@pytest.mark.parametrize("name", [n for n in EVERY_METHOD if n != "resnet101"])
def test_config_builds_the_same_shapes_again(name: str) -> None:
    network = small(name)
    pruned = prune(network, dict.fromkeys(prunable(network), 0.4), importance="weight")
    described = json.loads(json.dumps(about(pruned).config.to_dict()))
    again = create_network(**NetworkConfig.from_dict(described).to_dict())
    again.load_state_dict(pruned.state_dict())
    images = torch.randn(1, 3, 64, 64)
    assert torch.equal(again.eval()(images), pruned(images))
    assert [b.kind for b in anatomy(again).blocks] == [b.kind for b in anatomy(network).blocks]


def group_normed(**options: Any) -> nn.Module:
    """Features that group norms of 8 channels scale; the values of each group differ."""
    torch.manual_seed(3)
    network = create_network("mobilenet_v2", classes=4, width=0.35, norm="group", **options)
    for parameter in network.parameters():
        if parameter.dim() == 1:
            nn.init.uniform_(parameter, 0.2, 1.5)
    return network.double().eval()


def test_group_norms_lose_whole_groups() -> None:
    """A group is normalized by itself, so that the others compute what they did."""
    network = group_normed()
    blocks = ["features.1", "features.3", "features.4"]
    pruned = prune(network, dict.fromkeys(blocks, 0.4), importance="weight")
    kept = {}
    for block in blocks:
        (hidden,) = hidden_channels(network, block)
        (score,) = rank_channels(network, [hidden], "weight")
        groups = round(len(score) // 8 * 0.6)
        best = score.view(-1, 8).mean(1).topk(groups).indices
        kept[block] = [(best[:, None] * 8 + torch.arange(8)).flatten()]
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    torch.testing.assert_close(pruned(images), silenced(network, kept)(images))


def test_a_pruned_network_of_group_norms_and_standardized_kernels_is_built_again() -> None:
    network = group_normed(standardized=True)
    batches = [torch.randn(2, 3, 32, 32, dtype=torch.float64)]
    pruned = prune(network, {"features.2": 0.99, "features.5": 0.3}, batches=batches)
    config = about(pruned).config
    assert config is not None
    assert config.hidden == {"features.2": 8, "features.5": 64}
    again = create_network(**config.to_dict()).double().eval()
    again.load_state_dict(pruned.state_dict())
    assert torch.equal(again(batches[0]), pruned(batches[0]))


def test_channels_of_the_paper() -> None:
    """MobileNetV2 with ratios 0.3 / 0.78 / 0.46 / 0.46 keeps 22 / 21 / 78 / 78 hidden channels."""
    network = create_network("mobilenet_v2", classes=10)
    pruned = prune(network, GOLDEN, importance="weight")
    assert list(about(pruned).config.hidden.values()) == [22, 21, 78, 78]
    assert pruned.features[0][0].out_channels == 22
    assert pruned.features[1].conv[0][0].groups == 22
    outputs = [pruned.features[i].conv[-2].out_channels for i in (1, 2, 3, 4)]
    assert outputs == [16, 24, 24, 32]


def test_most_active_channels_stay() -> None:
    network = small("mobilenet_v2")
    block = network.features[3]
    images = torch.randn(8, 3, 32, 32)
    seen = []
    project = block.conv[2]
    handle = project.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network(images)
    handle.remove()
    best = seen[0].double().square().sum((0, 2, 3)).topk(24).indices.sort().values
    pruned = prune(network, {"features.3": 0.5}, batches=images.split(3))
    assert torch.equal(pruned.features[3].conv[2].weight, project.weight[:, best])
    assert torch.equal(
        pruned.features[3].conv[0][1].running_mean, block.conv[0][1].running_mean[best]
    )


@settings(max_examples=8)
@given(ratio=st.floats(0, 1, exclude_max=True))
def test_any_ratio_leaves_a_network_that_anatomy_understands(ratio: float) -> None:
    network = create_network("mcunet_5fps", classes=2)
    pruned = prune(network, {"features.5": ratio}, importance="weight")
    left = pruned.features[5].conv[1][0].groups
    assert left == max(2, round(120 * (1 - ratio)))
    assert anatomy(pruned) == anatomy(network)


def test_original_stays_and_modes_are_kept() -> None:
    network = create_network("mobilenet_v2", width=0.35, classes=4).train()
    network.features[4].eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    pruned = prune(network, {"features.2": 0.5}, batches=[torch.randn(2, 3, 32, 32)])
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network.features[3].training
    assert not network.features[4].training
    assert pruned.features[3].training
    assert not pruned.features[4].training


def test_foreign_network_loses_channels_too() -> None:
    network = TimmLike().eval()
    blocks = [block.name for block in anatomy(network).blocks if block.layer("expand")]
    pruned = prune(network, dict.fromkeys(blocks, 0.5), importance="weight")
    count = [sum(p.numel() for p in net.parameters()) for net in (network, pruned)]
    assert count[1] < count[0]
    assert pruned(torch.randn(1, 3, 64, 64)).isfinite().all()


def test_nothing_to_remove_needs_no_images() -> None:
    network = create_network("mcunet_5fps", classes=2)
    assert about(prune(network, {"features.2": 0.0})).config == about(network).config


class Grouped(nn.Module):
    """A block as ResNeXt has it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16)
        self.conv2, self.bn2 = nn.Conv2d(16, 16, 3, padding=1, groups=4), nn.BatchNorm2d(16)
        self.conv3, self.bn3 = nn.Conv2d(16, 8, 1), nn.BatchNorm2d(8)


class Sharing(nn.Module):
    """Both convolutions of its first block are one."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.blocks = nn.Sequential(Basic(), Basic())
        self.blocks[1].conv1 = self.blocks[0].conv1
        self.classifier = nn.Linear(8, 2)


class Basic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)


def grouped() -> nn.Module:
    stem = nn.Conv2d(3, 8, 3)
    return nn.Sequential(stem, nn.Sequential(Grouped()), nn.Linear(8, 2))


@pytest.mark.parametrize(
    ("make", "ratios", "message"),
    [
        (lambda: small("mobilenet_v2"), {"features.2": 1.0}, r"features.2 must lie in \[0, 1\)"),
        (lambda: small("mobilenet_v2"), {"features.2": -0.1}, r"must lie in \[0, 1\), not -0.1"),
        (lambda: small("mobilenet_v2"), {"features.2": float("nan")}, "not nan"),
        (lambda: small("mobilenet_v2"), {"features.99": 0.5}, "there is no block 'features.99'"),
        (lambda: small("mobilenet_v3_large"), {"features.1": 0.5}, "shared with its own shortcut"),
        (grouped, {"1.0": 0.5}, "its convolution 1.0.conv2 is grouped"),
        (Sharing, {"blocks.0": 0.5}, "blocks.0.conv1 is shared with another place"),
    ],
)
def test_refusals(make, ratios, message) -> None:
    with pytest.raises(PocketuneError, match=message):
        prune(make(), ratios, importance="weight")


class RememberingExcite(SqueezeExcite):
    """It knows how many channels it was made for."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__(channels, squeezed)
        self.channels = channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.conv_expand(self.conv_reduce(x.mean((2, 3), keepdim=True)))
        return x * scale.view(-1, self.channels, 1, 1)


def foreign(change: str) -> nn.Module:
    """With a layer whose width pruning cannot change, or not in one place alone."""
    network = TimmLike()
    blocks = [stage[0] for stage in network.blocks]
    if change == "remembers":
        blocks[1].se = RememberingExcite(72, 8)
    elif change == "tied":
        blocks[9].conv_pw.weight = blocks[10].conv_pw.weight
    elif change == "shared":
        blocks[4].bn1.act = blocks[5].bn1.act = nn.PReLU(240)
    return network.eval()


REMEMBERS = r"MobileNetV3 does not run with .* in blocks\.1\.0: RuntimeError: .*; le"
TIED = r"blocks\.9\.0 cannot .* its blocks\.9\.0\.conv_pw\.weight is shared with"
SHARED = r"blocks\.4\.0 cannot .* its blocks\.4\.0\.bn1\.act\.weight is shared"


@pytest.mark.parametrize(
    ("change", "concerned", "message", "images"),
    [
        ("remembers", [1], REMEMBERS, None),
        ("remembers", [1], REMEMBERS, "some"),
        ("tied", [9, 10], TIED, "some"),
        ("shared", [4, 5], SHARED, None),
    ],
)
def test_refuses_a_foreign_network_that_would_not_run(change, concerned, message, images) -> None:
    network = foreign(change)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    ratios = dict.fromkeys((f"blocks.{number}.0" for number in range(1, 11)), 0.5)
    options = {"batches": [torch.randn(2, 3, 64, 64)]} if images else {"importance": "weight"}
    with pytest.raises(PocketuneError, match=message):
        prune(network, ratios, **options)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not network.training
    for number in concerned:
        del ratios[f"blocks.{number}.0"]
    pruned = prune(network, ratios, **options)
    assert pruned(torch.randn(1, 3, 64, 64)).isfinite().all()


def test_batches_that_can_be_read_once_all_count() -> None:
    network = small("mobilenet_v2")
    batches = torch.randn(3, 2, 3, 32, 32).unbind()
    twice = [prune(network, {"features.3": 0.5}, batches=some) for some in (batches, iter(batches))]
    weights = [pruned.features[3].conv[2].weight for pruned in twice]
    assert torch.equal(*weights)


def test_refuses_a_network_that_is_pruned_or_adapted() -> None:
    network = create_network("mcunet_5fps", classes=2)
    pruned = prune(network, {"features.2": 0.5}, importance="weight")
    with pytest.raises(PocketuneError, match=r"pruned already, in features\.2; prune the original"):
        prune(pruned, {"features.3": 0.5}, importance="weight")
    with pytest.raises(PocketuneError, match="adapted to LastLayer"):
        prune(adapt(network, LastLayer()), {"features.3": 0.5}, importance="weight")


@pytest.mark.parametrize("images", [None, []])
def test_ranking_by_activations_needs_images(images) -> None:
    with pytest.raises(PocketuneError, match="by their values on photos: give"):
        prune(create_network("mcunet_5fps"), {"features.2": 0.5}, batches=images)


def test_unknown_importance() -> None:
    with pytest.raises(PocketuneError, match="importance='l1' must be one of l2, weight"):
        prune(create_network("mcunet_5fps"), {"features.2": 0.5}, importance="l1")


def test_refuses_one_that_takes_small_images_alone() -> None:
    network = foreign("remembers")
    require_size(network, 32)
    with pytest.raises(PocketuneError, match=REMEMBERS):
        prune(network, {"blocks.1.0": 0.5}, importance="weight")


def require_size(network: nn.Module, side: int) -> None:
    """Let a network refuse images of other sizes."""

    def check(_: nn.Module, images: tuple[torch.Tensor]) -> None:
        assert images[0].shape[-1] == side

    network.register_forward_pre_hook(check)
