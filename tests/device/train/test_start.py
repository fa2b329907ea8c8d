"""Runs whose classifier is computed from their photos."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketune.arrays import FloatArray
from pocketune.data import Loader
from pocketune.device.engine.base import Gradients
from pocketune.device.head import fit as fit_module
from pocketune.device.memory.budget import BudgetExceeded
from pocketune.device.train import limit as limit_module
from pocketune.device.train import start as start_module
from pocketune.device.train.checkpoint import Checkpoint, TrainedNetwork
from pocketune.device.train.defaults import TOO_FEW_TO_DIVIDE
from pocketune.device.train.display import format_imbalance, format_start
from pocketune.device.train.interrupt import Interrupted
from pocketune.device.train.loop import validate
from pocketune.device.train.progress import PhotosReport, Silent, StartReport
from pocketune.device.train.record import RunRecord
from pocketune.device.train.run import TrainResult, resume, train
from pocketune.device.use.held_back import run_photos
from pocketune.device.use.model import Model
from pocketune.errors import PocketuneError
from pocketune.kit.names import BEST, EMBEDDINGS, LAST, METRICS
from pocketune.tasks import Classification, Score, Task

from ..failing import failing, interrupt
from ..runs import assert_same_end, lines
from ..softmax_engine import SIZE, SoftmaxEngine, write_photos, write_softmax_kit

OTHERS = ("cyan", "pink", "rose")
Run = Callable[..., TrainResult]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """`train` on photos of classes that are not the kit's."""
    kit = write_softmax_kit(tmp_path / "kit").path
    photos = write_photos(tmp_path / "photos", classes=OTHERS)

    def call(**changes: Any) -> TrainResult:
        arguments: dict[str, Any] = {
            "kit": kit,
            "photos": photos,
            "out": tmp_path / "run",
            "epochs": 2,
            "engine": SoftmaxEngine,
            "progress": Silent(),
        }
        return train(**{**arguments, **changes})

    return call


class Collector(Silent):
    def __init__(self) -> None:
        self.counts: list[PhotosReport] = []
        self.starts: list[StartReport] = []
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def photos(self, report: PhotosReport) -> None:
        self.counts.append(report)

    def start(self, report: StartReport) -> None:
        self.starts.append(report)


def test_the_classifier_is_computed_before_the_first_step(run: Run) -> None:
    told = Collector()
    result = run(progress=told)
    assert result.head in ("class means", "LDA", "ridge")
    assert result.start is not None and result.start.value > 0.8
    assert result.estimate is not None and result.estimate.value > 0.8
    counts = [report.done for report in told.counts if "classifier" in report.purpose]
    assert counts == [4, 8, 12, 16, 20, 24]
    (start,) = told.starts
    assert (start.images, start.photos, start.validation) == (24, 24, result.start)
    (line,) = lines(result.run, "start")
    assert line["head"] == result.head
    assert line["validation_accuracy"] == result.start.value
    assert line["estimated_accuracy"] == result.estimate.value
    assert lines(result.run)[0] == line
    record = RunRecord.read(result.run)
    assert (record.start, record.head, record.estimate) == (
        result.start,
        result.head,
        result.estimate,
    )
    assert not (result.run / EMBEDDINGS).exists()


def test_no_epochs_give_the_computed_classifier_alone(run: Run) -> None:
    result = run(epochs=0)
    assert (result.steps, result.best_step, result.reason) == (0, 0, "steps")
    assert result.best == result.start
    assert RunRecord.read(result.run).best == result.start
    trained = TrainedNetwork.load(result.run / BEST)
    assert trained.state["fc.weight"].shape == (3, 48)
    with pytest.raises(PocketuneError, match="is complete after 0 steps"):
        resume(result.run, engine=SoftmaxEngine)


def test_training_never_ends_below_its_start(run: Run) -> None:
    class Backwards(SoftmaxEngine):
        def gradients(self, *args: Any) -> Gradients:
            found = super().gradients(*args)
            return replace(found, values={k: -10 * v for k, v in found.values.items()})

    result = run(engine=Backwards, lr=0.1, optimizer="sgd")
    assert result.best is not None and result.start is not None
    assert (result.best.value, -result.best.loss) >= (result.start.value, -result.start.loss)
    assert result.best_step == 0
    assert TrainedNetwork.load(result.run / BEST).step == 0


def test_drawn_at_random(run: Run) -> None:
    result = run(head_start="random", epochs=0)
    assert (result.head, result.estimate) == ("random", None)
    assert np.abs(TrainedNetwork.load(result.run / BEST).state["fc.weight"]).max() <= 1 / 48**0.5


def test_a_task_without_a_closed_form_draws_at_random(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Classification, "targets", Task.targets)
    assert run(epochs=0).head == "random"


def test_a_trained_classifier_is_kept_where_it_is_better(run: Run, tmp_path: Path) -> None:
    first = run(epochs=6, out=tmp_path / "first")
    second = run(kit=first.run, epochs=0)
    before, after = (TrainedNetwork.load(r.run / BEST) for r in (first, second))
    assert second.best is not None and first.best is not None
    if second.head == "kept":
        np.testing.assert_array_equal(after.state["fc.weight"], before.state["fc.weight"])
    assert second.best.value >= first.best.value - 0.2


@pytest.mark.parametrize(("factor", "head"), [(1, "kept"), (-1, "computed")])
def test_the_kits_classifier_competes(
    factor: int, head: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(epochs=0, out=tmp_path / "first")
    monkeypatch.setattr(
        start_module, "_score", lambda *_: Score("accuracy", 2.0 * factor, loss=0.0)
    )
    second = run(kit=first.run, epochs=0)
    assert (second.head == "kept") == (head == "kept")
    assert first.head != "kept"


def test_a_part_of_the_photos_in_the_time_for_them(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_module, "HEAD_SECONDS", 0.0)
    told = Collector()
    run(progress=told, epochs=0)
    assert told.starts[0].images == 4
    assert ", 4 of 24 photos" in format_start(told.starts[0])


def test_little_memory_gives_class_means(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_module, "head_room", lambda _: fit_module.means_bytes(48, 3))
    assert run(epochs=0).head == "class means"


def test_without_steps_a_classifier_for_which_there_is_no_room_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_module, "head_room", lambda _: 1000)
    with pytest.raises(BudgetExceeded, match=r"no room to compute a classifier of 3 classes"):
        run(epochs=0, budget="4GB")
    assert run(epochs=1, budget="4GB").head == "random"


def test_classes_too_small_to_divide_give_the_classifier_of_all_photos(
    run: Run, tmp_path: Path
) -> None:
    few = write_photos(tmp_path / "few", each=3)
    result = run(photos=few, epochs=None)
    record = RunRecord.read(result.run)
    assert (record.photos.training, record.photos.validation) == (9, 0)
    assert (result.steps, result.best) == (0, None)
    assert result.estimate is not None
    asked = run(photos=few, epochs=1, out=tmp_path / "asked")
    assert (asked.steps, asked.best_step) == (2, 2)


def test_fewer_photos_than_a_batch_still_give_a_classifier(run: Run, tmp_path: Path) -> None:
    few = write_photos(tmp_path / "few", classes=("a", "b"), each=1)
    assert run(photos=few, epochs=None).steps == 0
    assert run(photos=few, epochs=2, out=tmp_path / "asked").steps == 2


def test_small_classes_train_and_large_ones_validate(run: Run, tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "uneven", classes=("a", "b"), each=10)
    write_photos(tmp_path / "rare", classes=("c",), each=2)
    (tmp_path / "rare" / "c").rename(photos / "c")
    record = RunRecord.read(run(photos=photos).run)
    assert (record.photos.training, record.photos.validation) == (18, 4)


@pytest.fixture
def uneven(tmp_path: Path) -> Path:
    """Photos of two large classes and a rare one."""
    photos = write_photos(tmp_path / "uneven", classes=("a", "b"), each=22)
    write_photos(tmp_path / "rare", classes=("c",), each=1)
    (tmp_path / "rare" / "c").rename(photos / "c")
    return photos


def test_a_rare_class_counts_more_and_the_run_says_so(
    run: Run, uneven: Path, tmp_path: Path
) -> None:
    told = Collector()
    result = run(photos=uneven, epochs=1, head_start="random", progress=told)
    assert format_imbalance(told.starts[0]) == (
        "uneven  the largest class has 18 times the photos of the smallest; photos of rare classes "
        "count more (balance 0.5)"
    )
    record = RunRecord.read(result.run)
    assert (record.photos.imbalance, record.settings["balance"]) == (18.0, 0.5)
    alike = run(
        photos=uneven,
        epochs=1,
        head_start="random",
        balance=0,
        progress=told,
        out=tmp_path / "alike",
    )
    assert format_imbalance(told.starts[1]).endswith("; each photo counts alike (balance 0)")
    biases = [TrainedNetwork.load(each.run / BEST).state["fc.bias"] for each in (result, alike)]
    assert biases[0][2] > biases[1][2]


def test_the_start_is_not_adjusted(run: Run, uneven: Path, tmp_path: Path) -> None:
    """What is validated and saved is the classifier itself, whatever is added to train it."""
    results = [
        run(photos=uneven, epochs=1, lr=1e-9, balance=balance, out=tmp_path / str(balance))
        for balance in (0, 1)
    ]
    starts = [each.start for each in results]
    assert starts[0] is not None and starts[1] is not None
    assert starts[0].loss == pytest.approx(starts[1].loss, rel=1e-4)
    biases = [TrainedNetwork.load(each.run / BEST).state["fc.bias"] for each in results]
    np.testing.assert_allclose(biases[0], biases[1], atol=1e-6)


def test_a_run_that_is_stopped_before_its_first_score_is_used_without_the_adjustment(
    run: Run, uneven: Path, tmp_path: Path
) -> None:
    class Stopped(SoftmaxEngine):
        def predict(self, images: FloatArray) -> FloatArray:
            raise PocketuneError("enough")

    whole = run(photos=uneven, epochs=1, balance=1)
    with pytest.raises(PocketuneError, match="enough"):
        run(photos=uneven, epochs=1, balance=1, engine=Stopped, out=tmp_path / "stopped")
    start = run(photos=uneven, epochs=1, lr=1e-9, balance=0, out=tmp_path / "plain").run
    model = Model.open(tmp_path / "stopped")
    np.testing.assert_allclose(
        model.state["fc.bias"], Model.open(start).state["fc.bias"], atol=1e-6
    )
    resume(tmp_path / "stopped", engine=SoftmaxEngine, progress=Silent())
    assert_same_end(tmp_path / "stopped", whole.run)


def test_what_is_validated_is_what_is_saved_and_rare_classes_choose_it(
    run: Run, tmp_path: Path
) -> None:
    photos = write_photos(tmp_path / "uneven", classes=("a", "b"), each=20)
    write_photos(tmp_path / "rare", classes=("c",), each=5)
    (tmp_path / "rare" / "c").rename(photos / "c")
    result = run(photos=photos, balance=1, epochs=3, head_start="random", val_fraction=0.2)
    model = Model.open(result.run)
    splits = run_photos(model)
    loader = Loader(splits.val, size=SIZE, batch=4, train=False)
    engine = SoftmaxEngine(model.kit, model.state)
    score = validate(engine, model.task, loader.epoch(0), lambda: None)
    assert score is not None and result.best is not None
    assert score.value == result.best.value
    assert score.loss == pytest.approx(result.best.loss, rel=1e-5)
    judged = Checkpoint.load(result.run / LAST).counters.judged
    (batch,) = Loader(splits.val, size=SIZE, batch=len(splits.val), train=False).epoch(0)
    right = engine.predict(batch.images).argmax(axis=1) == batch.labels
    recalls = [right[batch.labels == k].mean() for k in range(3)]
    assert judged is not None and judged.value == pytest.approx(np.mean(recalls))


def test_an_uneven_run_that_was_resumed_ends_with_the_same_bits(
    run: Run, uneven: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"photos": uneven, "head_start": "random"}
    whole = run(**options, out=tmp_path / "whole")
    with pytest.raises(Interrupted):
        run(**options, engine=failing("gradients", 5, interrupt))
    resume(tmp_path / "run", engine=SoftmaxEngine, progress=Silent())
    assert_same_end(tmp_path / "run", whole.run)


@pytest.mark.parametrize(("method", "call"), [("gradients", 2), ("predict", 1), ("predict", 3)])
def test_resumed_runs_end_with_the_same_bits(
    method: str, call: int, run: Run, tmp_path: Path
) -> None:
    whole = run(out=tmp_path / "whole")
    with pytest.raises(Interrupted):
        run(engine=failing(method, call, interrupt))
    resume(tmp_path / "run", engine=SoftmaxEngine, progress=Silent())
    assert_same_end(tmp_path / "run", whole.run)


def test_a_run_that_ended_among_its_embeddings_can_start_again(run: Run, tmp_path: Path) -> None:
    class Dies(SoftmaxEngine):
        def embed(self, images: np.ndarray) -> FloatArray:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        run(engine=Dies)
    assert not (tmp_path / "run" / LAST).exists()
    assert not (tmp_path / "run" / EMBEDDINGS).exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / METRICS).touch()
    (tmp_path / "run" / EMBEDDINGS).write_bytes(b"of a process that was killed")
    assert run().steps > 0
    assert not (tmp_path / "run" / EMBEDDINGS).exists()


def test_the_checkpoint_knows_where_the_classifier_came_from(run: Run) -> None:
    result = run(epochs=1)
    counters = Checkpoint.load(result.run / LAST).counters
    assert counters.started
    assert (counters.head, counters.estimate, counters.start) == (
        result.head,
        result.estimate,
        result.start,
    )


@pytest.mark.parametrize("each", [20, 41, 42])
def test_few_photos_give_the_classifier_of_all_of_them(each: int, run: Run, tmp_path: Path) -> None:
    photos, told = write_photos(tmp_path / "many", each=each, classes=OTHERS), Collector()
    result = run(photos=photos, epochs=None, progress=told)
    few = 3 * each < TOO_FEW_TO_DIVIDE
    record = RunRecord.read(result.run)
    assert (record.steps == 0, record.photos.validation == 0) == (few, few)
    assert any(note.startswith("steps  none by default") for note in told.notes) == few
    if few:
        again = run(photos=photos, out=tmp_path / "again", epochs=0, val_fraction=0)
        one, other = (Model.open(run).state for run in (result.run, again.run))
        assert all(np.array_equal(one[name], other[name]) for name in one)
        assert record.settings.items() >= {"epochs": 0, "val_fraction": 0.0}.items()


@pytest.mark.parametrize(
    "asked",
    [
        *({"epochs": 1}, {"steps": 2}, {"lr": 0.01}, {"patience": 3}, {"clip": 1.0}),
        *({"optimizer": "sgd"}, {"balance": 0.5}, {"draws": 2}),
    ],
)
def test_steps_are_made_with_few_photos_where_a_setting_asks_for_them(
    asked: dict[str, Any], run: Run
) -> None:
    result = run(**{"epochs": None, **asked})
    assert result.steps and result.best is not None


def test_steps_are_made_with_few_photos_where_they_are_divided(run: Run, tmp_path: Path) -> None:
    for part, each in (("train", 6), ("val", 3)):
        write_photos(tmp_path / "divided" / part, each=each, classes=OTHERS)
    assert run(photos=tmp_path / "divided", epochs=None).steps
    assert run(out=tmp_path / "part", epochs=None, val_fraction=0.5).steps
    assert run(out=tmp_path / "random", epochs=None, head_start="random").steps
