"""Where the frozen part of a network ends."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pocketune.compiler import compile
from pocketune.compiler.capture.dropout import supply_masks
from pocketune.compiler.capture.partition import features_nodes
from pocketune.compiler.capture.trace import trace_predict, trace_step
from pocketune.compiler.check import CompileError
from pocketune.compiler.settings import CompileSettings
from pocketune.methods import GradientFilter, RepNet, TopBlocks, adapt, create_method
from pocketune.weights import create_network

from ...networks.shallow import shallow
from ..networks import BATCH, SIZE, TASK, tiny


def features_shapes(network: nn.Module, method: Any, size: int = SIZE) -> tuple[Any, Any]:
    """Shape of an image's features in the training step, and in prediction."""
    network = adapt(network, method)
    masks = [spec.name for spec in supply_masks(network, BATCH, size)]
    step = trace_step(network, CompileSettings(BATCH, size, TASK), masks)
    predict = trace_predict(network, batch=2, size=size)
    return tuple(
        next((tuple(node.meta["val"].shape[1:]) for node in features_nodes(traced, size)), None)
        for traced in (step, predict)
    )


@pytest.mark.parametrize(
    ("method", "expected"),
    [("last", (4,)), ("blocks", (4, 8, 8)), ("full", None), ("bias", (4, 8, 8))],
)
def test_a_foreign_network(method: str, expected: tuple[int, ...] | None) -> None:
    knobs = {"blocks": 1} if method == "blocks" else {}
    shapes = features_shapes(tiny(dropout=0.3), create_method(method, **knobs))
    assert shapes == (expected, expected)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("last", (128,)),
        ("blocks", (64, 4, 4)),
        ("full", None),  # trains from the first layer on
        # the stem's convolution is frozen, and makes more numbers than it reads
        ("bias", None),
        ("norm", None),
    ],
)
def test_a_registered_network(method: str, expected: tuple[int, ...] | None) -> None:
    network = create_network("resnet18", classes=3, width=0.25)
    assert features_shapes(network, create_method(method), 64) == (expected, expected)


class _Scores(nn.Module):
    """The scores of each token, of which the mean is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.blocks(x).flatten(2).transpose(1, 2))
        return scores.mean(1)


def test_images_are_not_merged_with_tokens(tmp_path: Path) -> None:
    tokens = ((SIZE // 4) ** 2, 4)
    assert features_shapes(_Scores(), create_method("last")) == (tokens, tokens)
    network = adapt(_Scores(), create_method("last"))
    with pytest.raises(CompileError, match="depends on their number"):  # scores of tokens are views
        compile(network, tmp_path / "kit", batch=BATCH, size=SIZE)


class _TokensFirst(nn.Module):
    """Tokens in the first dimension, and images in the second, as of `nn.MultiheadAttention`."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4).requires_grad_(False)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).permute(2, 0, 1).relu()
        scores: torch.Tensor = self.head(self.norm(tokens).mean(0))
        return scores


@pytest.mark.parametrize("batch", [15, 16])
def test_as_many_images_as_tokens_are_not_taken_for_them(batch: int, tmp_path: Path) -> None:
    kit = compile(_TokensFirst(), tmp_path / "kit", batch=batch, size=16)
    assert kit.manifest.features == (8, 16)


class _Merged(nn.Module):
    """As TNT: the tokens of all images are the rows of one tensor, which a norm reads."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 4, 4, 4)
        self.norm, self.mix, self.head = nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2).reshape(-1, 4)
        mixed = self.mix(self.norm(tokens)).reshape(len(x), -1, 4)
        scores: torch.Tensor = self.head(mixed.mean(1))
        return scores


def test_a_norm_of_merged_tokens_is_computed_in_the_step(tmp_path: Path) -> None:
    tokens = ((SIZE // 4) ** 2, 4)
    lora = create_method("lora", rank=1)
    assert features_shapes(_Merged(), lora) == (tokens, tokens)
    compile(adapt(_Merged(), lora), tmp_path / "kit", batch=BATCH, size=SIZE)


class _Shortcut(nn.Module):
    """The trained part reads two tensors of the frozen one."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stem = self.network.stem(x)
        y = self.network.blocks[1](self.network.blocks[0](stem)) + stem
        logits: torch.Tensor = self.network.classifier(self.network.pool(y).flatten(1))
        return logits


def test_two_tensors_into_the_trained_part() -> None:
    network = _Shortcut(adapt(tiny(), TopBlocks(blocks=1)))
    step = trace_step(network, CompileSettings(BATCH, SIZE, TASK))
    shapes = [tuple(node.meta["val"].shape) for node in features_nodes(step, SIZE)]
    assert shapes == [(BATCH, 4, 8, 8), (BATCH, 4, 8, 8)]


def test_a_kit_with_two_tensors_of_features(tmp_path: Path) -> None:
    """They go from graph to graph as one vector; `compile` checks the step against PyTorch."""
    network = adapt(shallow(create_network("mobilenet_v2", classes=3, width=0.1)), RepNet())
    kit = compile(network, tmp_path / "kit", batch=2, size=64)
    pooled_image, block = 3 * 8 * 8, 8 * 16 * 16
    assert kit.manifest.features == (pooled_image + block,)


def test_sums_that_a_filtered_convolution_keeps_are_no_features() -> None:
    network = shallow(create_network("mobilenet_v2", classes=3, width=0.1))
    exact, filtered = (
        features_shapes(network, method, 64)
        for method in (TopBlocks(blocks=1), TopBlocks(blocks=1) + GradientFilter(layers="trained"))
    )
    assert exact == filtered
    assert filtered[0] is not None


class _Deep(nn.Module):
    """Two tensors into the trained part, one 1,200 operators behind the other."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 4, 4, 4)
        self.mix, self.head = nn.Linear(4, 4), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.patches(x).mean((2, 3))
        second = first
        for _ in range(1200):
            second = second.sin()
        scores: torch.Tensor = self.head(torch.cat([self.mix(first), second], 1))
        return scores


def test_a_deep_frozen_part() -> None:
    assert features_shapes(_Deep(), create_method("lora", rank=1)) == ((4,), (4,))
