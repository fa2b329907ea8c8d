"""Scores, metrics over batches, and tables of figures, whatever the task."""

from __future__ import annotations

import csv
import errno
import itertools
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketune.arrays import FloatArray
from pocketune.errors import PocketuneError
from pocketune.files import Skipped
from pocketune.tasks import Attributes, Classification, Labels, Score, Task, numbered
from pocketune.tasks.results import Evaluation, known, reasons, share, write_csv

from .regression import Regression, RegressionEvaluation

seeds = st.integers(0, 2**32 - 1)
whole_tasks = st.sampled_from([Classification, Attributes, Regression])


def drawn(task: Task, images: int, rng: np.random.Generator) -> tuple[FloatArray, Labels]:
    """Outputs of few different values, so that there are ties, and labels."""
    outputs = rng.integers(-3, 4, (images, len(task.classes))).astype(np.float32)
    shape = (images, *task.label_shape(8))
    high = 2 if isinstance(task, Attributes) else len(task.classes)
    return outputs, rng.integers(0, high, shape).astype(task.label_type)


def parts(images: int, rng: np.random.Generator) -> list[slice]:
    """A division into consecutive batches, some of them empty."""
    cuts = np.sort(rng.integers(0, images + 1, 3))
    edges = [0, *cuts.tolist(), images]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


class TestMetric:
    @given(kind=whole_tasks, classes=st.integers(1, 9), images=st.integers(1, 30), seed=seeds)
    def test_batches_add_up_to_the_whole_at_once(self, kind, classes, images, seed) -> None:
        rng, task = np.random.default_rng(seed), kind(numbered(classes))
        outputs, labels = drawn(task, images, rng)
        whole, batched = task.metric(), task.metric()
        whole.update(outputs, labels)
        for part in parts(images, rng):
            batched.update(outputs[part], labels[part])
        assert batched.images == whole.images == images
        assert batched.score.value == pytest.approx(whole.score.value, rel=1e-12)
        assert batched.score.loss == pytest.approx(whole.score.loss, rel=1e-12)

    @pytest.mark.parametrize("task", [Classification(("a", "b")), Attributes(("a", "b"))])
    def test_an_empty_batch_changes_nothing(self, task: Task) -> None:
        metric = task.metric()
        nothing = np.empty((0, 2), np.float32), np.empty((0, *task.label_shape(8)), task.label_type)
        metric.update(*nothing)
        assert metric.images == 0
        assert math.isnan(metric.score.value) and math.isnan(metric.score.loss)
        metric.update(*drawn(task, 3, np.random.default_rng(0)))
        before = metric.score
        metric.update(*nothing)
        assert metric.score == before

    @pytest.mark.parametrize("task", [Classification(("a", "b")), Attributes(("a", "b"))])
    def test_an_infinite_loss_is_not_hidden(self, task: Task) -> None:
        metric = task.metric()
        outputs = np.array([[0.0, 1.0], [np.inf, -np.inf]], np.float32)
        with np.errstate(invalid="ignore"):
            metric.update(outputs, np.ones((2, *task.label_shape(8)), task.label_type))
        assert not math.isfinite(metric.score.loss)

    @given(
        kind=st.sampled_from([Classification, Attributes]), classes=st.integers(1, 9), seed=seeds
    )
    def test_it_is_the_accuracy_of_the_evaluation(self, kind, classes, seed) -> None:
        task = kind(numbered(classes))
        outputs, labels = drawn(task, 20, np.random.default_rng(seed))
        metric = task.metric()
        metric.update(outputs, labels)
        figures = task.evaluate([(outputs, labels)]).to_dict()
        assert metric.score.value == pytest.approx(figures.get("top1", figures.get("accuracy")))

    @given(
        kind=st.sampled_from([Classification, Attributes]), classes=st.integers(1, 9), seed=seeds
    )
    def test_an_evaluation_of_batches_is_that_of_the_whole(self, kind, classes, seed) -> None:
        rng, task = np.random.default_rng(seed), kind(numbered(classes))
        outputs, labels = drawn(task, 25, rng)
        whole = task.evaluate([(outputs, labels)])
        batched = task.evaluate((outputs[p], labels[p]) for p in parts(25, rng))
        assert batched.to_dict() == whole.to_dict()
        assert whole.images == 25

    def test_losses_leave_the_outputs_as_they_are(self) -> None:
        for dtype in (np.float32, np.float64):
            outputs = np.array([[1.0, 3.0]], dtype)
            Classification(("a", "b")).losses(outputs, np.array([0]))
            Attributes(("a", "b")).losses(outputs, np.array([[0, 1]], np.uint8))
            assert outputs.tolist() == [[1.0, 3.0]]


class TestBetter:
    scores = st.builds(
        Score,
        st.just("accuracy"),
        st.sampled_from([0.0, 0.5, 1.0]),
        st.sampled_from([0.0, 0.5, 1.0]),
    )
    tasks = st.sampled_from([Classification(("a",)), Regression(("a",))])

    @given(task=tasks, first=scores, second=scores)
    def test_of_two_scores_one_is_better_unless_they_are_equal(self, task, first, second) -> None:
        better = task.is_better(first, second), task.is_better(second, first)
        assert sum(better) == (first != second)

    @given(task=tasks, first=scores, second=scores, third=scores)
    def test_better_than_a_better_one_is_better(self, task, first, second, third) -> None:
        if task.is_better(first, second) and task.is_better(second, third):
            assert task.is_better(first, third)

    def test_a_smaller_error_is_better_and_a_larger_accuracy(self) -> None:
        small, large = Score("", 0.1, loss=1.0), Score("", 0.2, loss=1.0)
        assert Classification(("a",)).is_better(large, small)
        assert Regression(("a",)).is_better(small, large)
        assert Classification(("a",)).larger_is_better and not Regression(("a",)).larger_is_better


class TestScore:
    @pytest.mark.parametrize(
        ("score", "text"),
        [
            (Score("accuracy", 1.0, loss=0), "accuracy 100.0%"),
            (Score("accuracy", 0.9996, loss=0), "accuracy 100.0%"),
            (Score("accuracy", 0.9994, loss=0), "accuracy 99.9%"),
            (Score("error", 12.34567, loss=0, style=".3f"), "error 12.346"),
            (Score("accuracy", float("nan"), loss=0), "accuracy nan%"),
        ],
    )
    def test_in_words(self, score: Score, text: str) -> None:
        assert str(score) == text

    def test_by_name(self) -> None:
        score = Score("accuracy", 0.5, loss=0.25)
        assert score.to_dict() == {"loss": 0.25, "accuracy": 0.5}
        assert score.to_dict("val_") == {"val_loss": 0.25, "val_accuracy": 0.5}

    def test_a_tasks_score_has_its_name_and_style(self) -> None:
        assert str(Attributes(("a",)).score(0.25, loss=1)) == "accuracy 25.0%"
        assert str(Regression(("a",)).score(0.25, loss=1)) == "error 0.250"


class TestShares:
    def test_of_nothing(self) -> None:
        assert math.isnan(share(0, 0))
        assert known(share(0, 0)) is None
        assert known(share(0, 3)) == 0

    def test_reasons_are_plain(self) -> None:
        skipped = [Skipped("b.png", "it is too large"), Skipped("a.png", "it is empty")]
        assert reasons(skipped) == [
            {"image": "b.png", "reason": "it is too large"},
            {"image": "a.png", "reason": "it is empty"},
        ]


class TestEvaluation:
    @pytest.mark.parametrize("kind", [Classification, Attributes])
    def test_of_no_photos_is_json_without_nan(self, kind) -> None:
        result: Evaluation = kind(("a", "b")).evaluate([])
        values = json.loads(json.dumps(result.to_dict(), allow_nan=False))
        assert result.images == values["images"] == 0
        assert values.get("top1") is values.get("top5") is values.get("accuracy") is None
        assert "nan%" in str(result)

    @pytest.mark.parametrize("kind", [Classification, Attributes])
    def test_files_that_were_left_out_are_added_later(self, kind) -> None:
        result: Evaluation = kind(("a", "b")).evaluate([])
        skipped = (Skipped("a.png", "it is empty"),)
        assert result.skipped == ()
        with_them = result.with_skipped(skipped)
        assert with_them.to_dict()["skipped"] == [{"image": "a.png", "reason": "it is empty"}]
        assert str(with_them) == str(result)

    def test_a_task_without_tables_says_so(self, tmp_path: Path) -> None:
        result = RegressionEvaluation(0.5, 3)
        with pytest.raises(PocketuneError, match="no confusion matrix"):
            result.write_confusion(tmp_path / "out.csv")
        with pytest.raises(PocketuneError, match="no figures by class"):
            result.write_per_class(tmp_path / "out.csv")
        assert not list(tmp_path.iterdir())


class TestCsv:
    @settings(max_examples=25)
    @given(
        st.lists(
            st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))),
            max_size=4,
        )
    )
    def test_any_names_are_read_as_they_were_written(self, tmp_path_factory, rows) -> None:
        path = tmp_path_factory.getbasetemp() / "names.csv"
        write_csv(path, ["größe", "名前"], rows)
        with path.open(encoding="utf-8", newline="") as file:
            header, *read = csv.reader(file)
        assert header == ["größe", "名前"]
        assert read == rows

    def test_a_shorter_table_replaces_a_longer_one(self, tmp_path: Path) -> None:
        path = tmp_path / "out.csv"
        write_csv(path, ["name"], [["a"], ["b"]])
        write_csv(str(path), ["name"], [["c"]])
        assert path.read_text("utf-8").split() == ["name", "c"]

    def test_a_folder_in_its_place(self, tmp_path: Path) -> None:
        with pytest.raises(PocketuneError, match="cannot be written"):
            write_csv(tmp_path, ["name"], [])


@settings(max_examples=40)
@given(seed=seeds, kind=st.sampled_from([Classification, Attributes]), images=st.integers(1, 6))
def test_confidences_belong_to_the_decisions_that_marks_judges(seed, kind, images):
    task = kind(numbered(4))
    outputs, labels = drawn(task, images, np.random.default_rng(seed))
    sure, marks = task.confidences(outputs), task.marks(outputs, labels)
    assert sure.shape == marks.shape
    assert (sure >= 0.25 if kind is Classification else sure >= 0.5).all() and (sure <= 1).all()


@settings(max_examples=40)
@given(seed=seeds, kind=st.sampled_from([Classification, Attributes]), images=st.integers(1, 6))
def test_counts_are_those_of_the_answers(seed, kind, images):
    task = kind(numbered(4))
    _, labels = drawn(task, images, np.random.default_rng(seed))
    said = [
        task.answer(question, value)
        for row in task.answers(labels).tolist()
        for question, value in enumerate(row)
    ]
    assert task.counts(labels).tolist() == [said.count(name) for name in task.classes]


def test_a_task_that_says_nothing_more_has_no_decisions_and_no_counts():
    task = Regression(("a", "b"))
    outputs = np.ones((3, 2), np.float32)
    assert task.confidences(outputs) is None and task.counts(outputs) is None
    assert task.answers(outputs).shape == (3, 0)
    verdict = task.verdict(np.array([1, 2], np.float32), np.array([0.5, 2], np.float32))
    assert verdict == ("0.5, 2", "a 1.000, b 2.000")


def test_a_verdict_names_the_class_and_the_guess():
    task = Classification(("cat", "dog"))
    output = np.log(np.array([0.25, 0.75], np.float32))
    assert task.verdict(output, np.int64(0)) == ("cat (25%)", "dog (75%)")


def test_a_verdict_names_the_attributes_that_are_wrong_the_surest_first():
    task = Attributes(("hat", "coat", "scarf"))
    output = np.array([1.0, -3.0, 2.0], np.float32)
    verdict = task.verdict(output, np.array([0, 1, 1], np.uint8))
    assert verdict == ("coat, not hat", "not coat (95%), hat (73%)")
    right = task.verdict(output, np.array([1, 0, 1], np.uint8))
    assert right == ("not coat, scarf, hat", "not coat (95%), scarf (88%), hat (73%)")


def test_a_table_that_cannot_be_written_whole_leaves_the_one_before(tmp_path):
    def rows():
        yield ["a", 1]
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "table.csv"
    write_csv(path, ["class", "images"], [["b", 2]])
    before = path.read_bytes()
    with pytest.raises(PocketuneError, match=r"table\.csv cannot be written: No space left"):
        write_csv(path, ["class", "images"], rows())
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.csv"]
