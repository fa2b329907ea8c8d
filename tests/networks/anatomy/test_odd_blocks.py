"""Blocks that are almost like a known one, and classifiers behind all kinds of layers."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.networks import anatomy, set_about
from pocketune.networks.anatomy.blocks import UNIVERSAL, read_block
from pocketune.networks.anatomy.modules import main_modules
from pocketune.networks.anatomy.output import classifier_layers, output_layer


def conv(inputs: int, outputs: int, kernel: int = 1, groups: int = 1, stride: int = 1) -> nn.Module:
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)


class Chain(nn.Module):
    """A block: its layers one after the other, and a shortcut if it is given one."""

    def __init__(self, *layers: nn.Module, **others: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*layers)
        for name, module in others.items():
            setattr(self, name, module)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        if hasattr(self, "shortcut"):
            y = y + self.shortcut(x)
        return y


def normed(*layers: nn.Module) -> list[nn.Module]:
    """The convolutions, each with a norm."""
    pairs = [
        (layer, nn.BatchNorm2d(layer.out_channels)) if isinstance(layer, nn.Conv2d) else (layer,)
        for layer in layers
    ]
    return [part for pair in pairs for part in pair]


def inverted(inputs: int = 4, middle: int = 8, outputs: int = 4, **others: nn.Module) -> Chain:
    layers = [conv(inputs, middle), nn.BatchNorm2d(middle), nn.ReLU6()]
    layers += [conv(middle, middle, 3, middle), nn.BatchNorm2d(middle), nn.ReLU6()]
    return Chain(*layers, conv(middle, outputs), nn.BatchNorm2d(outputs), **others)


def whole(*blocks: nn.Module, behind: list[nn.Module] | None = None) -> nn.Sequential:
    pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)]
    return nn.Sequential(conv(3, 4, 3), *blocks, *(pooled if behind is None else behind))


def test_the_layers_of_a_block_are_found_with_what_follows_them() -> None:
    block = read_block("b", inverted())
    assert block is not None
    assert [(layer.role, layer.conv, layer.norm, layer.activation) for layer in block.layers] == [
        ("expand", "b.body.0", "b.body.1", "b.body.2"),
        ("depthwise", "b.body.3", "b.body.4", "b.body.5"),
        ("project", "b.body.6", "b.body.7", None),
    ]
    assert block.residual
    assert not block.lacks_expansion
    assert block.layer("downsample") is None


@pytest.mark.parametrize(
    ("layers", "kind"),
    [
        ([conv(4, 8), conv(8, 8, 3, 8), conv(8, 4)], "inverted_residual"),
        ([conv(4, 4, 5, 4), conv(4, 6)], "inverted_residual"),
        ([conv(4, 8, 3), conv(8, 6)], "fused_inverted_residual"),  # the expansion is not 1x1
        ([conv(4, 8, 3), nn.ReLU(), conv(8, 6)], "fused_inverted_residual"),
        ([conv(4, 8, 3), nn.ReLU(), conv(8, 6), nn.ReLU()], None),  # nothing is projected
        ([conv(4, 4, 3), conv(4, 4, 3)], "basic"),
        ([conv(4, 2), conv(2, 2, 3), conv(2, 4)], "bottleneck"),
        ([conv(4, 4), conv(4, 4, 3, 2), conv(4, 8)], "bottleneck"),  # grouped, as in ResNeXt
        ([conv(4, 8), conv(8, 8, 3, 8)], None),  # nothing projects
        ([conv(4, 8), conv(8, 8), conv(8, 4)], None),  # all of them 1x1
        (normed(conv(4, 8), nn.ReLU(), conv(8, 4)), UNIVERSAL),
        ([conv(4, 8), nn.ReLU(), conv(8, 4)], None),  # squeeze-excite, or an MLP
        (normed(conv(4, 4, 3, 4), conv(4, 8), nn.ReLU(), conv(8, 4)), UNIVERSAL),
        (normed(conv(4, 4, 3, 4), conv(4, 8), nn.ReLU(), conv(8, 4), nn.ReLU()), None),
        (
            normed(conv(4, 4, 3, 4), conv(4, 8), nn.ReLU(), conv(8, 8, 5, 8), conv(8, 6)),
            UNIVERSAL,
        ),
        ([conv(4, 4, 3)], None),
        ([conv(4, 4, 3)] * 3, None),
        ([conv(4, 8), conv(4, 4, 3, 4), conv(4, 4)], None),  # in parallel, by their channels
        ([conv(4, 1), conv(1, 1, 3), conv(1, 4)], "bottleneck"),  # one channel is not depthwise
    ],
)
def test_a_block_is_known_by_its_convolutions(layers: list[nn.Module], kind: str | None) -> None:
    block = read_block("b", Chain(*layers))
    assert (block.kind if block else None) == kind


def test_a_shortcut_with_a_convolution_comes_last_and_is_not_on_the_main_path() -> None:
    shortcut = nn.Sequential(conv(4, 6), nn.BatchNorm2d(6))
    block = read_block("b", inverted(outputs=6, shortcut=shortcut))
    assert block is not None
    assert block.layers[-1].role == "downsample"
    assert block.layers[-1].in_shortcut
    assert block.layers[-1].norm == "b.shortcut.1"
    assert [layer.role for layer in block.main] == ["expand", "depthwise", "project"]
    assert [block.part(layer) for layer in block.layers] == [
        "expand", "depthwise", "project", "project",
    ]  # fmt: skip


def test_a_shortcut_with_two_convolutions_is_not_understood() -> None:
    twice = nn.Sequential(conv(4, 4), conv(4, 4))
    assert read_block("b", inverted(shortcut=twice)) is None
    first, second = anatomy(whole(inverted(shortcut=twice), inverted())).blocks
    assert (first.name, first.is_row, second.is_row) == ("1", False, True)
    assert [layer.role for layer in first.layers][-2:] == ["downsample"] * 2


@pytest.mark.parametrize(
    ("kernel", "stride", "channels", "residual"),
    [(3, 1, 4, True), (3, 2, 4, False), (3, 1, 6, False)],
)
def test_only_what_keeps_its_shape_is_taken_to_be_residual(
    kernel: int, stride: int, channels: int, residual: bool
) -> None:
    layers = conv(4, 8), conv(8, 8, kernel, 8, stride), conv(8, channels)
    block = read_block("b", Chain(*layers))
    assert block is not None and block.residual is residual


@pytest.mark.parametrize("flag", ["use_res_connect", "has_skip"])
@pytest.mark.parametrize("value", [True, False])
def test_a_flag_decides_whatever_the_shape(flag: str, value: bool) -> None:
    module = inverted(outputs=4 if not value else 6)
    setattr(module, flag, value)
    block = read_block("b", module)
    assert block is not None and block.residual is value


def test_a_flag_that_is_no_truth_value_decides_nothing() -> None:
    module = inverted()
    module.has_skip = lambda: False  # type: ignore[assignment]
    block = read_block("b", module)
    assert block is not None and block.residual


class Excite(nn.Module):
    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("layers", "found"),
    [
        ([conv(8, 2), nn.ReLU(), conv(2, 8)], True),
        ([nn.Linear(8, 2), nn.Linear(2, 8), nn.Sigmoid()], True),
        ([conv(8, 2), nn.BatchNorm2d(2), conv(2, 8)], False),  # a norm: part of the chain
        ([conv(8, 2), conv(2, 4)], False),  # it does not come back to its channels
    ],
)
def test_two_layers_down_and_up_again_without_a_norm_are_squeeze_excite(
    layers: list[nn.Module], found: bool
) -> None:
    module = Chain(conv(4, 8), conv(8, 8, 3, 8), Excite(layers), conv(8, 4))
    block = read_block("b", module)
    if found:
        assert block is not None
        assert block.squeeze_excite == block.hidden_squeeze_excite == "b.body.2"
        assert [layer.conv for layer in block.layers] == ["b.body.0", "b.body.1", "b.body.3"]
    else:
        assert block is None


def test_hidden_channels_of_each_kind() -> None:
    roles: Callable = lambda block: [  # noqa: E731
        tuple(layer and layer.role for layer in found) for found in block.hidden
    ]
    assert roles(read_block("b", inverted())) == [("expand", "depthwise", "project")]
    thin = read_block("b", Chain(conv(4, 4, 3, 4), conv(4, 6)))
    assert thin is not None and thin.lacks_expansion
    assert roles(thin) == [(None, "depthwise", "project")]
    narrow = read_block("b", Chain(conv(4, 2), conv(2, 2, 3), conv(2, 4)))
    assert narrow is not None and narrow.is_bottleneck
    assert roles(narrow) == [("conv1", None, "conv2"), ("conv2", None, "conv3")]


def test_an_activation_that_all_layers_of_a_basic_block_share_belongs_to_each() -> None:
    block = read_block("b", Chain(conv(4, 4, 3), nn.ReLU(), conv(4, 4, 3)))
    assert block is not None
    assert [layer.activation for layer in block.layers] == ["b.body.1"] * 2
    two = read_block("b", Chain(conv(4, 4, 3), nn.ReLU(), conv(4, 4, 3), nn.SiLU()))
    assert two is not None
    assert [layer.activation for layer in two.layers] == ["b.body.1", "b.body.3"]


def test_a_side_branch_is_not_looked_into() -> None:
    network = whole(inverted(branch=nn.Sequential(conv(4, 4, 5), nn.ReLU())))
    assert not anatomy(network).blocks[0].is_row
    set_about(network.get_submodule("1.branch"), is_side_branch=True)
    assert [block.name for block in anatomy(network).blocks] == ["1"]
    assert not any(path.startswith("1.branch") for path, _ in main_modules(network))


def test_feature_fusion_is_what_has_a_norm_and_the_classifier_the_rest() -> None:
    behind = [
        conv(4, 6), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, 3), nn.Softmax(1),
    ]  # fmt: skip
    body = anatomy(whole(inverted(), inverted(), behind=behind))
    assert [(layer.conv, layer.norm, layer.activation) for layer in body.feature_fusion] == [
        ("3", "4", "5")
    ]
    assert body.classifier == ("8", "9", "11")  # the norm between its layers too
    assert body.layers[0].conv == "0"
    assert len(body.main) == 1 + 2 * 3 + 1


def test_a_network_whose_blocks_are_its_end_has_no_classifier() -> None:
    with pytest.raises(PocketuneError, match="no classifier after its last block"):
        anatomy(whole(inverted(), behind=[nn.AdaptiveAvgPool2d(1), nn.Flatten()]))


def test_a_convolution_between_two_blocks_leads_to_the_second() -> None:
    _, second = anatomy(whole(inverted(), conv(4, 4, 3), inverted())).blocks
    assert (second.name, second.entry) == ("3", ("2",))


def pooled(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(conv(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), *between)


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (pooled(nn.Linear(4, 3)), "3"),
        (pooled(nn.Linear(4, 3), nn.Dropout(0.3), nn.Identity()), "3"),
        (pooled(nn.Linear(4, 3), nn.Unflatten(1, (3, 1, 1)), nn.Flatten()), "3"),
        (pooled(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3), nn.LogSoftmax(1)), "5"),
        (nn.Sequential(conv(3, 5), nn.AdaptiveMaxPool2d(1), nn.Dropout(), nn.Flatten()), "0"),
        (nn.Sequential(conv(1, 5, 3), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()), "0"),
    ],
)
def test_the_output_layer_is_found_behind_layers_without_weights(
    network: nn.Module, expected: str
) -> None:
    before = [module.training for module in network.modules()]
    assert output_layer(network) == expected
    assert [module.training for module in network.modules()] == before
    assert not any(parameter.grad is not None for parameter in network.parameters())


class Two(nn.Module):
    """Two heads, whose outputs are joined or returned side by side."""

    def __init__(self, joined: Callable[..., object]) -> None:
        super().__init__()
        self.body, self.left, self.right = pooled(), nn.Linear(4, 3), nn.Linear(4, 2)
        self.joined = joined

    def forward(self, x: Tensor) -> object:
        x = self.body(x)
        return self.joined(self.left(x), self.right(x))


@pytest.mark.parametrize(
    ("joined", "said"),
    [
        (lambda a, b: (a, b), "Two returns more than the class scores; wrap it"),
        (lambda a, b: {"a": a, "b": [b]}, "Two returns more than the class scores; wrap it"),
        (lambda a, b: torch.cat([a, b], 1), "Two are computed by left and right together; let one"),
    ],
    ids=["tuple", "nested", "concatenated"],
)
def test_two_heads_are_refused(joined: Callable[..., object], said: str) -> None:
    with pytest.raises(PocketuneError, match=said):
        output_layer(Two(joined))


def test_one_head_on_top_of_another_is_the_output_layer() -> None:
    class Stacked(Two):
        def forward(self, x: Tensor) -> object:
            return self.right(self.left(self.body(x)))

    network = Stacked(lambda a, b: None)
    network.right = nn.Linear(3, 2)
    assert output_layer(network) == "right"
    assert classifier_layers(network) == ("right",)


def test_a_layer_whose_output_is_cut_off_makes_nothing() -> None:
    class Detached(Two):
        def forward(self, x: Tensor) -> object:
            features = self.body(x)
            return self.right(features) + self.left(features).detach().sum()

    assert output_layer(Detached(lambda a, b: None)) == "right"


def test_a_network_that_takes_none_of_the_usual_sizes_goes_by_its_anatomy() -> None:
    class Picky(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            if x.shape[-1] != 50:
                raise ValueError("fifty pixels")
            y: Tensor = super().forward(x)
            return y

    known = Picky(*whole(inverted()))
    assert output_layer(known) == "4"
    assert output_layer(known, 50) == "4"
    unknown = Picky(*pooled(nn.Linear(4, 3)))
    assert output_layer(unknown, 50) == "3"
    message = "output layer of Picky cannot be found.*forward method raises ValueError: fifty"
    with pytest.raises(PocketuneError, match=message):
        output_layer(unknown)


def test_lazy_layers_are_not_run() -> None:
    network = whole(inverted(), behind=[nn.Flatten(), nn.LazyLinear(3)])
    assert output_layer(network) == "3"
    with pytest.raises(PocketuneError, match=r"cannot be found: 1\.weight has no shape yet"):
        output_layer(nn.Sequential(nn.Flatten(), nn.LazyLinear(3)))


class Stage(nn.Module):
    """As timm's RegStage: blocks one after the other, and in the first stage only one."""

    def __init__(self, count: int) -> None:
        super().__init__()
        for number in range(count):
            self.add_module(f"b{number}", inverted())

    def forward(self, x: Tensor) -> Tensor:
        for block in self.children():
            x = block(x)
        return x


def test_a_stage_of_one_block_is_no_block() -> None:
    found = anatomy(whole(Stage(1), Stage(2)))
    assert [block.name for block in found.blocks] == ["1.b0", "2.b0", "2.b1"]
