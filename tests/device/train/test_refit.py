"""The classifier that is computed again from the trained features."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketune.data import Loader
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.head import Head, fit_head
from pocketune.device.train import loop, train
from pocketune.device.train.checkpoint import Checkpoint, TrainedNetwork
from pocketune.device.train.interrupt import Interrupted
from pocketune.device.train.progress import Silent
from pocketune.device.train.record import RunRecord
from pocketune.device.train.run import TrainResult, resume
from pocketune.kit.names import BEST, EMBEDDINGS, LAST
from pocketune.tasks import Classification

from ..failing import failing, interrupt
from ..runs import assert_same_end, lines, make_settings
from ..softmax_engine import SoftmaxEngine, write_photos, write_softmax_kit
from ..tiny_kit import TinyKit

OTHERS = ("cyan", "pink", "rose")
WEIGHT, BIAS = "fc.weight", "fc.bias"


def run(folder: Path, out: str = "run", **changes: Any) -> TrainResult:
    """A run of a kit with a trained value beside the classifier."""
    kit = folder / "kit"
    if not kit.exists():
        TinyKit().write(kit)
        write_photos(folder / "photos", classes=OTHERS)
    arguments = {"engine": OnnxEngine, "progress": Silent(), "seconds": np.inf}
    own = {name: changes.pop(name, value) for name, value in arguments.items()}
    return train(kit, folder / "photos", folder / out, make_settings(**changes), **own)


def given(factor: float) -> Any:
    """A refit that gives the same classifier as the engine has, times a factor."""

    def refit(_: Any, engine: OnnxEngine, __: Any) -> Head:
        weight, bias = (factor * engine.parameters[name] for name in (WEIGHT, BIAS))
        return Head(weight, bias, "LDA", 1.0, None)

    return refit


@pytest.mark.parametrize("cache", ["off", "disk"])
def test_it_is_the_closed_form_for_the_features_of_the_last_step(
    cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[tuple[Head | None, Head | None]] = []
    original = loop.refit

    def checked(run: Any, engine: OnnxEngine, show: Any) -> Head | None:
        sample = run.photos.sample
        plain = Loader(sample.dataset, size=sample.size, batch=sample.batch, train=False)
        blocks = [(engine.embed(b.images), b.labels) for b in plain.epoch(0)]
        found = original(run, engine, show)
        heads.append((found, fit_head(lambda: iter(blocks), run.photos.task)))
        return found

    monkeypatch.setattr(loop, "refit", checked)
    result = run(tmp_path, cache=cache)
    ((found, expected),) = heads
    assert found is not None and expected is not None
    np.testing.assert_allclose(found.weight, expected.weight, rtol=1e-4, atol=1e-5)
    (line,) = lines(result.run, "refit")
    assert (line["head"], line["step"]) == (found.name, result.steps)
    assert not (result.run / EMBEDDINGS).exists()


def test_the_better_one_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "refit", given(3.0))
    monkeypatch.setattr(Classification, "is_better", lambda *_: True)
    result = run(tmp_path, "better")
    best, last = TrainedNetwork.load(result.run / BEST), Checkpoint.load(result.run / LAST)
    np.testing.assert_array_equal(best.state[WEIGHT], last.parameters[WEIGHT])
    (line,) = lines(result.run, "refit")
    assert line["best"]
    assert result.best is not None and result.best_step == result.steps
    assert line["validation_accuracy"] == result.best.value
    assert RunRecord.read(result.run).refitted == line["head"]

    monkeypatch.setattr(loop, "is_refitted", lambda _: False)
    plain = Checkpoint.load(run(tmp_path, "plain").run / LAST)
    np.testing.assert_array_equal(last.parameters[WEIGHT], 3 * plain.parameters[WEIGHT])

    monkeypatch.setattr(loop, "is_refitted", lambda _: True)
    monkeypatch.setattr(Classification, "is_better", lambda *_: False)
    worse = run(tmp_path, "worse")
    kept = Checkpoint.load(worse.run / LAST)
    np.testing.assert_array_equal(kept.parameters[WEIGHT], plain.parameters[WEIGHT])
    assert worse.best_step == 0
    assert not lines(worse.run, "refit")[0]["best"]
    assert RunRecord.read(worse.run).refitted is None


def test_its_bias_is_adjusted_like_that_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is saved is the classifier itself, from whose bias the adjustment is taken away."""
    bias = np.array([1, 2, 3], np.float32)

    def refit(_: Any, engine: OnnxEngine, __: Any) -> Head:
        return Head(engine.parameters[WEIGHT].copy(), bias, "LDA", 1.0, None)

    monkeypatch.setattr(loop, "refit", refit)
    monkeypatch.setattr(Classification, "is_better", lambda *_: True)
    write_photos(tmp_path / "photos", classes=OTHERS)
    for photo in sorted((tmp_path / "photos" / OTHERS[0]).iterdir())[4:]:
        photo.unlink()
    TinyKit().write(tmp_path / "kit")
    result = run(tmp_path, balance=1.0)
    trained = Checkpoint.load(result.run / LAST).parameters[BIAS]
    assert not np.allclose(trained, bias, atol=0.1)
    best = TrainedNetwork.load(result.run / BEST)
    np.testing.assert_allclose(best.state[BIAS], bias, atol=1e-5)


@pytest.mark.parametrize(
    "changes", [{"val_fraction": 0.0}, {"head_start": "random"}, {"seconds": 1e-9}]
)
def test_runs_without_it(changes: dict[str, Any], tmp_path: Path) -> None:
    assert not lines(run(tmp_path, **changes).run, "refit")


def test_fixed_features_need_no_second_computation(tmp_path: Path) -> None:
    kit = write_softmax_kit(tmp_path / "kit").path
    photos = write_photos(tmp_path / "photos", classes=OTHERS)
    result = train(kit, photos, tmp_path / "run", engine=SoftmaxEngine, progress=Silent(), epochs=1)
    assert result.head != "random"
    assert not lines(result.run, "refit")


def test_a_run_that_stopped_in_its_last_epoch_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = run(tmp_path, "whole")
    with pytest.raises(Interrupted):
        run(tmp_path, engine=failing("gradients", whole.steps, interrupt, OnnxEngine))
    resume(tmp_path / "run", progress=Silent())
    assert_same_end(tmp_path / "run", whole.run)
