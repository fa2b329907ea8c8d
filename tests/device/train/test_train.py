"""Whole runs on the numpy engine: the files they write, when they stop, what they refuse."""

import errno
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pocketune.arrays import FloatArray
from pocketune.device.engine.base import Gradients
from pocketune.device.memory.budget import BudgetExceeded
from pocketune.device.memory.process import ProcessMemory
from pocketune.device.train import loop as loop_module
from pocketune.device.train import run as run_module
from pocketune.device.train.checkpoint import Checkpoint, TrainedNetwork
from pocketune.device.train.interrupt import Interrupted
from pocketune.device.train.loop import Diverged
from pocketune.device.train.progress import EpochReport, Silent, StepReport
from pocketune.device.train.record import RunRecord
from pocketune.device.train.run import TrainResult, resume, train
from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.kit.bundled import bundled_kit
from pocketune.kit.kit import Kit
from pocketune.kit.names import BEST, LAST, METRICS, RESULT
from pocketune.tasks import Score

from ..failing import failing, interrupt
from ..runs import assert_same_end, lines
from ..softmax_engine import BATCH, CLASSES, SoftmaxEngine, write_photos, write_softmax_kit

# 10 photos a class, 2 of them to validate: 24 to train on, 6 batches of 4
PER_EPOCH = 6


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_softmax_kit(tmp_path_factory.mktemp("kits") / "kit").path


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("data") / "photos")


Run = Callable[..., TrainResult]


@pytest.fixture
def run(kit: Path, photos: Path, tmp_path: Path) -> Run:
    """``train`` with everything given that a test does not care about."""

    def call(**changes: Any) -> TrainResult:
        arguments: dict[str, Any] = {
            "kit": kit,
            "photos": photos,
            "out": tmp_path / "run",
            "epochs": 3,
            "lr": 0.05,
            "head_start": "random",
            "engine": SoftmaxEngine,
            "progress": Silent(),
        }
        return train(**{**arguments, **changes})

    return call


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
        images=BATCH, steps_per_epoch=PER_EPOCH, validation=6
    )


class Collector(Silent):
    def __init__(self) -> None:
        self.steps: list[StepReport] = []
        self.epochs: list[EpochReport] = []
        self.closed = False

    def step(self, report: StepReport) -> None:
        self.steps.append(report)

    def epoch(self, report: EpochReport) -> None:
        self.epochs.append(report)

    def close(self) -> None:
        self.closed = True


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
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("cache  off: no features are frozen, ")
    assert told[1].startswith("start  classifier kept  validation loss ")


# --- classes ---------------------------------------------------------------------------------


def test_other_classes_get_a_new_classifier(run: Run, tmp_path: Path) -> None:
    other = write_photos(tmp_path / "photos", classes=("cyan", "pink"))
    start: dict[str, Mapping[str, FloatArray]] = {}

    def spying(kit: Kit, state: Mapping[str, FloatArray]) -> SoftmaxEngine:
        start["state"] = state
        return SoftmaxEngine(kit, state)

    result = run(photos=other, engine=spying, epochs=1)
    assert result.classes == ("cyan", "pink")
    weight, bias = start["state"]["fc.weight"], start["state"]["fc.bias"]
    assert weight.shape == (2, 48)
    assert np.abs(weight).max() <= 1 / math.sqrt(48)
    assert weight.std() == pytest.approx(1 / math.sqrt(48 * 3), rel=0.2)
    np.testing.assert_array_equal(bias, [0, 0])
    assert TrainedNetwork.load(result.run / BEST).state["fc.weight"].shape == (2, 48)


def test_the_kits_classes_keep_their_order_and_classifier(
    run: Run, photos: Path, tmp_path: Path
) -> None:
    kit = write_softmax_kit(tmp_path / "kit", classes=("red", "blue", "green"))
    start: dict[str, FloatArray] = {}

    def spying(kit: Kit, state: Mapping[str, FloatArray]) -> SoftmaxEngine:
        start.update(state)
        return SoftmaxEngine(kit, state)

    result = run(kit=kit, engine=spying, epochs=5)
    assert result.classes == ("red", "blue", "green")
    np.testing.assert_array_equal(start["fc.weight"], kit.state()["fc.weight"])
    assert result.best is not None and result.best.value == 1.0


def test_a_run_as_a_kit_is_trained_on(run: Run, tmp_path: Path) -> None:
    trained = TrainedNetwork.load(run().run / BEST).state
    starts: list[Mapping[str, FloatArray]] = []

    def spying(kit: Kit, state: Mapping[str, FloatArray]) -> SoftmaxEngine:
        starts.append(state)
        return SoftmaxEngine(kit, state)

    run(kit=tmp_path / "run", out=tmp_path / "same", engine=spying, epochs=1)
    other = write_photos(tmp_path / "photos", classes=("cyan", "pink"))
    run(kit=tmp_path / "run", photos=other, out=tmp_path / "other", engine=spying, epochs=1)
    np.testing.assert_array_equal(starts[0]["fc.weight"], trained["fc.weight"])
    np.testing.assert_array_equal(starts[1]["mean"], trained["mean"])
    assert starts[1]["fc.weight"].shape == (2, 48)


# --- data ------------------------------------------------------------------------------------


def test_a_batch_larger_than_the_data_has_photos_again(run: Run, tmp_path: Path) -> None:
    kit = write_softmax_kit(tmp_path / "kit", batch=64)
    assert run(kit=kit, epochs=3).steps == 3


def test_test_photos_are_held_out(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path / "photos" / "train")
    write_photos(tmp_path / "photos" / "test", each=3)
    seen = run(photos=tmp_path / "photos", epochs=1, out=tmp_path / "seen")
    held_out = run(photos=tmp_path / "photos", epochs=1, hold_out_test=True)
    sizes = [RunRecord.read(result.run).photos for result in (seen, held_out)]
    assert [(each.training, each.validation) for each in sizes] == [(30, 9), (24, 6)]


def test_unreadable_files_are_listed(run: Run, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos")
    (photos / "red" / "notes.png").write_text("not an image")
    whole = (photos / "red" / "0.png").read_bytes()
    (photos / "red" / "0.png").write_bytes(whole[: len(whole) // 2])
    result = run(photos=photos)
    assert {skipped.name for skipped in result.skipped} == {"red/notes.png", "red/0.png"}


def test_side_lr_without_side_branches_leaves_no_run(run: Run, tmp_path: Path) -> None:
    with pytest.raises(
        PocketuneError, match=r"side_lr=0\.1 has no effect: .* trains no side branches"
    ):
        run(out=tmp_path / "side", side_lr=0.1)
    assert not (tmp_path / "side").exists()


def test_bias_lr_without_biases_leaves_no_run(run: Run, tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match=r"bias_lr=0\.1 has no effect: .* trains no bias"):
        run(kit=bundled_kit("last"), out=tmp_path / "bias", bias_lr=0.1)
    assert not (tmp_path / "bias").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": 0.5}, r"momentum=0\.5 has no effect with adam"),
        ({"patience": 1, "val_fraction": 0.0}, "patience=1 needs validation photos"),
    ],
)
def test_what_is_of_no_use_is_refused(
    options: dict[str, Any], message: str, run: Run, tmp_path: Path
) -> None:
    with pytest.raises(PocketuneError, match=message):
        run(out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_missing_folder_leaves_no_run(run: Run, tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match="does not exist"):
        run(photos=tmp_path / "nowhere")
    assert not (tmp_path / "run").exists()


# --- the run folder --------------------------------------------------------------------------


def test_a_finished_run_is_not_overwritten(run: Run) -> None:
    run(epochs=1)
    with pytest.raises(
        PocketuneError, match="already contains a run: resume it, or choose another"
    ):
        run(epochs=1)


def test_a_folder_with_other_things_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "diary.txt").write_text("dear")
    with pytest.raises(PocketuneError, match="run is not empty: choose a new folder"):
        run()
    assert [entry.name for entry in (tmp_path / "run").iterdir()] == ["diary.txt"]


def test_a_kit_is_not_turned_into_a_run(run: Run, tmp_path: Path) -> None:
    kit = write_softmax_kit(tmp_path / "kit")
    with pytest.raises(PocketuneError, match="kit is not empty"):
        run(kit=kit, out=tmp_path / "kit")


def test_a_file_is_not_a_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(PocketuneError, match="run is a file: choose a folder"):
        run()


def test_a_folder_that_cannot_be_made(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PocketuneError, match=r"the run folder .* cannot be read: Not a directory"):
        run(out=tmp_path / "file" / "run")


def test_an_empty_folder_and_what_a_killed_start_left_are_taken(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / METRICS).write_text('{"kind": "step"}\n')
    for name in (".step.onnx.partial", ".last.safetensors.partial", "parameters.safetensors"):
        (tmp_path / "run" / name).write_text("half")
    result = run(epochs=1)
    assert lines(result.run, "step")[0]["step"] == 1


def test_a_zipped_kit(run: Run, tmp_path: Path) -> None:
    kit = write_softmax_kit(tmp_path / "kit.zip")
    assert run(kit=kit.path, epochs=1).steps == PER_EPOCH


# --- stopping --------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_saves_and_says_how_to_go_on(
    number: signal.Signals, run: Run, tmp_path: Path
) -> None:
    def stop(result: Gradients) -> Gradients:
        signal.raise_signal(number)
        return result

    before = signal.default_int_handler
    usual = signal.signal(number, before)  # nohup ignores SIGHUP, some shells SIGINT
    told = Collector()
    try:
        with pytest.raises(Interrupted) as caught:
            run(engine=failing("gradients", 5, stop), progress=told)
    finally:
        after = signal.signal(number, usual)
    folder = tmp_path / "run"
    assert str(caught.value) == (
        f"stopped and saved at step 5 of 18; resume with: pocketune.resume({str(folder)!r})"
    )
    assert caught.value.run == str(folder)
    assert Checkpoint.load(folder / LAST).counters.step == 5
    assert after == before
    assert told.closed
    assert resume(folder, engine=SoftmaxEngine, progress=Silent()).steps == 18


def test_nohup(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang_up(result: Gradients) -> Gradients:
        signal.raise_signal(signal.SIGHUP)
        return result

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run(engine=failing("gradients", 5, hang_up)).steps == 18
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("call", "step"), [(1, 0), (5, 12)])
def test_ctrl_c_while_validating(call: int, step: int, run: Run, tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match=f"at step {step} of 18"):
        run(engine=failing("predict", call, interrupt))
    resume(tmp_path / "run", engine=SoftmaxEngine, progress=Silent())
    whole = run(out=tmp_path / "whole")
    assert_same_end(tmp_path / "run", whole.run)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C has its default effect, even if the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_stops_at_once(run: Run, tmp_path: Path) -> None:
    def twice(result: Gradients) -> Gradients:
        return interrupt(interrupt(result))

    with pytest.raises(
        Interrupted, match="stopped immediately; the last checkpoint is kept; resume"
    ):
        run(engine=failing("gradients", 5, twice), checkpoint_every=3)
    assert Checkpoint.load(tmp_path / "run" / LAST).counters.step == 3


def test_trains_in_another_thread(run: Run) -> None:
    results: list[TrainResult] = []
    thread = threading.Thread(target=lambda: results.append(run(epochs=1)))
    thread.start()
    thread.join()
    assert results[0].steps == PER_EPOCH


def spoilt(values: Gradients) -> Gradients:
    values.values["fc.bias"][0] = np.inf
    return values


@pytest.mark.parametrize(
    ("action", "what"),
    [
        (lambda g: Gradients(math.nan, g.metrics, g.values), "the loss"),
        (lambda g: Gradients(math.inf, g.metrics, g.values), "the loss"),
        (spoilt, "a gradient"),
    ],
)
def test_numbers_that_are_none_stop_the_run(
    action: Callable[[Gradients], Gradients], what: str, run: Run, tmp_path: Path
) -> None:
    with pytest.raises(Diverged) as caught:
        run(engine=failing("gradients", 5, action), checkpoint_every=2)
    assert str(caught.value) == (
        f"{what} is not finite at step 5: start again with a learning rate lower than "
        f"0.05, such as 0.005, or set clip to 1; the last good state is kept in {tmp_path / 'run'}"
    )
    kept = Checkpoint.load(tmp_path / "run" / LAST)
    assert kept.counters.step == 4
    assert all(np.isfinite(array).all() for array in (kept.parameters | kept.statistics).values())


def test_predictions_that_are_not_finite_stop_the_run(run: Run, tmp_path: Path) -> None:
    def spoil(logits: FloatArray) -> FloatArray:
        return logits * np.float32(np.nan)

    with pytest.raises(Diverged, match="the validation loss is not finite"):
        run(engine=failing("predict", 1, spoil), clip=1.0)
    assert not (tmp_path / "run" / BEST).exists()


# --- the budget ------------------------------------------------------------------------------


def test_a_budget_below_the_runtime_leaves_no_run(run: Run, tmp_path: Path) -> None:
    with pytest.raises(BudgetExceeded, match=r"the budget of 5.0 MB is smaller than the"):
        run(budget="5MB")
    assert not (tmp_path / "run").exists()


def test_a_budget_below_the_prediction_leaves_no_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "process_memory", lambda: ProcessMemory(50_000_000, 50_000_000))
    with pytest.raises(BudgetExceeded, match=r"the budget of 70 MB is .* short: .* a kit of batch"):
        run(budget="70MB")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("after", "step"), [(1, 0), (3, 1), (10, 6)])
def test_a_run_over_its_budget_is_saved_and_stops(
    after: int, step: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peaks = iter([100] * (after - 1) + [60_000_000_000])
    monkeypatch.setattr(
        loop_module, "process_memory", lambda: ProcessMemory(100, next(peaks, 60_000_000_000))
    )
    with pytest.raises(BudgetExceeded, match=r"memory reached 60000 MB by step .*resume it with"):
        run(budget="50GB")
    assert Checkpoint.load(tmp_path / "run" / LAST).counters.step == step
    result = resume(tmp_path / "run", engine=SoftmaxEngine, progress=Silent(), budget="80GB")
    assert result.steps == 18
    assert Checkpoint.load(result.run / LAST).settings.budget == 80 * 10**9


def test_a_finished_run_does_not_advise_to_resume(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = 2 + 3 * (PER_EPOCH + 2)  # after each step and each batch of a validation
    peaks = iter([100] * checks)
    monkeypatch.setattr(
        loop_module, "process_memory", lambda: ProcessMemory(100, next(peaks, 60_000_000_000))
    )
    assert run(budget="50GB").reason == "steps"
    assert next(peaks, None) is None


# --- resuming --------------------------------------------------------------------------------


class StopError(Exception):
    """Ends a run as a bug would."""


@pytest.mark.parametrize("optimizer", ["adam", "adam8", "sgd"])
@pytest.mark.parametrize("at", [1, 4, 6, 7, 11, 18])
def test_resumed_runs_end_with_the_same_bits(
    at: int, optimizer: str, run: Run, tmp_path: Path
) -> None:
    def stop(_: Gradients) -> Gradients:
        raise StopError

    whole = run(out=tmp_path / "whole", optimizer=optimizer)
    with pytest.raises(StopError):
        run(engine=failing("gradients", at, stop), optimizer=optimizer, checkpoint_every=2)
    resume(tmp_path / "run", engine=SoftmaxEngine, progress=Silent())
    one = Checkpoint.load(tmp_path / "run" / LAST)
    assert one.settings.checkpoint_every == 2
    assert_same_end(tmp_path / "run", whole.run)


def test_a_run_is_trained_by_one_process_at_a_time(run: Run, tmp_path: Path) -> None:
    message = "another process is training the run in .*run$"

    def interfere(result: Gradients) -> Gradients:
        with pytest.raises(PocketuneError, match=message):
            resume(tmp_path / "run", engine=SoftmaxEngine)
        (tmp_path / "run" / LAST).rename(tmp_path / LAST)  # as if it had only just begun
        with pytest.raises(PocketuneError, match=message):
            run()
        (tmp_path / LAST).rename(tmp_path / "run" / LAST)
        return result

    assert run(engine=failing("gradients", 5, interfere)).steps == 18


def test_checkpoints_by_time(run: Run, tmp_path: Path) -> None:
    def stop(_: Gradients) -> Gradients:
        raise StopError

    with pytest.raises(StopError):
        run(engine=failing("gradients", 5, stop), checkpoint_seconds=1e-9)
    assert Checkpoint.load(tmp_path / "run" / LAST).counters.step == 4
    with pytest.raises(StopError):
        run(engine=failing("gradients", 5, stop), out=tmp_path / "slow")
    assert Checkpoint.load(tmp_path / "slow" / LAST).counters.step == 0


def test_a_complete_run_is_not_resumed(run: Run) -> None:
    folder = run(epochs=1).run
    with pytest.raises(PocketuneError, match="is complete after 6 steps: there is nothing"):
        resume(folder, engine=SoftmaxEngine)


def test_no_run_to_resume(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(PocketuneError, match=r"no run to resume in .*: it has no last.safe"):
            resume(folder, engine=SoftmaxEngine)


@pytest.fixture
def stopped(run: Run, photos: Path, tmp_path: Path) -> Path:
    """A run that stopped at step 4, on its own photos."""

    def stop(_: Gradients) -> Gradients:
        raise StopError

    write_photos(tmp_path / "own")
    with pytest.raises(StopError):
        run(engine=failing("gradients", 5, stop), checkpoint_every=4, photos=tmp_path / "own")
    return tmp_path / "run"


def test_a_damaged_checkpoint(stopped: Path) -> None:
    data = (stopped / LAST).read_bytes()
    (stopped / LAST).write_bytes(data[:-100])
    with pytest.raises(PocketuneError, match=r"last.safetensors is damaged"):
        resume(stopped, engine=SoftmaxEngine)


def test_a_trained_network_is_not_a_checkpoint(run: Run, stopped: Path, tmp_path: Path) -> None:
    other = run(out=tmp_path / "other", epochs=1)
    (stopped / LAST).write_bytes((other.run / BEST).read_bytes())
    with pytest.raises(PocketuneError, match="but not a Pocketune checkpoint"):
        resume(stopped, engine=SoftmaxEngine)


def test_a_checkpoint_of_another_kit(run: Run, stopped: Path, tmp_path: Path) -> None:
    kit = write_softmax_kit(tmp_path / "kit", batch=BATCH + 1)
    other = run(kit=kit, out=tmp_path / "other", epochs=1)
    (stopped / LAST).write_bytes((other.run / LAST).read_bytes())
    with pytest.raises(PocketuneError, match="is a checkpoint of another kit"):
        resume(stopped, engine=SoftmaxEngine)


def test_photos_that_changed(stopped: Path, tmp_path: Path) -> None:
    Image.new("RGB", (20, 20)).save(tmp_path / "own" / "red" / "new.png")
    with pytest.raises(PocketuneError, match=r"own have changed since the run in .* started"):
        resume(stopped, engine=SoftmaxEngine)


def test_photos_that_moved(stopped: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "own").rename(tmp_path / "moved")
    with pytest.raises(PocketuneError, match=r"no longer at .*own: give their new location"):
        resume(stopped, engine=SoftmaxEngine)
    result = resume(stopped, tmp_path / "moved", engine=SoftmaxEngine, progress=Silent())
    assert result.steps == 18
    assert Checkpoint.load(stopped / LAST).photos == str(tmp_path / "moved")


def test_full_disk(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = os.fsync, 1

    def fsync(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    before = (stopped / LAST).read_bytes()
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(PocketuneError, match="No space left on device; the file that was there is"):
        resume(stopped, engine=SoftmaxEngine, progress=Silent())
    monkeypatch.undo()
    assert (stopped / LAST).read_bytes() == before
    assert resume(stopped, engine=SoftmaxEngine, progress=Silent()).steps == 18
