"""Kits of single methods and of their sums."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pocketune.accounting import account
from pocketune.compiler import compile
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.train.optimizer import SGD
from pocketune.eager.engine import TorchEngine
from pocketune.filtering import FilteredConv2d, filter_convolution
from pocketune.layers import PrunedConv2d, StandardizedConv2d
from pocketune.layers.conv import Conv2d
from pocketune.methods import (
    ActivationPruning,
    BiasAndLast,
    FullFineTune,
    GradientFilter,
    LastLayer,
    Method,
    MobileTL,
    NormAndLast,
    RepNet,
    SignedBackward,
    TinyTL,
    TopBlocks,
    adapt,
)
from pocketune.networks import about
from pocketune.surgery import swap
from pocketune.weights import create_network

from ..networks.small import small_mobilenet
from ..networks.timm_like import pooling_network
from .networks import CLASSES, tiny
from .settled import BATCH, SIZE, batch, settled


@pytest.mark.parametrize(
    "method",
    [
        FullFineTune() + ActivationPruning(0.7),
        MobileTL(blocks=2) + GradientFilter(layers="trained"),
        MobileTL(blocks=2) + TinyTL(bias=False),
        MobileTL(blocks=2, patches="with") + SignedBackward(),
        MobileTL(blocks=2, patches="instead") + NormAndLast(),
        RepNet() + SignedBackward(),
        TinyTL() + GradientFilter(layers="trained"),
        TopBlocks(blocks=2) + GradientFilter(patch=3, layers="trained") + SignedBackward(),
    ],
    ids=str,
)
def test_a_sum_of_methods(method: Method, tmp_path: Path) -> None:
    """`compile` itself compares every tensor with PyTorch for five steps."""
    torch.manual_seed(4)
    adapted = adapt(small_mobilenet(), method)
    assert account(adapted, batch=2, size=32).kept_bytes > 0
    compile(adapted, tmp_path / "kit", batch=2, size=32)


@pytest.mark.parametrize(
    "method", [RepNet(), TinyTL(), MobileTL(blocks=2, patches="with")], ids=str
)
def test_beside_blocks_that_stride_by_pooling(method: Method, tmp_path: Path) -> None:
    torch.manual_seed(4)
    adapted = adapt(pooling_network(), method)
    trained = [p for name, p in adapted.named_parameters() if p.requires_grad and "branch" in name]
    assert trained
    for size in (64, 75):
        assert account(adapted, batch=2, size=size).kept_bytes > 0
        adapted.zero_grad()
        adapted.train()(torch.randn(2, 3, size, size)).logsumexp(1).sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in trained)
    compile(adapted, tmp_path / "kit", batch=2, size=75)  # the pools leave out a row


def test_activation_pruning_by_estimates(tmp_path: Path) -> None:
    torch.manual_seed(4)
    network = create_network("resnet18", width=0.125, classes=3)
    adapted = adapt(network, TopBlocks(blocks=8) + ActivationPruning(0.5, epsilon=1.0))
    found = [m for m in adapted.modules() if isinstance(m, PrunedConv2d)]
    assert any(each.projection is not None for each in found)
    compile(adapted, tmp_path / "kit", batch=2, size=32)


def unfiltered(adapted: nn.Module) -> nn.Module:
    """The same network, trained in the same parameters, with exact gradients."""

    def exact(conv: nn.Module) -> nn.Module:
        assert isinstance(conv, FilteredConv2d)
        return Conv2d.from_convolution(conv)

    filtered = [n for n, m in adapted.named_modules() if isinstance(m, FilteredConv2d)]
    assert filtered
    swap(adapted, dict.fromkeys(filtered, exact))
    return adapted


def step_bytes(network: nn.Module, out: Path, size: int) -> int:
    """Predicted peak of the training step; `compile` has compared five steps with PyTorch."""
    kit = compile(network, out, batch=4, size=size)
    return kit.manifest.graphs["step"].memory


@pytest.mark.parametrize(
    "method",
    [
        GradientFilter(layers=4),
        GradientFilter(4, layers=3, alignment="reference"),
        GradientFilter(layers=4, bits=8),
        TopBlocks(blocks=1) + GradientFilter(3, layers="trained"),
    ],
    ids=str,
)
def test_a_foreign_network(method: Method, tmp_path: Path) -> None:
    adapted = adapt(tiny(), method)
    filtered = step_bytes(adapted, tmp_path / "filtered", 16)
    assert filtered < step_bytes(unfiltered(adapted), tmp_path / "exact", 16)


def test_standardized_filters_that_pad_like_tensorflow(tmp_path: Path) -> None:
    """`compile` compares five steps with PyTorch, of pads, standardized filters and averages."""
    network = small_mobilenet(padding="same")
    adapted = adapt(network, TopBlocks(blocks=3) + TinyTL(norm="group", lite_residual=False))
    strided = "features.2.conv.1.0"
    swap(adapted, {strided: filter_convolution})
    conv = adapted.get_submodule(strided)
    assert isinstance(conv, FilteredConv2d) and isinstance(conv, StandardizedConv2d)
    assert conv.same_padding
    compile(adapted, tmp_path, batch=1, size=32)


@pytest.mark.parametrize("alignment", ["paper", "reference"])
def test_strides_and_shortcuts(alignment: str, tmp_path: Path) -> None:
    """The features are the first filtered layer's input and what the frozen shortcut makes of it.

    The patch sums are frozen too, but follow from the input.
    """
    network = create_network("resnet18", width=0.25, classes=3)
    adapted = adapt(network, GradientFilter(layers=4, alignment=alignment))
    kit = compile(adapted, tmp_path, batch=4, size=64)
    assert kit.manifest.features == (64 * 4 * 4 + 128 * 2 * 2,)


def test_a_chain_across_a_frozen_shortcut_before_a_dropout(tmp_path: Path) -> None:
    """Whether the dropout is frozen is seen in a run without values that records all maps."""
    adapted = adapt(small_mobilenet(), GradientFilter(layers=5))
    assert [len(chain) for chain in about(adapted).filter_chains] == [5]
    assert compile(adapted, tmp_path, batch=2, size=32).manifest.masks


STEPS = 10
TOLERANCE = 1e-3


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("mobilenet_v2", MobileTL(blocks=2)),
        ("mobilenet_v3_small", MobileTL(blocks=2)),
        (
            "mobilenet_v3_small",
            MobileTL(blocks=2, squeeze_excite=False, norm="all"),
        ),
        ("resnet18", MobileTL(blocks=1)),
        ("mobilenet_v2", TopBlocks(blocks=2) + SignedBackward()),
    ],
    ids=str,
)
def test_the_same_losses_for_ten_steps(name, method, tmp_path):
    adapted = adapt(settled(name), method, frozen_bits=32)
    kit = compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)
    engines = [
        OnnxEngine(kit, kit.state()),
        TorchEngine(adapted, batch=BATCH, size=SIZE, task=kit.manifest.task),
    ]
    losses = [train(engine) for engine in engines]
    np.testing.assert_allclose(losses[0], losses[1], rtol=TOLERANCE)
    assert losses[0][-2] < losses[0][0]  # of the same images


def train(engine) -> list[float]:
    """The loss of each step."""
    update = SGD(engine.parameters)
    losses = []
    for step in range(STEPS):
        result = engine.gradients(*batch(step % 2), np.random.default_rng([0, step]))
        update.step(result.values, lr=0.001)
        losses.append(result.loss)
    return losses


METHODS_OF_HEADS = [LastLayer(), BiasAndLast(), NormAndLast(), TopBlocks(1), FullFineTune()]


@pytest.mark.parametrize("method", METHODS_OF_HEADS, ids=str)
def test_batch_norm_inside_a_classifier(method: Method, tmp_path: Path) -> None:
    """A kit is written only where it computes what PyTorch does; the first norm may be frozen."""
    network = tiny()
    layers = (
        nn.Linear(4, 8, bias=False),
        nn.BatchNorm1d(8),
        nn.ReLU(inplace=True),
        nn.Linear(8, CLASSES),
    )
    network.classifier = nn.Sequential(nn.BatchNorm1d(4), *layers)
    adapted = adapt(network, method)
    kit = compile(adapted, tmp_path / "kit", batch=4, size=16)
    statistics = {spec.name for spec in kit.manifest.statistics}
    live = {name for name, module in adapted.named_modules() if type(module) is nn.BatchNorm1d}
    assert "classifier.2" in live
    assert {f"{name}.running_var" for name in live} <= statistics
