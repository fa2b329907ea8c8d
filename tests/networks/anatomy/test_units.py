"""Blocks of networks that are run to find them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.networks import Anatomy, anatomy
from pocketune.networks.anatomy.output import classifier_layers

from .. import modern

MAKERS: dict[str, Callable[[], nn.Module]] = {
    "vit": modern.VisionTransformer,
    "mixer": lambda: modern.VisionTransformer(mixer=modern.TokenMixer),
    **{
        make.__name__: make
        for make in (modern.convnext, modern.ghostnet, modern.repvgg, modern.mixnet)
    },
    "densenet": modern.densenet,
    "vgg": modern.vgg,
    "plain": modern.plain,
}
BLOCKS = {  # names and kind
    "vit": (["blocks.0", "blocks.1", "blocks.2"], "attention"),
    "mixer": (["blocks.0", "blocks.1", "blocks.2"], "mlp"),
    "convnext": (["1.0.0", "1.0.1", "1.1.1.0"], "convnext"),
    "ghostnet": (["1.0", "1.1", "1.2"], "ghost"),
    "repvgg": (["1.0", "1.1", "1.2"], "reparameterized"),
    "mixnet": (["1.0", "1.1", "1.2"], "mixed_inverted_residual"),
    "densenet": (["1.0.layer0", "1.0.layer1", "1.4.layer0", "1.4.layer1"], "other"),
    "vgg": (["1.0", "1.4"], "convolution"),
    "plain": (["1.0.0", "1.2.conv"], "convolution"),
}


@pytest.fixture(scope="module", params=BLOCKS)
def found(request: pytest.FixtureRequest) -> tuple[str, nn.Module, Anatomy]:
    network = MAKERS[request.param]()
    return request.param, network, anatomy(network)


def test_blocks_and_their_kinds(found: tuple[str, nn.Module, Anatomy]) -> None:
    name, _, body = found
    names, kind = BLOCKS[name]
    assert [block.name for block in body.blocks] == names
    assert {block.kind for block in body.blocks} == {kind}
    assert not any(block.is_row or block.hidden for block in body.blocks)


def test_every_parameter_is_somewhere(found: tuple[str, nn.Module, Anatomy]) -> None:
    """Once each, except those of the network itself, such as a class token."""
    _, network, body = found
    layers = (*body.stem, *body.feature_fusion)
    stem_or_fusion = [path for layer in layers for path in (layer.conv, layer.norm) if path]
    parts = [path for block in body.blocks for path in (*block.modules, *block.entry)]
    parts += [*stem_or_fusion, *body.neck, *body.classifier]
    for name, _ in network.named_parameters():
        owners = [part for part in parts if name.startswith(f"{part}.")]
        assert len(owners) == ("." in name), name


def test_the_classifier_is_the_output_layer(found: tuple[str, nn.Module, Anatomy]) -> None:
    name, network, body = found
    assert body.classifier == (("head",) if name in ("vit", "mixer") else ("4",))
    assert classifier_layers(network) == body.classifier


def test_only_1x1_layers_behind_a_depthwise_convolution_make_a_convnext() -> None:
    class Block(nn.Module):
        def __init__(self, kernel: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(8, 8, 3, padding=1, groups=8)
            self.widen = nn.Conv2d(8, 16, kernel, padding=kernel // 2)
            self.narrow = nn.Conv2d(16, 8, kernel, padding=kernel // 2)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.narrow(self.widen(self.first(x)).relu())

    body = anatomy(modern.with_trunk(Block(1), Block(3), channels=8))
    assert [block.kind for block in body.blocks] == ["convnext", "other"]


def test_what_stands_between_blocks() -> None:
    body = anatomy(modern.convnext())
    assert [block.entry for block in body.blocks] == [(), (), ("1.1.0.0", "1.1.0.1")]
    assert [layer.conv for layer in body.stem] == ["0.0"]
    assert body.neck == ("1.2",)
    assert anatomy(modern.VisionTransformer()).neck == ("norm",)
    assert anatomy(modern.densenet()).blocks[2].entry == ("1.1", "1.2")


def test_the_features_of_a_block() -> None:
    """Images of 224 pixels are tried first."""
    assert anatomy(modern.VisionTransformer()).blocks[0].features == ((785, 8), (785, 8))
    assert anatomy(modern.ghostnet()).blocks[1].features == ((8, 112, 112), (16, 56, 56))
    mixer = modern.VisionTransformer(mixer=modern.TokenMixer)
    assert anatomy(mixer).blocks[0].features == ((17, 8), (17, 8))  # at 32 pixels
    assert anatomy(modern.densenet()).blocks[1].features is None  # it reads two maps


def test_a_convolution_without_branches_has_the_norm_and_the_activation_behind_it() -> None:
    """Wherever they are registered; the norm belongs to the block, and not to the next one."""
    rows = {"vgg": ("1.4", "1.5", "1.6"), "plain": ("1.2.conv", "1.2.norm", "1.2.act")}
    for name, (conv, norm, activation) in rows.items():
        block = anatomy(MAKERS[name]()).blocks[1]
        (layer,) = block.layers
        assert (layer.conv, layer.norm, layer.activation) == (conv, norm, activation)
        assert block.part(layer) == "project"
        assert (block.modules, block.entry) == ((conv, norm), ())


def test_an_activation_that_overwrites_what_it_reads_is_behind_one_convolution() -> None:
    """As those of VGG: the next convolution reads the same tensor."""
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)]
    row = [nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)]
    head = [nn.Conv2d(4, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)]
    (layer,) = anatomy(nn.Sequential(*layers, *row, *head)).blocks[0].layers
    assert (layer.conv, layer.norm, layer.activation) == ("3", "4", "5")


def test_roles_in_a_ghost_bottleneck() -> None:
    block = anatomy(modern.ghostnet()).blocks[0]
    assert [layer.role for layer in block.layers] == [
        "expand", "depthwise", "depthwise", "project", "project", "downsample", "downsample",
    ]  # fmt: skip
    first, cheap = block.layers[:2]
    path = "1.0.ghost1.primary_conv"
    assert (first.conv, first.norm, first.activation) == (f"{path}.0", f"{path}.1", f"{path}.2")
    assert block.part(cheap) == "depthwise"
    assert block.residual


def test_branches_that_are_added_have_one_role_and_no_activation() -> None:
    """The activation reads the sum, and neither of the norms."""
    block = anatomy(modern.repvgg()).blocks[0]
    assert [layer.role for layer in block.layers] == ["project", "project"]
    assert [layer.norm for layer in block.layers] == ["1.0.large.1", "1.0.small.1"]
    assert [layer.activation for layer in block.layers] == [None, None]


def test_convolutions_of_a_part_each_have_one_role() -> None:
    block = anatomy(modern.mixnet()).blocks[1]
    assert [layer.role for layer in block.layers] == ["expand", "depthwise", "depthwise", "project"]
    assert not block.residual
    assert block.layers[0].activation == "1.1.act1"
    assert block.layers[1].norm is None  # it reads both joined


class HalfIdle(nn.Module):
    """ShuffleNet's: an inverted residual of half of the channels, beside the others."""

    def __init__(self) -> None:
        super().__init__()
        layers = (modern.conv_norm(8, 8), modern.conv_norm(8, 8, 3, 1, 8), modern.conv_norm(8, 8))
        self.branch = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        idle, x = x.chunk(2, 1)
        return torch.cat([idle, self.branch(x)], 1)


def test_a_row_beside_something_else_is_no_row() -> None:
    row = modern.RepBlock(8, 16)
    _, block = anatomy(modern.with_trunk(row, HalfIdle(), nn.Conv2d(16, 16, 1))).blocks
    assert (block.name, block.kind, block.residual) == ("1.1", "other", False)
    assert [layer.role for layer in block.layers] == ["expand", "depthwise", "project"]


class Stage(nn.Module):
    """Two residual branches that are attributes; `pool` changes the shape."""

    def __init__(self, pool: bool) -> None:
        super().__init__()
        self.mix, self.mlp = Residual(), Residual()
        self.pool = nn.MaxPool2d(2) if pool else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.mlp(self.mix(x)))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Conv2d(16, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


@pytest.mark.parametrize("pool", [True, False])
def test_a_repeated_row_of_residuals_is_a_block_unless_it_is_a_stage(pool: bool) -> None:
    stem = nn.Conv2d(8, 16, 1)
    body = anatomy(modern.with_trunk(stem, Stage(pool), Stage(pool)))
    stages = ["1.1", "1.2"]
    parts = [f"{stage}.{part}" for stage in stages for part in ("mix", "mlp")]
    assert [block.name for block in body.blocks] == (parts if pool else stages)


class Hybrid(nn.Module):
    """As timm's hybrid ViT: the convolutions that make the tokens look like a block."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Sequential()
        self.patches.add_module("block", Convolutions())
        self.blocks = nn.ModuleList([Mixer(), Mixer()])
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            tokens = block(tokens)
        scores: Tensor = self.head(tokens.mean(1))
        return scores


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, 4, 1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, 1, 1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return y


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.fc2(self.fc1(self.norm(x)).relu())
        return y


def test_a_transformer_behind_convolutions_is_no_classifier() -> None:
    found = anatomy(Hybrid())
    assert [block.name for block in found.blocks][-2:] == ["blocks.0", "blocks.1"]
    assert found.classifier == ("head",)


class Broken(nn.Module):
    """It needs the values of its maps."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def test_control_flow_is_refused_by_the_name_of_the_module() -> None:
    network = modern.with_trunk(modern.RepBlock(8, 16), Broken())
    with pytest.raises(PocketuneError, match=r"Sequential cannot be followed.*module '1.1' raises"):
        anatomy(network)
    lazy = modern.with_trunk(modern.RepBlock(8, 16), nn.LazyConv2d(16, 1))
    with pytest.raises(PocketuneError, match=r"1\.1\.weight has no shape yet"):
        anatomy(lazy)


def test_a_network_is_not_changed_by_finding_its_blocks() -> None:
    network = modern.VisionTransformer().train()
    network.head.requires_grad_(False)
    with torch.no_grad():
        anatomy(network)
    assert all(module.training for module in network.modules())
    assert [n for n, p in network.named_parameters() if not p.requires_grad] == [
        "head.weight",
        "head.bias",
    ]
    assert not any(module._forward_hooks for module in network.modules())
