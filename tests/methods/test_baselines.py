"""What the baselines train: the published numbers of parameters, and the rule for norms."""

from functools import lru_cache

import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import FrozenBatchNorm2d
from pocketune.methods import (
    BiasAndLast,
    FullFineTune,
    LastLayer,
    Method,
    NormAndLast,
    TopBlocks,
    adapt,
    trainable,
)
from pocketune.surgery import batch_norms
from pocketune.weights import create_network

from .names import trained


@lru_cache
def network(name: str = "mobilenet_v2", classes: int = 10) -> nn.Module:
    """Shared between the tests; methods never change it."""
    return create_network(name, classes=classes)


@pytest.mark.parametrize(
    ("method", "classes", "count"),
    [
        # MobileTL (Chiang et al., 2023), tables 3 and 5
        (FullFineTune(), 100, 2_927_612),
        (NormAndLast(), 100, 162_596),
        (BiasAndLast(), 100, 145_348),
        (TopBlocks(3), 100, 1_695_972),
        (LastLayer(), 100, 128_100),
        (TopBlocks(3), 10, 1_580_682),
        # the same rules with another classifier
        (FullFineTune(), 10, 2_812_322),
        (NormAndLast(), 10, 12_810 + 2 * 17_248),
        (BiasAndLast(), 10, 12_810 + 17_248),
        (LastLayer(), 10, 12_810),
        (TopBlocks(1), 10, 12_810 + 412_160 + 651_520),
    ],
    ids=lambda value: str(value),
)
def test_proxylessnas_trains_as_many_parameters_as_published(
    method: Method, classes: int, count: int
) -> None:
    assert trainable(adapt(network("proxylessnas_mobile", classes), method)).trained == count


@pytest.mark.parametrize(
    ("name", "classifier"),
    [
        ("mobilenet_v3_small", {"classifier.0", "classifier.3"}),
        ("resnet18", {"fc"}),
        ("mobilenet_v2", {"classifier.1"}),
    ],
)
def test_last_layer_trains_the_whole_classifier(name: str, classifier: set[str]) -> None:
    names = trained(adapt(network(name), LastLayer()))
    assert names == {f"{layer}.{kind}" for layer in classifier for kind in ("weight", "bias")}


def test_full_trains_everything_on_batch_statistics() -> None:
    adapted = adapt(network(), FullFineTune())
    assert trained(adapted) == {name for name, _ in network().named_parameters()}
    assert set(batch_norms(adapted)) == set(batch_norms(network()))


def test_norm_and_last_trains_norms_on_batch_statistics() -> None:
    adapted = adapt(network(), NormAndLast())
    assert set(batch_norms(adapted)) == set(batch_norms(network()))
    assert all(p.requires_grad for norm in batch_norms(adapted).values() for p in norm.parameters())


def test_norm_and_last_needs_norms() -> None:
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2))
    with pytest.raises(PocketuneError, match=r"no norm .* in Sequential; use BiasAndLast\(\)"):
        adapt(plain, NormAndLast())


def test_bias_and_last_trains_shifts_of_frozen_norms() -> None:
    adapted = adapt(network(), BiasAndLast())
    norms = [m for m in adapted.modules() if isinstance(m, FrozenBatchNorm2d)]
    assert len(norms) == len(batch_norms(network()))
    assert not batch_norms(adapted)
    assert all(norm.bias.requires_grad and not norm.weight.requires_grad for norm in norms)


def test_bias_and_last_trains_the_biases_of_squeeze_excite() -> None:
    names = trained(adapt(network("mobilenet_v3_small"), BiasAndLast()))
    assert "features.1.block.1.fc1.bias" in names
    assert "features.1.block.1.fc1.weight" not in names


def test_top_blocks_trains_blocks_fusion_and_classifier() -> None:
    adapted = adapt(network(), TopBlocks(blocks=2))
    parts = {".".join(name.split(".")[:2]) for name in trained(adapted)}
    assert parts == {"features.16", "features.17", "features.18", "classifier.1"}
    norms = {name for name in batch_norms(network()) if name.split(".")[1] in ("16", "17", "18")}
    assert set(batch_norms(adapted)) == norms


def test_top_blocks_without_feature_fusion() -> None:
    adapted = adapt(network("resnet18"), TopBlocks(blocks=1))
    parts = {".".join(name.split(".")[:2]) for name in trained(adapted)}
    assert parts == {"layer4.1", "fc.weight", "fc.bias"}


def test_all_blocks_leave_only_the_stem_frozen() -> None:
    frozen = {name for name, _ in network().named_parameters()}
    frozen -= trained(adapt(network(), TopBlocks(blocks=17)))
    assert {name.split(".")[1] for name in frozen} == {"0"}


@pytest.mark.parametrize("blocks", [-1, 18, 2.5, "3"])
def test_top_blocks_names_the_number_of_blocks(blocks: int) -> None:
    with pytest.raises(PocketuneError, match=r"17 blocks; give a whole number from 0 to 17"):
        adapt(network(), TopBlocks(blocks=blocks))


@pytest.mark.parametrize(
    "method", [FullFineTune(), LastLayer(), NormAndLast(), BiasAndLast(), TopBlocks(2)], ids=str
)
def test_adapted_network_computes_the_same_in_evaluation(method: Method) -> None:
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        expected = network().eval()(images)
        actual = adapt(network(), method).eval()(images)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_no_blocks_leave_the_feature_fusion_and_the_classifier() -> None:
    network = create_network("mobilenet_v2", width=0.1, classes=3)
    plan = TopBlocks(blocks=0).plan(network)
    assert {name.split(".")[0] for name in plan.trained} == {"features", "classifier"}
    assert plan.batch_norms == {"features.18.1"}
