"""What all tasks share: names, JSON, the head, scores."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from pocketune.arrays import FloatArray
from pocketune.data import Batch, Purpose, random_stream
from pocketune.device.train.loop import validate
from pocketune.errors import PocketuneError
from pocketune.schema import FieldError, read_object
from pocketune.tasks import (
    TASKS,
    Attributes,
    Box,
    Classification,
    Score,
    Task,
    View,
    numbered,
    register_task,
    task_named,
)
from pocketune.tasks.base import CLASSES, SIZE, as_label

TASK = Classification(("cat", "dog", "owl"), head=("fc.weight", "fc.bias"), label_smoothing=0.1)


def test_names_are_a_list_and_not_one_text() -> None:
    with pytest.raises(PocketuneError, match="classes='abc' must be a list of names"):
        Classification("abc")  # type: ignore[arg-type]
    assert Classification(["a", "b"]) == Classification(("a", "b"))  # type: ignore[arg-type]


class TestJson:
    @pytest.mark.parametrize("task", [TASK, Attributes(("bald",), ("a.weight", "a.bias"))])
    def test_round_trip(self, task: Task) -> None:
        import json

        values = json.loads(json.dumps(task.to_dict()))
        assert values["name"] == task.name
        assert read_object(Task, values, "task.json") == task  # type: ignore[type-abstract]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            (
                {"name": "captions"},
                "'name' must be one of classification, segmentation, attributes",
            ),
            ({"name": 1}, "'name' must be one of"),
            ({"classes": ["a", "a"]}, r"classes \[a, a\] must be one or more different names"),
            ({"classes": []}, "one or more different names"),
            ({"classes": [1]}, r"'classes\[0\]' must be a non-empty string"),
            ({"label_smoothing": 1}, r"label_smoothing=1.0 must lie in \[0, 1\)"),
            ({"color": 1}, "unknown field 'color'"),
        ],
    )
    def test_refuses(self, changes: dict[str, object], message: str) -> None:
        values = {**TASK.to_dict(), "classes": ["a"], "head": [], **changes}
        with pytest.raises(FieldError, match=message):
            read_object(Task, values, "task.json")  # type: ignore[type-abstract]


@pytest.mark.parametrize("names", [("a", ""), (1, 2)])
def test_classes_are_strings(names) -> None:
    with pytest.raises(PocketuneError, match="must be non-empty strings"):
        Classification(names)


@pytest.mark.parametrize("value", [-0.1, 1, float("nan")])
@pytest.mark.parametrize("task", [Classification, Attributes])
def test_label_smoothing_is_a_share(task, value: float) -> None:
    with pytest.raises(PocketuneError, match=f"label_smoothing={value}"):
        task(("a", "b"), label_smoothing=value)


def test_options_that_a_task_does_not_have() -> None:
    assert TASK.configured(label_smoothing=0.2, sharpness=0) == replace(TASK, label_smoothing=0.2)
    with pytest.raises(PocketuneError, match="the task classification has no sharpness"):
        TASK.configured(sharpness=0.5)


def test_a_name_is_taken_once() -> None:
    class Other(Classification):
        pass

    with pytest.raises(ValueError, match="'classification' is registered already"):
        register_task(Other)
    assert TASKS["classification"] is task_named("classification") is Classification


class TestHead:
    @pytest.mark.parametrize("tail", [(50,), (50, 1, 1)], ids=["linear", "convolution"])
    def test_shape_range_and_dtype(self, tail: tuple[int, ...]) -> None:
        other = np.ones(3, np.float32)
        state = {
            "fc.weight": np.zeros((10, *tail), np.float32),
            "fc.bias": np.ones(10, np.float32),
            "other": other,
        }
        new = TASK.new_head(state, 200, random_stream(0, Purpose.CLASSIFIER))
        assert new["fc.weight"].shape == (200, *tail)
        assert new["fc.weight"].dtype == new["fc.bias"].dtype == np.float32
        limit = 1 / np.sqrt(50)
        assert 0.99 * limit < np.abs(new["fc.weight"]).max() <= np.float32(limit)
        np.testing.assert_array_equal(new["fc.bias"], np.zeros(200))
        assert new["other"] is other
        assert state["fc.weight"].shape[0] == 10

    def test_seeded(self) -> None:
        state = {"fc.weight": np.zeros((2, 5), np.float32), "fc.bias": np.zeros(2, np.float32)}
        first, same, other = (
            TASK.new_head(state, 3, random_stream(seed, Purpose.CLASSIFIER))["fc.weight"]
            for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(first, same)
        assert not np.array_equal(first, other)

    def test_shapes_and_their_number_of_classes(self) -> None:
        shapes = TASK.shapes({"fc.weight": (3, 7), "fc.bias": (3,), "conv": (3, 3)}, 5)
        assert shapes == {"fc.weight": (5, 7), "fc.bias": (5,), "conv": (3, 3)}
        assert TASK.count({"fc.bias": np.zeros(5, np.float32)}) == 5
        assert TASK.count({}) == 3

    def test_labels_and_outputs_of_other_classes(self) -> None:
        assert (TASK.label_shape(32), TASK.output_shape(32)) == ((), (3,))
        assert Attributes(numbered(2)).label_shape(32, 5) == (5,)


class TestSizes:
    """A task may have labels and outputs of the image's size, and any number of axes."""

    class Maps(Classification):
        label_dims = (SIZE, SIZE)
        output_dims = (CLASSES, SIZE, 2)

    def test_of_maps(self) -> None:
        task = self.Maps(("a", "b", "c"))
        assert task.label_shape(32) == (32, 32)
        assert task.output_shape(32) == (3, 32, 2)
        assert task.output_shape(8, 5) == (5, 8, 2)

    @pytest.mark.parametrize("task", [TASK, Attributes(numbered(4))])
    def test_no_classes_are_not_the_default_number_of_them(self, task: Task) -> None:
        assert task.output_shape(32, 0) == (0,)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("label", [np.int64(2), np.array([1, 0], np.uint8)])
def test_a_label_of_the_whole_image_stays_in_every_view(label, mirrored: bool) -> None:
    view = View(Box(0.5, 1, 3, 4), 8, mirrored)
    assert TASK.transform(label, view) is label


def test_a_batch_of_classes() -> None:
    batch = TASK.collate([np.int64(2), np.int64(0)])
    assert (batch.dtype, batch.tolist()) == (np.int64, [2, 0])
    assert TASK.collate([np.int64(1)]).shape == (1,)


def test_a_task_is_equal_to_one_of_the_same_fields_alone() -> None:
    assert replace(TASK) == TASK
    assert hash(TASK) == hash(replace(TASK))
    assert replace(TASK, label_smoothing=0.2) != TASK
    assert Attributes(TASK.classes, TASK.head, TASK.label_smoothing) != TASK


def test_a_task_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(PocketuneError, match="unknown task 'clasification': choose one of class"):
        task_named("clasification")


@pytest.mark.parametrize("name", ["größe", "ключ", "名前", "a b", "0"])
def test_names_in_any_script(name: str) -> None:
    assert Classification((name,)).to_dict()["classes"] == (name,)


def test_composed_labels_are_one_label() -> None:
    assert as_label("gro\u0308ße") == as_label("größe") == "größe"
    assert as_label("ﬁ") == "ﬁ"  # nothing but accents changes


class Pixels:
    """Takes the first pixels as logits."""

    def predict(self, images: np.ndarray) -> FloatArray:
        return images[:, 0, 0, :].astype(np.float32)


def batches(*logits: list[list[int]]) -> Iterator[Batch]:
    for rows in logits:
        images = np.array(rows, np.uint8)[:, None, None, :]
        yield Batch(images, np.zeros(len(rows), np.int64), tuple("x" * len(rows)))


class TestScore:
    def score(self, *rows: list[list[int]]) -> Score:
        calls: list[None] = []
        score = validate(Pixels(), TASK, batches(*rows), lambda: calls.append(None))  # type: ignore[arg-type]
        assert score is not None and len(calls) == len(rows)
        return score

    def test_counts_photos_and_not_batches(self) -> None:
        score = self.score([[9, 0, 0], [9, 0, 0], [9, 0, 0]], [[0, 9, 0]])
        right, wrong = math.log(1 + 2 * math.exp(-9)), 9 + math.log(1 + 2 * math.exp(-9))
        assert (score.name, score.value) == ("accuracy", 0.75)
        assert score.loss == pytest.approx((3 * right + wrong) / 4)

    def test_the_share_of_correct_predictions_is_exact(self) -> None:
        right, wrong = [9, 0, 0], [0, 9, 0]
        assert self.score([right] * 7 + [wrong] * 18, [wrong] * 22).value == 7 / 47

    def test_no_photos(self) -> None:
        assert validate(Pixels(), TASK, iter(()), lambda: None) is None  # type: ignore[arg-type]
        assert math.isnan(TASK.metric().score.value)

    def test_the_loss_decides_a_tie(self) -> None:
        best = TASK.score(0.9, loss=0.5)
        assert TASK.is_better(TASK.score(0.91, loss=9.0), best)
        assert TASK.is_better(TASK.score(0.9, loss=0.4), best)
        assert not TASK.is_better(best, best)

    def test_of_training_steps(self) -> None:
        assert TASK.step_score(0.5, {"correct": 6}, images=8) == Score("accuracy", 0.75, 0.5)
