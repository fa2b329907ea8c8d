"""Whole runs on the numpy engine: the files they write, how long they are, what they show."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pocketune.arrays import FloatArray
from pocketune.device.train import loop as loop_module
from pocketune.device.train.checkpoint import Checkpoint, TrainedNetwork
from pocketune.device.train.interrupt import Interrupted
from pocketune.device.train.record import RunRecord
from pocketune.device.train.run import resume
from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.kit.names import BEST, LAST, METRICS, RESULT
from pocketune.tasks import Score

from ..failing import failing, interrupt
from ..runs import lines
from ..softmax_engine import BATCH, CLASSES, SoftmaxEngine
from .examples import PER_EPOCH, Collector, Run


def test_learns_and_leaves_a_run_folder(run: Run, tmp_path: Path) -> None:
    result = run(epochs=5)
    assert result.run == tmp_path / "run"
    assert result.classes == CLASSES
    assert (result.steps, result.reason) == (5 * PER_EPOCH, "steps")
    assert result.best is not None and result.best.value == 1.0
    assert result.peak_memory > 10_000_000
    assert result.skipped == ()
    assert {entry.name for entry in result.run.iterdir()} == {
        "known.safetensors",
        "manifest.json",
        "step.onnx",
        "predict.onnx",
        "parameters.safetensors",
        LAST,
        BEST,
        METRICS,
        RESULT,
    }
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


def test_a_run_without_a_folder_of_its_own_is_named_after_the_photos(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert [run(out=None, steps=1, epochs=None).run for _ in range(2)] == [
        Path("runs/photos"),
        Path("runs/photos-2"),
    ]


def test_settings_and_options_go_together(run: Run) -> None:
    settings = TrainSettings(seed=5, clip=0.5)
    result = run(settings=settings, steps=np.int64(2), epochs=None)
    stored = Checkpoint.load(result.run / LAST).settings
    assert (stored.seed, stored.clip, stored.steps, stored.lr) == (5, 0.5, 2, 0.05)


def test_an_option_that_does_not_exist(run: Run) -> None:
    with pytest.raises(TypeError, match=r"unknown option 'learning_rate': the options are .*lr, "):
        run(learning_rate=0.1)


def test_metrics_hold_everything_once(run: Run) -> None:
    folder = run(epochs=2, warmup=3).run
    steps, epochs, ends = (lines(folder, kind) for kind in ("step", "epoch", "end"))
    assert len(lines(folder)) == 1 + 2 * PER_EPOCH + 2 + 1
    assert [line["step"] for line in steps] == list(range(1, 13))
    assert [line["epoch"] for line in steps] == [1] * 6 + [2] * 6
    assert [(line["epoch"], line["step"]) for line in epochs] == [(1, 6), (2, 12)]
    assert steps[0]["lr"] == pytest.approx(0.05 / 3)
    assert all(line["memory"] > 10_000_000 and line["gradient_norm"] > 0 for line in steps)
    losses = [line["loss"] for line in steps]
    assert epochs[0]["loss"] == pytest.approx(sum(losses[:6]) / 6)
    accuracies = [line["accuracy"] for line in steps]
    assert epochs[1]["accuracy"] == pytest.approx(sum(accuracies[6:]) / 6)
    assert ends[0]["reason"] == "steps"


def test_best_is_the_epoch_with_the_best_validation(run: Run) -> None:
    result = run(epochs=6, lr=0.3)
    epochs = lines(result.run, "epoch")
    best = max(epochs, key=lambda e: (e["validation_accuracy"], -e["validation_loss"]))
    trained = TrainedNetwork.load(result.run / BEST)
    assert trained.step == result.best_step == best["step"]
    assert trained.score == result.best
    assert result.best.to_dict("validation_").items() <= best.items()
    assert trained.classes == CLASSES
    assert trained.kit == Kit.open(result.run).identity
    assert trained.state.keys() == {"fc.weight", "fc.bias", "mean"}
    assert [e["best"] for e in epochs][epochs.index(best)]


def test_the_same_seed_gives_the_same_run_and_another_does_not(run: Run, tmp_path: Path) -> None:
    results = [run(out=tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    first, second, third = (TrainedNetwork.load(r.run / BEST).state for r in results)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(first["fc.weight"], third["fc.weight"])


def test_steps_may_end_within_an_epoch(run: Run) -> None:
    result = run(epochs=None, steps=8)
    assert result.steps == 8
    epochs = lines(result.run, "epoch")
    assert [line["step"] for line in epochs] == [6, 8]
    losses = [line["loss"] for line in lines(result.run, "step")]
    assert epochs[1]["loss"] == pytest.approx((losses[6] + losses[7]) / 2)


def test_patience(run: Run) -> None:
    worse = iter(range(100))

    class Worsening(SoftmaxEngine):
        def predict(self, images: np.ndarray) -> FloatArray:
            logits = super().predict(images)
            logits[:, 0] += np.float32(5 * next(worse))
            return logits

    result = run(epochs=50, patience=2, engine=Worsening, lr=1e-4)
    assert result.reason == "patience"
    assert lines(result.run, "end")[0]["reason"] == "patience"
    epochs = lines(result.run, "epoch")
    assert [line["best"] for line in epochs[-3:]] == [True, False, False]
    assert result.best_step == epochs[-3]["step"]


def test_patience_does_not_count_from_the_start(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([0.9, 0.1, 0.2, 0.1, 0.3, 0.1, 0.1, 0.1])
    score = partial(Score, "accuracy", loss=1.0)
    monkeypatch.setattr(loop_module, "validate", lambda *_: score(next(values)))
    result = run(epochs=50, patience=2)
    assert result.reason == "patience"
    assert [line["best"] for line in lines(result.run, "epoch")] == [False] * 6
    assert (result.best_step, result.best) == (0, score(0.9))


def test_no_step_begins_after_the_limit_of_time(run: Run) -> None:
    result = run(epochs=50, seconds=1e-9)
    assert (result.reason, result.steps) == ("time", 0)
    assert RunRecord.read(result.run).reason == lines(result.run, "end")[0]["reason"] == "time"
    with pytest.raises(PocketuneError, match="is complete after 0 steps:"):
        resume(result.run)


def test_without_validation_the_last_is_the_best(run: Run) -> None:
    result = run(val_fraction=0.0)
    assert result.best is None
    trained = TrainedNetwork.load(result.run / BEST)
    last = Checkpoint.load(result.run / LAST)
    assert trained.step == result.steps
    np.testing.assert_array_equal(trained.state["fc.weight"], last.parameters["fc.weight"])
    assert lines(result.run, "epoch")[0]["validation_loss"] is None


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_clipping_and_decay_change_the_run(optimizer: str, run: Run, tmp_path: Path) -> None:
    states = []
    for number, changes in enumerate(({}, {"weight_decay": 0.5}, {"clip": 1e-3})):
        result = run(out=tmp_path / str(number), optimizer=optimizer, epochs=1, **changes)
        states.append(Checkpoint.load(result.run / LAST).parameters["fc.weight"])
    assert not np.array_equal(states[0], states[1])
    assert not np.array_equal(states[0], states[2])


def test_rates_length_and_patience_that_are_left_out(run: Run, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run(lr=None, epochs=None, optimizer="sgd", engine=failing("gradients", 1, interrupt))
    settings = Checkpoint.load(tmp_path / "run" / LAST).settings
    assert settings == TrainSettings(optimizer="sgd", head_start="random", cache="off").resolved(
        images=BATCH, steps_per_epoch=PER_EPOCH, validation=6, photos=24
    )


def test_progress_is_shown(run: Run) -> None:
    told = Collector()
    run(epochs=2, progress=told, budget="50GB")
    assert [(r.step, r.steps, r.epoch, r.epochs) for r in told.steps][5:7] == [
        (6, 12, 1, 2),
        (7, 12, 2, 2),
    ]
    last = told.steps[-1]
    assert last.seconds_left == 0.0
    assert last.rate > 0
    assert last.budget == 50 * 10**9
    assert 0 <= last.training.value <= 1
    assert [r.epoch for r in told.epochs] == [1, 2]
    assert told.closed


def test_prints_to_standard_output_by_default(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(epochs=1, progress=None)
    seen, *told = capsys.readouterr().out.splitlines()
    assert seen == "photos  3 classes (blue, green, red), 24 to train, 6 to validate"
    assert told[0].startswith("cache  off: no features are frozen, ")
    assert told[1].startswith("start  classifier of the kit or run, unchanged  validation loss ")
