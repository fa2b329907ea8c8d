"""Norms of every kind: methods train them, or keep them as they are."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import FrozenBatchNorm1d, FrozenBatchNorm2d
from pocketune.methods import (
    ActivationPruning,
    BiasAndLast,
    Calibrate,
    FullFineTune,
    GradientFilter,
    LastLayer,
    Method,
    NormAndLast,
    TopBlocks,
    adapt,
)
from pocketune.networks import anatomy
from pocketune.surgery import batch_norms, swap
from pocketune.weights import create_network

from .names import trained


def network(head: Callable[[int], nn.Module]) -> nn.Module:
    made = create_network("mobilenet_v2", width=0.35, classes=3)
    swap(made, {"classifier.1": lambda old: head(old.in_features)})
    return made


def normed_head(channels: int) -> nn.Module:
    """A norm on what is pooled, and one between two layers."""
    layers = nn.Linear(channels, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
    head = nn.Sequential(nn.BatchNorm1d(channels), *layers)
    for norm in (head[0], head[2]):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        nn.init.uniform_(norm.weight, 0.5, 2)
    return head


@pytest.mark.parametrize(
    "kind",
    [
        lambda channels: nn.GroupNorm(1, channels),
        lambda channels: nn.InstanceNorm2d(channels, affine=True),
    ],
    ids=["group", "instance"],
)
def test_norm_and_last_trains_norms_of_every_kind(kind: Callable[[int], nn.Module]) -> None:
    """A layer norm stands in front of the classifier."""
    original = network(lambda size: nn.Sequential(nn.LayerNorm(size), nn.Linear(size, 3)))
    swap(original, {n: lambda old: kind(old.num_features) for n in batch_norms(original)})
    classifier = anatomy(original).classifier
    expected = {n for n, p in original.named_parameters() if p.dim() == 1}
    expected |= {f"{path}.weight" for path in classifier}
    assert trained(adapt(original, NormAndLast())) == expected


def bare(**options: bool) -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, **options), nn.Conv2d(8, 8, 3)]
    made = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    made(torch.randn(4, 3, 8, 8))
    return made.eval()


def test_norms_without_parameters() -> None:
    """Frozen ones have a weight of ones; training the whole network needs their statistics."""
    original, images = bare(affine=False), torch.randn(4, 3, 8, 8)
    for method in (LastLayer(), BiasAndLast()):
        adapted = adapt(original, method)
        assert isinstance(adapted[1], FrozenBatchNorm2d)
        torch.testing.assert_close(adapted(images), original(images))
        assert not {"1.weight", "1.bias"} & trained(adapted)
    for method in (FullFineTune(), Calibrate(), FullFineTune() + ActivationPruning()):
        assert type(adapt(original, method)[1]) is nn.BatchNorm2d
    with pytest.raises(PocketuneError, match="no norm with parameters"):
        adapt(original, NormAndLast())


def test_norms_without_statistics_can_be_trained_alone() -> None:
    original = bare(track_running_stats=False)
    for method in (FullFineTune(), NormAndLast(), Calibrate()):
        assert type(adapt(original, method)[1]) is nn.BatchNorm2d
    with pytest.raises(PocketuneError, match=r"^1: .* cannot be frozen, .*; train it with Full"):
        adapt(original, LastLayer())


def test_what_lies_in_the_classifier_is_trained_with_it() -> None:
    original = network(normed_head)
    names = tuple(f"classifier.1.{i}" for i in (1, 2, 4))
    assert anatomy(original).classifier == names
    adapted = adapt(original, LastLayer())
    assert trained(adapted) == {
        "classifier.1.1.weight",
        "classifier.1.2.weight",
        "classifier.1.2.bias",
        "classifier.1.4.weight",
        "classifier.1.4.bias",
    }
    assert set(batch_norms(adapted)) == {"classifier.1.2"}


@pytest.mark.parametrize("method", [LastLayer(), TopBlocks(1), GradientFilter(layers=1)], ids=str)
def test_norms_of_vectors_are_frozen_where_they_are_not_trained(method: Method) -> None:
    original = network(normed_head).eval()
    adapted = adapt(original, method)
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(adapted(images), original(images), rtol=1e-4, atol=1e-5)
    frozen = adapted.get_submodule("classifier.1.0")
    assert isinstance(frozen, FrozenBatchNorm1d)
    x = torch.randn(4, frozen.running_mean.numel())
    assert torch.equal(frozen.train()(x), frozen.eval()(x))
