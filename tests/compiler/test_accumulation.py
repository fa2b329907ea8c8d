"""Several batches to one step: the update of one large batch, on real kits."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load_file

from pocketune.compiler import compile, micro_batch
from pocketune.device.engine.accumulate import AccumulatingEngine
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.memory.estimate import estimate_memory
from pocketune.device.train import resume, train
from pocketune.device.train.interrupt import Interrupted
from pocketune.device.train.progress import Silent, StepReport
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.kit.names import BEST
from pocketune.methods import FullFineTune, TinyTL, adapt
from pocketune.tasks import Classification

from .networks import CLASSES, SIZE, tiny

NAMES = tuple("abc")
TASK = Classification(NAMES)
RELATIVE = 1e-5


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Kit]:
    """The same network for batches of 1, 2 and 4 images."""
    folder, network = tmp_path_factory.mktemp("kits"), adapt(tiny(channels=8), TinyTL())
    return {
        batch: compile(network, folder / str(batch), batch=batch, size=SIZE, task=TASK)
        for batch in (1, 2, 4)
    }


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for label, name in enumerate(NAMES):
        for index in range(8):
            pixels = rng.normal(60 + 60 * label, 40, (20, 20, 3)).clip(0, 255).astype(np.uint8)
            (folder / name).mkdir(exist_ok=True)
            Image.fromarray(pixels).save(folder / name / f"{index}.png")
    return folder


def assert_same(ours: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert ours.keys() == expected.keys()
    for name, values in expected.items():
        largest = max(np.abs(values).max(), 1e-3)
        np.testing.assert_allclose(ours[name], values, rtol=0, atol=RELATIVE * largest)


@pytest.mark.parametrize("batch", [1, 2])
def test_gradients_are_those_of_the_whole_batch(kits: dict[int, Kit], batch: int) -> None:
    whole = OnnxEngine(kits[4], kits[4].state())
    parts = AccumulatingEngine(OnnxEngine(kits[batch], kits[batch].state()), batch, TASK)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (4, SIZE, SIZE, 3), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, 4)
    expected = whole.gradients(images, labels, np.random.default_rng(0))
    found = parts.gradients(images, labels, np.random.default_rng(0))
    assert found.loss == pytest.approx(expected.loss, rel=RELATIVE)
    assert found.metrics == expected.metrics
    assert_same(found.values, expected.values)
    assert parts.predict(images).shape == (4, CLASSES)
    assert_same(parts.state(), whole.state())


def run(kit: Kit, photos: Path, out: Path, **options: Any) -> dict[str, np.ndarray]:
    how = {"epochs": 2, "optimizer": "sgd", "lr": 0.05, "progress": Silent(), **options}
    train(kit, photos, out=out, **how)
    return load_file(out / BEST)


def test_a_run_of_small_batches_ends_as_one_of_large_batches(
    kits: dict[int, Kit], photos: Path, tmp_path: Path
) -> None:
    large = run(kits[4], photos, tmp_path / "large")
    small = run(kits[1], photos, tmp_path / "small", accumulate=4)
    assert_same(small, large)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_run_of_micro_batches_ends_as_one_of_whole_batches(
    kits: dict[int, Kit],
    photos: Path,
    tmp_path: Path,
    accumulate: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(micro_batch, "MOST_LIVE_BYTES", 1 << 14)
    network = adapt(tiny(channels=8), TinyTL())
    kit = compile(network, tmp_path / "kit", batch=4, size=SIZE, task=TASK)
    assert kit.manifest.micro_batch < 4
    whole = run(kits[4], photos, tmp_path / "whole", accumulate=accumulate)
    parts = run(kit, photos, tmp_path / "parts", accumulate=accumulate)
    assert_same(parts, whole)


class Stop(Silent):
    """The user's Ctrl-C after the third step."""

    def step(self, report: StepReport) -> None:
        if report.step == 3:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_run_that_was_stopped_accumulates_on(
    kits: dict[int, Kit], photos: Path, tmp_path: Path
) -> None:
    whole = run(kits[2], photos, tmp_path / "whole", accumulate=2)
    with pytest.raises(Interrupted):
        run(kits[2], photos, tmp_path / "part", accumulate=2, progress=Stop())
    resume(tmp_path / "part", progress=Silent())
    part = load_file(tmp_path / "part" / BEST)
    assert all(np.array_equal(part[name], values) for name, values in whole.items())


def test_norms_on_batch_statistics_are_refused(photos: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    kit = compile(adapt(tiny(), FullFineTune()), tmp_path / "kit", batch=2, size=SIZE)
    with pytest.raises(PocketuneError, match=r"accumulate=2 .* statistics"):
        train(kit, photos, out=tmp_path / "run", accumulate=2, progress=Silent())
    assert not (tmp_path / "run").exists()


def test_prediction_counts_the_sum_of_the_gradients(kits: dict[int, Kit]) -> None:
    options = {"process": 0, "classes": CLASSES, "slots": 2}
    one = estimate_memory(kits[1].manifest, **options)
    four = estimate_memory(kits[1].manifest, **options, accumulate=4)
    trained = sum(values.nbytes for values in kits[1].state().values())
    assert four.parameters - one.parameters == trained
    assert four.photos > one.photos
    assert four.activations == one.activations
