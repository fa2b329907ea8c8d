"""What users' networks have that ours have not, adapted, accounted for and compiled."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pocketune.accounting import account
from pocketune.compiler import compile
from pocketune.compiler.check import CompileError
from pocketune.compiler.lower.context import RULES
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.methods import (
    BiasAndLast,
    FullFineTune,
    GradientFilter,
    LastLayer,
    Method,
    NormAndLast,
    TopBlocks,
    adapt,
)
from pocketune.methods.gradient_filter.method import TRAINED

from .networks import BATCH, CLASSES, SIZE, TinyNetwork, tiny


def check(network: nn.Module, method: Method, tmp_path: Path) -> Kit:
    """`compile` itself compares every tensor with PyTorch for five steps."""
    adapted = adapt(network, method)
    assert account(adapted, batch=BATCH, size=SIZE).kept_bytes > 0
    return compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)


def short() -> TinyNetwork:
    """With one block: enough where a layer is the subject."""
    return tiny(blocks=1)


def with_norms(network: nn.Module, norm: Callable[[int], nn.Module]) -> nn.Module:
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.BatchNorm2d):
            network.set_submodule(name, norm(module.num_features))
    return network


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("method", [FullFineTune(), GradientFilter(layers=3)], ids=str)
def test_instance_norms(method: Method, affine: bool, tmp_path: Path) -> None:
    norm = partial(nn.InstanceNorm2d, affine=affine)
    check(with_norms(short(), norm), method, tmp_path)


@pytest.mark.parametrize("method", [FullFineTune(), GradientFilter(layers=3)], ids=str)
def test_batch_norms_without_parameters(method: Method, tmp_path: Path) -> None:
    check(with_norms(short(), partial(nn.BatchNorm2d, affine=False)), method, tmp_path)


@pytest.mark.parametrize(
    ("norm", "message"),
    [
        (
            partial(nn.BatchNorm2d, track_running_stats=False),
            "batch norm stem.1 has no running statistics.*track_running_stats=True",
        ),
        (
            partial(nn.InstanceNorm2d, track_running_stats=True),
            "stem.1 is a InstanceNorm2d with running statistics",
        ),
    ],
)
def test_norms_whose_statistics_a_kit_cannot_have(
    norm: Callable[[int], nn.Module], message: str, tmp_path: Path
) -> None:
    network = adapt(with_norms(tiny(), norm), FullFineTune())
    with pytest.raises(PocketuneError, match=message):
        compile(network, tmp_path / "kit", batch=BATCH, size=SIZE)


class Float(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.float()


@pytest.mark.parametrize("method", [FullFineTune(), LastLayer()], ids=str)
def test_a_forward_that_insists_on_float32(method: Method, tmp_path: Path) -> None:
    network = short()
    network.pool = nn.Sequential(network.pool, Float())
    check(network, method, tmp_path)


def test_in_float32_too_a_wrong_graph_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = short()
    network.pool = nn.Sequential(network.pool, Float())
    monkeypatch.setitem(RULES, torch.ops.aten.relu.default, RULES[torch.ops.aten.hardswish.default])
    with pytest.raises(CompileError, match="disagrees"):
        compile(adapt(network, FullFineTune()), tmp_path / "kit", batch=BATCH, size=SIZE)


class OutputFirst(TinyNetwork):
    """Its output layer is registered before another linear one."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(6, CLASSES)
        self.hidden = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.hidden(self.pool(self.blocks(self.stem(x))).flatten(1))
        logits: Tensor = self.classifier(x.relu())
        return logits


def test_the_output_layer_need_not_be_the_last_one(tmp_path: Path) -> None:
    kit = check(OutputFirst(), FullFineTune(), tmp_path)
    assert kit.manifest.task.head[0] == "classifier.weight"


@pytest.mark.parametrize(
    "method",
    [FullFineTune(), LastLayer(), GradientFilter(layers=8), GradientFilter(layers=8, patch=4)],
    ids=str,
)
def test_padding_other_than_of_zeros(method: Method, tmp_path: Path) -> None:
    network = tiny(blocks=3)
    modes = itertools.cycle(["reflect", "replicate", "circular"])
    for name, conv in list(network.named_modules()):
        if isinstance(conv, nn.Conv2d) and conv.kernel_size != (1, 1):
            mode = next(modes)
            padded = nn.Conv2d(
                conv.in_channels,
                conv.out_channels,
                3,
                conv.stride,
                1,
                groups=conv.groups,
                bias=False,
                padding_mode=mode,  # type: ignore[arg-type]
            )
            network.set_submodule(name, padded)
    check(network, method, tmp_path)


ACTIVATIONS = [
    nn.LeakyReLU,
    partial(nn.LeakyReLU, inplace=True),
    nn.PReLU,
    nn.GELU,
    nn.ELU,
    partial(nn.Mish, inplace=True),
    nn.Softplus,
    nn.Tanh,
]


def test_activations_that_ours_do_not_have(tmp_path: Path) -> None:
    network = tiny(blocks=4)
    places = [path for path, module in network.named_modules() if isinstance(module, nn.ReLU6)]
    for path, activation in zip(places, itertools.cycle(ACTIVATIONS), strict=False):
        network.set_submodule(path, activation())
    assert len(places) > len(ACTIVATIONS)
    check(network, FullFineTune(), tmp_path)


class EfficientChannelAttention(nn.Module):
    """A scale for each channel, from a convolution along the channels."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 3, bias=False, **options)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.conv(x.mean((2, 3))[:, None])[:, 0].sigmoid()
        return x * scale[:, :, None, None]


@pytest.mark.parametrize(
    "options",
    [
        {"padding": 1},
        {"padding": "same", "dilation": 2},
        {"padding": 1, "padding_mode": "circular"},
    ],
    ids=str,
)
def test_convolutions_of_one_dimension(options: dict[str, Any], tmp_path: Path) -> None:
    network = short()
    network.pool = nn.Sequential(EfficientChannelAttention(**options), network.pool)
    check(network, FullFineTune(), tmp_path)


class Windows(nn.Module):
    """The largest value of each window; the windows overlap."""

    def forward(self, x: Tensor) -> Tensor:
        return x.unfold(2, 3, 1).unfold(3, 2, 2).amax((-2, -1))


def test_windows_that_overlap(tmp_path: Path) -> None:
    network = short()
    network.pool = nn.Sequential(Windows(), network.pool)
    check(network, FullFineTune(), tmp_path)


@pytest.mark.parametrize("method", [FullFineTune(), LastLayer()], ids=str)
def test_a_head_with_layer_norm_that_ends_in_log_softmax(method: Method, tmp_path: Path) -> None:
    network = short()
    end = nn.LogSoftmax(1)  # whose softmax is that of the scores before it
    network.classifier = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, CLASSES), end)
    check(network, method, tmp_path)


def plain() -> nn.Module:
    """A row of layers, as in a first tutorial."""
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.1)),
        nn.Linear(16, CLASSES),
    )


class ConvNeXtBlock(nn.Module):
    """Liu et al., 2022: depthwise 7x7, layer norm, two linear layers over the channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.expand = nn.Linear(channels, 4 * channels)
        self.project = nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(0.1 * torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.project(nn.functional.gelu(self.expand(y)))
        return x + (self.scale * y).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, CLASSES)  # first, so that its place tells nothing
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.stages = nn.Sequential(ConvNeXtBlock(8), ConvNeXtBlock(8))
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.stages(self.stem(x)).mean((-2, -1))))
        return logits


METHODS = [FullFineTune(), LastLayer(), BiasAndLast(), NormAndLast(), TopBlocks(1)]
NETWORKS = {"plain": plain, "convnext": ConvNeXt}
OUTPUTS = {"plain": "12", "convnext": "head"}
FILTERED = {"plain": ("0", "4"), "convnext": ("stages.1.depthwise",)}


ADAPTED = [*METHODS, "filter", "filter what is trained"]


@pytest.mark.parametrize(
    ("name", "method", "frozen_bits"),
    [  # each method with both, on one network each
        (name, method, (8, 32)[(row + place) % 2])
        for row, name in enumerate(NETWORKS)
        for place, method in enumerate(ADAPTED)
    ],
    ids=str,
)
def test_networks_whose_blocks_are_not_rows_of_convolutions(
    name: str, method: Method | str, frozen_bits: int, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    if isinstance(method, str):
        filters = GradientFilter(layers=FILTERED[name])
        method = (
            filters if method == "filter" else FullFineTune() + replace(filters, layers=TRAINED)
        )
    adapted = adapt(NETWORKS[name](), method, frozen_bits=frozen_bits)
    output = f"{OUTPUTS[name]}.weight"
    trained = [name for name, p in adapted.named_parameters() if p.requires_grad]
    assert output in trained
    assert method != LastLayer() or len(trained) == 2
    assert account(adapted, batch=BATCH, size=SIZE).kept_bytes > 0
    kit = compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)
    assert kit.manifest.task.head[0] == output


class Checkpointed(TinyNetwork):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.blocks, self.stem(x), use_reentrant=self.reentrant)
        logits: Tensor = self.classifier(self.pool(x).flatten(1))
        return logits


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("method", [FullFineTune(), TopBlocks(1)], ids=str)
def test_a_forward_that_is_checkpointed(method: Method, reentrant: bool, tmp_path: Path) -> None:
    network = Checkpointed(reentrant)
    if reentrant and method == TopBlocks(1):  # no gradient reaches what is given to it
        network.stem[0] = nn.Conv2d(3, 4, 3, 2, 1)
        method = method + BiasAndLast()
    check(network, method, tmp_path)
