"""One class for each image: the loss in numpy, and the results."""

import csv
import gc
import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.errors import PocketuneError
from pocketune.files import Skipped
from pocketune.tasks import Classification, default_task, numbered
from pocketune.tasks.classification import ClassEvaluation, ClassPrediction, Guess, softmax

TWO = Classification(("a", "b"))


def test_cross_entropy_does_not_overflow() -> None:
    logits = np.array([[1e4, 0], [0, 1e4]], np.float32)
    np.testing.assert_allclose(TWO.losses(logits, np.array([0, 0])), [0, 1e4])


def test_the_loss_and_probabilities_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((50, 7), np.float32)
    labels = rng.integers(0, 7, 50)
    expected = torch.nn.functional.cross_entropy(
        torch.from_numpy(logits), torch.from_numpy(labels), reduction="none"
    )
    losses = Classification(numbered(7)).losses(logits, labels)
    np.testing.assert_allclose(losses, expected.numpy(), rtol=1e-5)
    exact = torch.from_numpy(logits).double().softmax(1)
    np.testing.assert_allclose(softmax(logits), exact, rtol=1e-12)


def test_a_prediction_in_json_and_in_a_line() -> None:
    result = ClassPrediction("a.png", (Guess("young", 0.9), Guess("bald", 0.5)))
    assert str(result) == "young 90.0%, bald 50.0%"
    assert result.to_dict() == {
        "image": "a.png",
        "classes": [
            {"class": "young", "probability": 0.9},
            {"class": "bald", "probability": 0.5},
        ],
    }


def test_five_classes_are_named_unless_asked_for_others() -> None:
    task = Classification(numbered(9))
    logits = np.arange(9, dtype=np.float32)
    assert [g.label for g in task.predict("x", logits, None).guesses] == ["8", "7", "6", "5", "4"]
    assert [g.label for g in task.predict("x", logits, 2).guesses] == ["8", "7"]
    assert len(task.predict("x", logits, 99).guesses) == 9


@pytest.fixture
def small() -> ClassEvaluation:
    pairs = np.array([[0, 0, 3], [0, 1, 1]])
    return ClassEvaluation(("größe, groß", 'a "b"'), pairs, among_top5=4, skipped=())


def test_confusion_csv(small: ClassEvaluation, tmp_path: Path) -> None:
    small.write_confusion(tmp_path / "confusion.csv")
    with (tmp_path / "confusion.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [
            ["class", "größe, groß", 'a "b"'],
            ["größe, groß", "3", "1"],
            ['a "b"', "0", "0"],
        ]


def test_per_class_csv(small: ClassEvaluation, tmp_path: Path) -> None:
    small.write_per_class(str(tmp_path / "classes.csv"))
    with (tmp_path / "classes.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [
            ["class", "images", "correct", "recall", "precision"],
            ["größe, groß", "4", "3", "0.75", "1.0"],
            ['a "b"', "0", "0", "nan", "0.0"],
        ]


def test_csv_into_a_missing_folder(small: ClassEvaluation, tmp_path: Path) -> None:
    small.write_confusion(tmp_path / "missing" / "confusion.csv")
    assert (tmp_path / "missing" / "confusion.csv").is_file()
    (tmp_path / "file").touch()
    with pytest.raises(PocketuneError, match="cannot be written"):
        small.write_confusion(tmp_path / "file" / "confusion.csv")


def test_plain_values(small: ClassEvaluation) -> None:
    values = replace(small, skipped=(Skipped("a.txt", "not an image"),)).to_dict()
    assert json.loads(json.dumps(values, allow_nan=False)) == {
        "images": 4,
        "top1": 0.75,
        "top5": 1.0,
        "balanced": 0.75,
        "classes": [
            {"class": "größe, groß", "images": 4, "correct": 3, "recall": 0.75, "precision": 1.0},
            {"class": 'a "b"', "images": 0, "correct": 0, "recall": None, "precision": 0.0},
        ],
        "confusion": [[3, 1], [0, 0]],
        "skipped": [{"image": "a.txt", "reason": "not an image"}],
    }
    assert str(small).splitlines() == [
        "top-1 75.0% of 4 photos",
        "  größe, groß  recall  75.0%  precision 100.0%  4 photos",
    ]


def test_balanced_accuracy_is_the_mean_recall() -> None:
    pairs = np.array([[0, 0, 8], [0, 1, 2], [1, 0, 1], [1, 1, 1]])
    found = ClassEvaluation(("a", "b", "c"), pairs, among_top5=12)
    assert found.top1 == 0.75
    assert found.balanced == pytest.approx((0.8 + 0.5) / 2)
    assert str(found).splitlines() == [
        "top-1 75.0%, balanced 65.0% of 12 photos",
        "  b  recall  50.0%  precision  33.3%  2 photos",
        "  a  recall  80.0%  precision  88.9%  10 photos",
    ]


def test_twenty_classes_are_told_of_the_worst_first() -> None:
    pairs = np.array([[k, k if k else 1, 1] for k in range(22)])
    told = str(ClassEvaluation(tuple(map(str, range(22))), pairs, 22)).splitlines()
    assert len(told) == 22
    assert told[1].startswith("  0   recall   0.0%  precision   none  1 photo")
    assert told[-1] == "  and 2 more"


def test_top5_is_said_of_more_than_five_classes() -> None:
    pairs = np.array([[0, 0, 1], [1, 0, 1]])
    assert "top-5" not in str(ClassEvaluation(tuple("abcde"), pairs, among_top5=2))
    assert ", top-5 100.0% of 2 photos" in str(ClassEvaluation(tuple("abcdef"), pairs, 2))


finite = st.floats(-(2.0**100), 2.0**100, width=32)
logits = st.lists(finite, min_size=1, max_size=8).map(lambda row: np.array(row, np.float32))


class TestProbabilities:
    @given(logits)
    def test_they_add_up_to_one_and_keep_the_order(self, row: np.ndarray) -> None:
        probabilities = softmax(row)
        assert probabilities.sum() == pytest.approx(1)
        assert (probabilities >= 0).all()
        assert (np.diff(probabilities[np.argsort(row)]) >= 0).all()

    @given(st.lists(st.integers(-50, 50), min_size=2, max_size=6), st.integers(-1000, 1000))
    def test_a_constant_changes_nothing(self, row: list[int], shift: int) -> None:
        plain = np.array([row], np.float32)
        task, label = Classification(numbered(len(row))), np.array([1])
        np.testing.assert_allclose(softmax(plain + shift), softmax(plain), rtol=1e-12)
        np.testing.assert_allclose(
            task.losses(plain + shift, label), task.losses(plain, label), rtol=1e-12, atol=1e-12
        )

    @given(logits)
    def test_the_loss_is_the_logarithm_of_the_probability(self, row: np.ndarray) -> None:
        task = Classification(numbered(len(row)))
        for label, probability in enumerate(softmax(row)):
            (loss,) = task.losses(row[None], np.array([label]))
            assert loss >= 0
            assert np.exp(-loss) == pytest.approx(probability, rel=1e-9, abs=1e-300)

    @pytest.mark.parametrize("classes", [1, 2, 1000])
    def test_equal_logits_cost_the_logarithm_of_the_classes(self, classes: int) -> None:
        task = Classification(numbered(classes))
        (loss,) = task.losses(np.full((1, classes), 7, np.float32), np.array([classes - 1]))
        assert loss == pytest.approx(np.log(classes))


class TestPrediction:
    def test_ties_keep_the_order_of_the_classes(self) -> None:
        task = Classification(("b", "a", "d", "c"))
        guesses = task.predict("x", np.array([1, 2, 1, 2], np.float32), None).guesses
        assert [guess.label for guess in guesses] == ["a", "c", "b", "d"]

    @given(logits)
    def test_the_first_guess_is_the_one_that_counts_as_right(self, row: np.ndarray) -> None:
        task = Classification(numbered(len(row)))
        best = int(task.predict("x", row, 1).guesses[0].label)
        assert task.marks(row[None], np.array([best])).all()

    def test_logits_whose_probabilities_round_to_a_tie_keep_their_order(self) -> None:
        row = np.array([100, 0, 1e-30], np.float32)
        assert softmax(row)[1] == softmax(row)[2]
        guesses = Classification(numbered(3)).predict("x", row, None).guesses
        assert [guess.label for guess in guesses] == ["0", "2", "1"]

    def test_a_single_class_is_certain(self) -> None:
        result = Classification(("größe",)).predict("a.png", np.array([-3], np.float32), None)
        assert str(result) == "größe 100.0%"


class TestEvaluation:
    @given(st.integers(1, 8), st.integers(0, 30), st.integers(0, 2**32 - 1))
    def test_the_confusion_counts_each_photo_once(self, classes, images, seed) -> None:
        rng, task = np.random.default_rng(seed), Classification(numbered(classes))
        outputs = rng.integers(0, 3, (images, classes)).astype(np.float32)  # with many ties
        labels = rng.integers(0, classes, images)
        result = task.evaluate([(outputs, labels)])
        expected = [[0] * classes for _ in range(classes)]
        among = 0
        for output, label in zip(outputs.tolist(), labels.tolist(), strict=True):
            order = sorted(range(classes), key=lambda i: (-output[i], i))
            expected[label][order[0]] += 1
            among += label in order[:5]
        assert result.confusion.tolist() == expected
        assert result.among_top5 == among
        assert sum(c.present for c in result.per_class) == images
        assert sum(c.predicted for c in result.per_class) == images

    def test_rows_are_what_a_photo_is_and_columns_what_it_was_taken_for(self) -> None:
        outputs = np.array([[0, 1], [0, 1], [1, 0]], np.float32)
        result = TWO.evaluate([(outputs, np.array([0, 1, 0]))])
        assert result.confusion.tolist() == [[1, 1], [0, 1]]
        first, second = result.per_class
        assert (first.recall, first.precision) == (0.5, 1.0)
        assert (second.recall, second.precision) == (1.0, 0.5)

    def test_nothing_has_a_value_for_each_pair_of_classes(self, tmp_path) -> None:
        count, rng = 3000, np.random.default_rng(0)
        task, labels = Classification(numbered(count)), rng.integers(0, count, 64)
        outputs = rng.standard_normal((64, count), np.float32)
        batches = [(outputs[i : i + 8], labels[i : i + 8]) for i in range(0, 64, 8)]
        gc.collect()
        tracemalloc.start()
        result = task.evaluate(batches)
        assert result.to_dict()["confusion"] is None
        result.write_per_class(tmp_path / "classes.csv")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < count * count

    def test_the_matrix_is_written_row_by_row(self, tmp_path) -> None:
        rng, task = np.random.default_rng(0), Classification(numbered(7))
        labels, outputs = rng.integers(0, 6, 40), rng.standard_normal((40, 7), np.float32)
        result = task.evaluate([(outputs, labels)])
        result.write_confusion(tmp_path / "rows.csv")
        with (tmp_path / "rows.csv").open(newline="", encoding="utf-8") as file:
            titles, *rows = csv.reader(file)
        assert titles == ["class", *task.classes]
        assert [[int(cell) for cell in row[1:]] for row in rows] == result.confusion.tolist()
        assert [row[0] for row in rows] == list(task.classes)

    def test_up_to_five_classes_are_all_among_the_top_five(self) -> None:
        outputs = np.array([[5, 4, 3, 2, 1]], np.float32)
        result = Classification(numbered(5)).evaluate([(outputs, np.array([4]))])
        assert (result.top1, result.top5) == (0, 1)

    def test_the_sixth_class_is_not_among_the_top_five(self) -> None:
        outputs = np.array([[6, 5, 4, 3, 2, 1]] * 2, np.float32)
        result = Classification(numbered(6)).evaluate([(outputs, np.array([4, 5]))])
        assert result.top5 == 0.5


def reader(*titles: str, free: tuple[int, ...] | None = None):
    columns = tuple(range(len(titles))) if free is None else free
    return Classification.columns(titles, columns, "t.csv")


class TestColumns:
    def test_label_comes_before_class_wherever_they_stand(self) -> None:
        assert reader("class", "other", "label")(["a", "b", "c"], 2) == "c"
        assert reader("other", "class")(["a", "b"], 2) == "b"

    def test_titles_are_found_in_any_case(self) -> None:
        assert reader("LABEL")(["a"], 2) == "a"
        assert reader("Class")(["a"], 2) == "a"

    def test_the_first_of_two_columns_counts(self) -> None:
        assert reader("label", "Label")(["first", "second"], 2) == "first"

    def test_a_column_that_is_not_free_is_not_the_label(self) -> None:
        assert reader("label", "other", free=(1,)) is None
        assert reader() is None

    def test_classes_have_no_titles(self) -> None:
        assert reader("label", "young").titles == ()

    def test_a_row_without_a_label_is_refused_with_its_line(self) -> None:
        read = reader("file", "label")
        with pytest.raises(PocketuneError, match=r"t\.csv has no label in line 7; add it"):
            read(["a.png", ""], 7)

    def test_accents_are_composed(self) -> None:
        assert reader("label")(["gro\u0308ße"], 2) == "größe"


class TestLabels:
    @pytest.mark.parametrize(
        ("labels", "classes"),
        [
            (["10", "9", "1"], ("1", "9", "10")),
            (["10", "9", "b"], ("10", "9", "b")),
            (["b", "a", "b"], ("a", "b")),
            (["-1", "1", "0"], ("-1", "0", "1")),
            (["1.5", "10"], ("1.5", "10")),
            (["é", "z", "Z"], ("Z", "z", "é")),
            ([], ()),
        ],
    )
    def test_the_order_of_the_classes(self, labels: list[str], classes: tuple[str, ...]) -> None:
        assert Classification.find_classes(labels, ()) == classes

    @given(st.lists(st.sampled_from(["a", "b", "ключ", "10", "9"]), min_size=1))
    def test_positions_name_the_classes_again(self, labels: list[str]) -> None:
        task = Classification(Classification.find_classes(labels, ()))
        encoded = task.encode(labels, (), "photos", complete=True)
        assert encoded.dtype == np.int64
        assert [task.classes[position] for position in encoded] == labels
        assert task.strata(encoded).tolist() == encoded.tolist()

    def test_no_labels(self) -> None:
        encoded = TWO.encode([], (), "photos", complete=False)
        assert (encoded.dtype, encoded.shape) == (np.int64, (0,))

    def test_a_class_that_has_no_image_is_named(self) -> None:
        assert TWO.encode(["b"], (), "photos", complete=False).tolist() == [1]
        with pytest.raises(PocketuneError, match="the class 'a' in photos has no readable image"):
            TWO.encode(["b"], (), "photos", complete=True)

    def test_an_image_of_another_class_is_refused_with_the_known_ones(self) -> None:
        message = "photos has images of the class 'c', which is not one of the 2 classes .*: a, b$"
        with pytest.raises(PocketuneError, match=message):
            TWO.encode(["a", "d", "c"], (), "photos", complete=False)

    def test_a_thousand_classes_are_not_all_listed(self) -> None:
        with pytest.raises(PocketuneError) as error:
            Classification(numbered(1000)).encode(["cat"], (), "photos", complete=False)
        assert len(str(error.value)) < 400

    def test_what_validates_has_to_train(self) -> None:
        TWO.check_training(np.array([0, 1]), np.array([1]), "photos")
        TWO.check_training(np.array([0, 1]), np.array([], np.int64), "photos")
        three = Classification(("a", "b", "c"))
        with pytest.raises(PocketuneError, match="the class 'c' in photos has validation images"):
            three.check_training(np.array([0, 1]), np.array([0, 2]), "photos")
        with pytest.raises(PocketuneError, match="training images of one class only, 'b'"):
            TWO.check_training(np.array([1, 1]), np.array([0]), "photos")


def test_a_network_without_a_task_tells_numbered_classes_apart() -> None:
    assert default_task(3) == Classification(("0", "1", "2"))
