"""The record of a finished run: it says what the run was and gave, and survives its file."""

import json
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune import __version__
from pocketune.data import load_splits
from pocketune.device.machine import Machine
from pocketune.device.train import RunRecord
from pocketune.device.train.interrupt import Interrupted
from pocketune.device.train.progress import Silent
from pocketune.device.train.record import PhotosRecord, step_flops
from pocketune.device.train.run import TrainResult, resume, train
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.kit.names import BEST, METRICS, RESULT
from pocketune.tasks import Score

from ..failing import failing, interrupt
from ..runs import lines
from ..softmax_engine import (
    BATCH,
    CLASSES,
    FEATURES,
    SoftmaxEngine,
    write_photos,
)

Run = Callable[..., TrainResult]


@pytest.fixture
def run(kit: Path, photos: Path, tmp_path: Path) -> Run:
    def call(**changes: Any) -> TrainResult:
        options = {"engine": SoftmaxEngine, "progress": Silent(), "epochs": 3, "lr": 0.05}
        own = changes.pop("photos", photos)
        return train(kit, own, tmp_path / "run", **{**options, **changes})

    return call


def test_a_finished_run_says_what_it_was_and_what_it_gave(run: Run, kit: Path) -> None:
    result = run(seed=4)
    record = RunRecord.read(result.run)
    steps, epochs = lines(result.run, "step"), lines(result.run, "epoch")
    assert (record.version, record.kit) == (__version__, Kit.open(kit).identity)
    assert (record.network["name"], record.method["name"], record.task) == (
        "softmax",
        "full",
        "classification",
    )
    assert record.classes == CLASSES
    assert (record.size, record.batch, record.frozen_bits) == (16, BATCH, 32)
    assert (record.seed, record.settings["lr"], record.settings["epochs"]) == (4, 0.05, 3)
    assert (record.photos.name, record.photos.training, record.photos.validation) == (
        "photos",
        24,
        6,
    )
    assert (record.engine, record.machine) == ("numpy", Machine.current())
    assert (record.steps, record.reason, record.best_step) == (18, "steps", result.best_step)
    assert record.best == result.best
    assert record.last is not None
    assert record.last.to_dict("validation_").items() <= epochs[-1].items()
    assert record.parameters == 3 * FEATURES + 3
    assert record.result_bytes == (result.run / BEST).stat().st_size
    assert record.peak_memory >= max(line["memory"] for line in steps)  # and after them
    assert record.predicted_memory > 8_000_000
    assert record.step_seconds == statistics.median(line["seconds"] for line in steps)
    assert record.training_seconds == pytest.approx(sum(line["seconds"] for line in steps))
    assert record.training_seconds < record.seconds


def test_accumulated_batches_count_as_one_step(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", each=14)
    bundled = Kit.open("last")
    options = {"steps": 1, "progress": Silent()}
    one = RunRecord.read(train(bundled, photos, tmp_path / "one", **options).run)
    two = RunRecord.read(train(bundled, photos, tmp_path / "two", accumulate=2, **options).run)
    assert (two.batch, two.step_flops) == (2 * one.batch, 2 * one.step_flops)
    assert one.engine.startswith("onnxruntime ")


def test_a_step_counts_the_frozen_part_once_for_each_image() -> None:
    manifest = Kit.open("blocks").manifest
    graphs = manifest.graphs
    frozen = manifest.batch * graphs["features"].flops
    assert step_flops(manifest) == graphs["step"].flops + frozen
    assert frozen > 0


def test_a_run_that_patience_ended_has_a_record(run: Run) -> None:
    result = run(epochs=50, patience=1, lr=1e-9)
    record = RunRecord.read(result.run)
    assert (record.reason, record.steps) == ("patience", result.steps)


def test_without_validation_photos_there_is_no_score(run: Run) -> None:
    record = RunRecord.read(run(val_fraction=0.0).run)
    assert (record.best, record.last, record.photos.validation) == (None, None, 0)


def test_validation_photos_that_cannot_be_decoded_are_not_scored(
    run: Run, photos: Path, tmp_path: Path
) -> None:
    own = tmp_path / "photos"
    copytree(photos, own)
    damaged = own / load_splits(own, seed=0).val.names[0]
    damaged.write_bytes(damaged.read_bytes()[:60])
    found = RunRecord.read(run(photos=own).run).photos
    assert (found.validation, found.unreadable, found.scored) == (6, 1, 5)


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="its file names are text")
def test_photos_in_a_folder_whose_name_is_no_text_are_recorded(
    run: Run, photos: Path, tmp_path: Path
) -> None:
    strange = tmp_path / os.fsdecode(b"photos \xff")
    strange.symlink_to(photos, target_is_directory=True)
    assert RunRecord.read(run(photos=strange, epochs=1).run).photos.name == "photos ?"


def test_an_interrupted_run_has_none_until_it_is_resumed(run: Run, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run(engine=failing("gradients", 8, interrupt))
    folder = tmp_path / "run"
    with pytest.raises(PocketuneError, match=r"run is not a finished run: it has no result\.json"):
        RunRecord.read(folder)
    before = lines(folder)[-1]["elapsed"]
    resume(folder, engine=SoftmaxEngine, progress=Silent())
    record = RunRecord.read(folder)
    assert (record.steps, len(lines(folder, "step"))) == (18, 18)
    assert record.seconds > before


def test_a_log_that_the_user_edited_still_gives_a_record(run: Run, tmp_path: Path) -> None:
    def scribble(result: Any) -> Any:
        with (tmp_path / "run" / METRICS).open("ab") as file:
            file.write(b'notes\n[]\n{"kind": "step"}\n')
        return result

    result = run(epochs=1, engine=failing("gradients", 3, scribble))
    assert json.loads((result.run / RESULT).read_text())["photos"]["training"] == 24
    assert RunRecord.read(result.run).steps == 6


RECORD = RunRecord(
    version="1",
    kit="k",
    network={"name": "n", "width": 0.35},
    method={"name": "last"},
    frozen_bits=8,
    task="classification",
    classes=("a", "b"),
    size=64,
    batch=8,
    settings={"seed": 3, "lr": None},
    photos=PhotosRecord("photos", 10, 2, "f"),
    engine="onnxruntime 1",
    machine=Machine("Linux", "CPU", 2, "3.11"),
    steps=5,
    reason="steps",
    start=None,
    best=Score("accuracy", 0.5, 1.25),
    best_step=4,
    last=None,
    peak_memory=90,
    predicted_memory=100,
    seconds=2.5,
    training_seconds=1.5,
    step_seconds=None,
    step_flops=10,
    parameters=20,
    result_bytes=30,
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(
    classes=st.lists(st.text(min_size=1), min_size=1, unique=True).map(tuple),
    value=FINITE,
    loss=FINITE,
    seconds=st.floats(0, 1e9),
    steps=st.integers(0, 2**60),
)
def test_json_gives_the_same_record(
    classes: tuple[str, ...], value: float, loss: float, seconds: float, steps: int
) -> None:
    record = replace(
        RECORD,
        classes=classes,
        start=Score("accuracy", value, loss),
        seconds=seconds,
        step_seconds=seconds,
        steps=steps,
    )
    text = json.dumps(record.to_dict())
    assert RunRecord.from_dict(json.loads(text), "here") == record


def test_the_file_is_the_record(tmp_path: Path) -> None:
    RECORD.write(tmp_path)
    assert RunRecord.read(tmp_path) == RECORD
    assert [entry.name for entry in tmp_path.iterdir()] == [RESULT]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 99}, r"result\.json was written by another version of Pocketune .* 99"),
        ({"steps": -1}, "'steps' must be a whole number of at least 0, not -1"),
        ({"best": {"name": "accuracy"}}, "'best' lacks the field 'value'"),
        ({"more": 1}, "unknown field 'more'"),
    ],
)
def test_a_record_that_is_not_one(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / RESULT).write_text(json.dumps({**RECORD.to_dict(), **change}))
    with pytest.raises(PocketuneError, match=message):
        RunRecord.read(tmp_path)
    (tmp_path / RESULT).write_text("{")
    with pytest.raises(PocketuneError, match=r"result\.json is not valid JSON"):
        RunRecord.read(tmp_path)
