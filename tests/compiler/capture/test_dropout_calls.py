"""Which dropouts belong to the frozen part, and drop nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pocketune.compiler import compile
from pocketune.compiler.capture.dropout import supply_masks
from pocketune.methods import LastLayer, TopBlocks, adapt

from ..networks import tiny


class AddsInPlace(nn.Module):
    """As torchvision's ConvNeXt: the sum is the tensor that the dropout returned."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.dropout = nn.Conv2d(4, 4, 1), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.dropout(self.layer(x))
        result += x
        return result


def test_a_frozen_dropout_whose_result_is_written_to_drops_nothing(tmp_path: Path) -> None:
    net = tiny(blocks=1)
    net.blocks = nn.Sequential(AddsInPlace(), AddsInPlace())
    kit = compile(adapt(net, TopBlocks(blocks=1)), tmp_path / "kit", batch=2, size=16)
    assert [spec.name for spec in kit.manifest.masks] == ["blocks.1.dropout.mask"]


class AddsBefore(AddsInPlace):
    """As timm's blocks: the sum is a tensor of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.layer(x)).relu()


def test_a_frozen_dropout_of_a_residual_branch_drops_nothing() -> None:
    net = tiny(blocks=1)
    net.blocks = nn.Sequential(AddsBefore(), AddsBefore(), nn.ReLU())
    specs = supply_masks(adapt(net, LastLayer()), batch=2, size=16)
    assert specs == ()


class BeforeClassifier(nn.Module):
    """Maps of one pixel, what is done to them, and a classifier."""

    def __init__(self, neck: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.drop, self.fc = nn.Conv2d(3, 4, 3, 2), nn.Dropout(0.5), nn.Linear(4, 3)
        self.neck = neck

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.neck(self, self.conv(x).mean((2, 3), keepdim=True)))
        return logits


def without_gradients(net: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        dropped: Tensor = net.drop(x.flatten(1))
    return dropped


@pytest.mark.parametrize(
    "neck",
    [
        lambda net, x: net.drop(x.flatten(1)),
        lambda net, x: net.drop(x).flatten(1),
        lambda net, x: net.drop(x.expand(-1, -1, 3, 3)).sigmoid().mean((2, 3)),
        lambda net, x: net.drop(x.flatten(1)).relu_(),
        lambda net, x: net.drop(x.flatten(1)) * 2,
        lambda net, x: net.drop(2 * net.drop(x).flatten(1)),
        lambda net, x: net.drop(x.flatten(1).detach()) * 2,
        without_gradients,
    ],
    ids=["last", "flatten", "pool", "relu", "factor", "two", "detached", "no_grad"],
)
def test_a_dropout_that_the_classifier_reads_drops(
    neck: Callable[[nn.Module, Tensor], Tensor], tmp_path: Path
) -> None:
    net = adapt(BeforeClassifier(neck), LastLayer())
    kit = compile(net, tmp_path / "kit", batch=2, size=16)
    assert {spec.keep for spec in kit.manifest.masks} == {0.5}


class CallsBeforeClassifier(BeforeClassifier):
    """Calls the function."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(self.conv(x).mean((2, 3), keepdim=True), 0.5, self.training)
        logits: Tensor = self.fc(self.neck(self, x))
        return logits


@pytest.mark.parametrize("factor", [1, 2])
def test_a_call_of_the_function_that_the_classifier_reads_drops(
    factor: int, tmp_path: Path
) -> None:
    net = adapt(CallsBeforeClassifier(lambda _, x: factor * x.flatten(1)), LastLayer())
    kit = compile(net, tmp_path / "kit", batch=2, size=16)
    assert [spec.name for spec in kit.manifest.masks] == ["supplied_dropouts.calls.0.mask"]


def test_a_dropout_before_a_frozen_layer_drops_nothing() -> None:
    net = BeforeClassifier(lambda net, x: net.layer(net.drop(x).flatten(1)).relu())
    net.layer = nn.Linear(4, 4)
    assert supply_masks(adapt(net, LastLayer()), batch=2, size=16) == ()
