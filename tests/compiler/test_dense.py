"""Kits of networks with an output for each pixel."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pocketune.authoring import build_kit
from pocketune.compiler import compile
from pocketune.compiler.draft import draft
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.eager.engine import TorchEngine
from pocketune.errors import PocketuneError
from pocketune.kit import Kit
from pocketune.methods import (
    BiasAndLast,
    FullFineTune,
    GradientFilter,
    LastLayer,
    Method,
    adapt,
)
from pocketune.tasks import Classification, Segmentation, numbered

from .dense_networks import BATCH, CLASSES, SIZE, TASK, dense

HEAD = ("classifier.weight", "classifier.bias")


@pytest.mark.parametrize(
    "method",
    [
        FullFineTune(),
        BiasAndLast(),
        LastLayer() + GradientFilter(layers=4, patch=2),
    ],
    ids=str,
)
def test_methods(method: Method, tmp_path: Path) -> None:
    """`compile` itself compares every tensor with PyTorch for five steps."""
    adapted = adapt(dense(dropout=0.2), method)
    kit = compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE, task=TASK)
    assert kit.manifest.task == replace(TASK, head=HEAD, output_size=(10, 10))
    assert [mask.shape for mask in kit.manifest.masks] == [(BATCH, 8, 1, 1)]
    if kit.manifest.features is not None:
        assert draft(adapted, batch=BATCH, size=SIZE, task=TASK).graphs == kit.manifest.graphs


@pytest.mark.parametrize(("size", "stride"), [(40, 4), (52, 1)])
def test_sizes_and_loss_strides(size: int, stride: int, tmp_path: Path) -> None:
    task = replace(TASK, loss_stride=stride)
    kit = compile(adapt(dense(), LastLayer()), tmp_path / "kit", batch=2, size=size, task=task)
    assert kit.manifest.task.output_shape(size) == (CLASSES, -(-size // 4), -(-size // 4))
    step = kit.manifest.graphs["step"].memory
    assert (step < 1e5) == (stride == 4), "the loss is most of this step"


def test_a_network_without_a_task_gets_one_of_pixels(tmp_path: Path) -> None:
    kit = compile(adapt(dense(), LastLayer()), tmp_path / "kit", batch=2, size=SIZE)
    assert isinstance(kit.manifest.task, Segmentation)
    assert kit.manifest.classes == numbered(CLASSES)


@pytest.mark.parametrize("frozen_bits", [8, 32])
def test_a_frozen_part_runs_image_by_image(frozen_bits: int, tmp_path: Path) -> None:
    """Although its maps have as many elements as the images, in this case 4/3 of them."""
    network = dense(channels=8)
    network.requires_grad_(False)
    network.classifier.requires_grad_(True)
    network.join.requires_grad_(True)
    kit = compile(
        network,
        tmp_path / "kit",
        batch=2,
        size=SIZE,
        frozen_bits=frozen_bits,
    )
    assert kit.manifest.features is not None
    assert (kit.manifest.quantization is not None) == (frozen_bits == 8)


@pytest.fixture(scope="module", params=["pointwise", "3x3", "two layers"])
def network(request: pytest.FixtureRequest) -> nn.Module:
    """Classifiers of every kind, on small maps, where others work on rows."""

    class Head(nn.Module):
        def __init__(self, kind: str) -> None:
            super().__init__()
            self.body = nn.Conv2d(3, 5, 3, stride=4)
            taps = 3 if kind == "3x3" else 1
            self.low = nn.Conv2d(5, CLASSES, taps, padding=taps // 2)
            self.high = nn.Conv2d(5, CLASSES, 1) if kind == "two layers" else None

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.body(x))
            low: Tensor = self.low(x)
            if self.high is None:
                return low
            pooled = F.adaptive_avg_pool2d(x, 2)
            return low + F.interpolate(
                self.high(pooled), low.shape[2:], mode="bilinear", align_corners=False
            )

    torch.manual_seed(0)
    return Head(request.param)


@pytest.fixture(scope="module")
def kit(network: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Kit:
    return compile(network, tmp_path_factory.mktemp("kit") / "kit", batch=2, size=32)


def test_both_engines_agree_for_other_classes(network: nn.Module, kit: Kit) -> None:
    """The kit has three classes; the photos have two or seven, with weights of their own."""
    rng = np.random.default_rng(0)
    assert len(kit.manifest.task.head) == 2 * (1 + (network.high is not None))
    for classes in (2, 7):
        state = kit.manifest.task.new_head(kit.state(), classes, rng)
        other = copy.deepcopy(network)
        for name, value in state.items():
            module, _, parameter = name.rpartition(".")
            tensor = nn.Parameter(torch.from_numpy(value.copy()))
            setattr(other.get_submodule(module), parameter, tensor)
        engines = (
            OnnxEngine(kit, state),
            TorchEngine(other, batch=2, size=32, task=kit.manifest.task),
        )
        images = rng.integers(0, 256, (2, 32, 32, 3), np.uint8)
        labels = rng.integers(0, classes, (2, 32, 32), np.uint8)
        weights = rng.uniform(0.5, 2, classes).astype(np.float32)
        results = []
        for engine in engines:
            assert engine.inputs["class_weights"].tolist() == [1.0] * classes
            before = engine.gradients(images, labels, rng).loss
            np.copyto(engine.inputs["class_weights"], weights)
            results.append(engine.gradients(images, labels, rng))
            assert results[-1].loss != before
        one, two = results
        assert one.loss == pytest.approx(two.loss, rel=1e-5)
        assert one.metrics == two.metrics
        assert one.metrics["pixels"] == labels.size
        for name, gradient in one.values.items():
            np.testing.assert_allclose(gradient, two.values[name], rtol=1e-3, atol=1e-5)
        first, second = (engine.predict(images) for engine in engines)
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)
        assert first.shape == (2, classes, 8, 8)


@pytest.mark.parametrize("network", ["deeplabv3", "mobilenet_v2"])
def test_a_kit_by_name_needs_a_task_that_fits(network: str, tmp_path: Path) -> None:
    other = "classification" if network == "deeplabv3" else "segmentation"
    with pytest.raises(PocketuneError, match=f"the task {other} does not: give photos with other"):
        build_kit(tmp_path / "kit", network=network, method=LastLayer(), task=other)


def test_a_kit_by_name_needs_a_known_normalization(tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match="normalization='z' must be one of imagenet, half, un"):
        build_kit(tmp_path / "kit", network="fcn", method=LastLayer(), normalization="z")


def test_a_task_of_images_does_not_fit(network: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match=r"where classification needs \(2, 3\)"):
        compile(network, tmp_path / "kit", batch=2, size=32, task=Classification(numbered(CLASSES)))


def test_a_classifier_without_a_bias_is_refused(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.Conv2d(4, 3, 1, bias=False))
    with pytest.raises(PocketuneError, match="output layer 1 must be linear with a bias"):
        compile(network, tmp_path / "kit", batch=2, size=32)
