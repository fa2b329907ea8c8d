"""Micro-batches: which steps get them, and that they compute the step of the whole batch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn.functional import cross_entropy

from pocketune.compiler import compile, micro_batch
from pocketune.compiler.draft import draft
from pocketune.compiler.reference import smooth_images
from pocketune.compiler.settings import CompileSettings
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import Manifest
from pocketune.methods import FullFineTune, LastLayer, TinyTL, adapt
from pocketune.networks import normalize
from pocketune.tasks import Segmentation

from ..device.tiny_kit import TinyKit
from .dense_networks import dense
from .networks import CLASSES, SIZE, TASK, tiny

BATCH = 8


@pytest.fixture
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of any step here are large."""
    monkeypatch.setattr(micro_batch, "MOST_LIVE_BYTES", 1 << 14)


def sized(memory: int, batch: int = BATCH, *, statistic: bool = False) -> Manifest:
    made = TinyKit(batch=batch, statistic=statistic).manifest()
    step = replace(made.graphs["step"], memory=memory)
    return replace(made, graphs={**made.graphs, "step": step})


@pytest.mark.parametrize(
    ("memory", "batch", "images"),
    [
        (1, 8, 8),
        (micro_batch.MOST_LIVE_BYTES, 8, 8),
        (micro_batch.MOST_LIVE_BYTES + 1, 8, 4),
        (2 * micro_batch.MOST_LIVE_BYTES, 6, 3),
        (3 * micro_batch.MOST_LIVE_BYTES, 8, 2),
        (100 * micro_batch.MOST_LIVE_BYTES, 8, 1),
        (2 * micro_batch.MOST_LIVE_BYTES, 7, 1),
        (100 * micro_batch.MOST_LIVE_BYTES, 1, 1),
    ],
)
def test_it_is_the_largest_part_whose_tensors_are_small(
    memory: int, batch: int, images: int
) -> None:
    assert micro_batch.micro_batch(sized(memory, batch)) == images


def test_norms_that_need_the_whole_batch_have_it() -> None:
    assert micro_batch.micro_batch(sized(1 << 40, statistic=True)) == BATCH


@pytest.mark.usefixtures("small_caches")
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_step_in_parts_is_that_of_the_whole_batch(tmp_path: Path, dropout: float) -> None:
    network = adapt(tiny(channels=8, dropout=dropout), TinyTL())
    kit = compile(network, tmp_path / "kit", batch=BATCH, size=SIZE, task=TASK)
    assert 1 <= kit.manifest.micro_batch < kit.manifest.batch == BATCH
    assert Kit.open(tmp_path / "kit").manifest == kit.manifest
    engine = OnnxEngine(kit, kit.state())
    rng = np.random.default_rng(0)
    images, labels = smooth_images(rng, BATCH, SIZE), rng.integers(0, CLASSES, BATCH)
    found = engine.gradients(images, labels, np.random.default_rng(0))
    if dropout:  # of other images in each part
        assert np.isfinite(found.loss)
        return
    trained = {name: p for name, p in network.named_parameters() if p.requires_grad}
    loss = cross_entropy(network.train()(normalize(network, images)), torch.from_numpy(labels))
    assert found.loss == pytest.approx(loss.item(), rel=1e-5)
    expected = torch.autograd.grad(loss, [*trained.values()])
    for name, gradient in zip(trained, expected, strict=True):
        largest = gradient.abs().max().item()
        np.testing.assert_allclose(found.values[name], gradient.numpy(), atol=1e-4 * largest + 1e-6)


@pytest.mark.usefixtures("small_caches")
def test_a_draft_tells_it(tmp_path: Path) -> None:
    network = adapt(tiny(channels=8), TinyTL())
    made = draft(network, batch=BATCH, size=SIZE, task=TASK)
    kit = compile(network, tmp_path / "kit", batch=BATCH, size=SIZE, task=TASK)
    assert (made.batch, made.micro_batch) == (BATCH, kit.manifest.micro_batch)
    assert made.graphs == kit.manifest.graphs


class Centered(torch.autograd.Function):
    """Takes the mean over the images off the gradient."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        """The same."""
        return x.clone()

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> Tensor:
        """Its gradient."""
        return gradient - gradient.mean(0, keepdim=True)


class Mixed(nn.Module):
    """In training, each image is compared with the mean of its batch, or its gradient is."""

    def __init__(self, *, backward: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.classifier = nn.Linear(8, CLASSES)
        self.backward = backward

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, CLASSES)."""
        x = torch.relu(self.stem(x)).mean((2, 3))
        if self.training:
            x = Centered.apply(x) if self.backward else x - x.mean(0, keepdim=True)
        logits: Tensor = self.classifier(x)
        return logits


@pytest.mark.usefixtures("small_caches")
@pytest.mark.parametrize(
    "network",
    [
        pytest.param(Mixed(backward=False), id="forward"),
        pytest.param(Mixed(backward=True), id="backward"),
        pytest.param(tiny(channels=8), id="statistics"),
    ],
)
def test_a_network_that_mixes_images_has_them_at_once(network: nn.Module) -> None:
    made = draft(adapt(network, FullFineTune()), batch=BATCH, size=SIZE)
    assert made.micro_batch == BATCH


def test_labels_of_masks_weigh_as_in_the_whole_batch() -> None:
    network = dense()
    adapted = adapt(network, LastLayer())
    task = Segmentation(("a", "b", "c"))
    made = draft(adapted, batch=2, size=SIZE, task=task)
    settings = CompileSettings(2, SIZE, made.task)
    assert micro_batch.images_are_independent(adapted, settings)
