"""Any number of attributes for each image: the loss in numpy, and the results."""

import csv
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.errors import PocketuneError
from pocketune.tasks import Attributes, numbered
from pocketune.tasks.attributes import AttributeEvaluation, AttributePrediction, sigmoid
from pocketune.tasks.classification import Guess

TWO = Attributes(("young", "bald"))
GUESSES = (Guess("young", 0.9), Guess("bald", 0.5))


def test_the_loss_and_probabilities_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    logits = 5 * rng.standard_normal((50, 7), np.float32)
    labels = rng.integers(0, 2, (50, 7), np.uint8)
    exact = torch.from_numpy(logits).double()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        exact, torch.from_numpy(labels).double(), reduction="none"
    )
    losses = Attributes(numbered(7)).losses(logits, labels)
    np.testing.assert_allclose(losses, expected.mean(1), rtol=1e-12)
    np.testing.assert_allclose(sigmoid(logits), exact.sigmoid(), rtol=1e-12)


def test_numbers_of_them_in_words() -> None:
    assert (Attributes.counted(1), Attributes.counted(2_000)) == ("1 attribute", "2,000 attributes")


def test_large_logits() -> None:
    logits = np.array([[1e4, -1e4], [1e4, -1e4]], np.float32)
    labels = np.array([[1, 0], [0, 0]], np.uint8)
    np.testing.assert_allclose(TWO.losses(logits, labels), [0, 5e3])
    np.testing.assert_allclose(sigmoid(logits), [[1, 0]] * 2)
    assert TWO.marks(logits, labels).tolist() == [[True, True], [False, True]]


def test_a_half_is_absent() -> None:
    logits, absent = np.zeros((1, 1), np.float32), np.zeros((1, 1), np.uint8)
    assert TWO.marks(logits, absent).all()
    assert str(TWO.predict("x", np.zeros(2, np.float32), None)) == "none of the attributes"


def test_a_prediction_in_json_and_in_a_line() -> None:
    result = AttributePrediction("a.png", GUESSES)
    assert str(result) == "young 90.0%"
    assert str(AttributePrediction("a.png", GUESSES, chosen=True)) == "young 90.0%, bald 50.0%"
    assert result.to_dict() == {
        "image": "a.png",
        "attributes": [
            {"attribute": "young", "probability": 0.9, "present": True},
            {"attribute": "bald", "probability": 0.5, "present": False},
        ],
    }


def test_an_evaluation_in_json_and_in_lines() -> None:
    result = AttributeEvaluation(("bald", "young"), np.array([[[1, 1], [1, 1]], [[4, 0], [0, 0]]]))
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == {
        "images": 4,
        "accuracy": 0.75,
        "attributes": [
            {"attribute": "bald", "present": 2, "accuracy": 0.5, "recall": 0.5, "precision": 0.5},
            {
                "attribute": "young",
                "present": 0,
                "accuracy": 1.0,
                "recall": None,
                "precision": None,
            },
        ],
        "skipped": [],
    }
    assert str(result).splitlines() == [
        "mean accuracy 75.0% of 2 attributes of 4 photos",
        "  bald    50.0%  recall  50.0%  precision  50.0%  2 photos",
        "  young  100.0%  recall   none  precision   none  0 photos",
    ]


def test_attributes_have_no_confusion_matrix(tmp_path) -> None:
    result = AttributeEvaluation(("bald",), np.zeros((1, 2, 2), np.int64))
    with pytest.raises(PocketuneError, match="has no confusion matrix"):
        result.write_confusion(tmp_path / "out.csv")
    assert not list(tmp_path.iterdir())


class TestProbabilities:
    @given(st.floats(-700, 700, width=32))
    def test_presence_and_absence_add_up_to_one(self, logit: float) -> None:
        pair = sigmoid(np.array([logit, -logit], np.float32))
        assert pair.sum() == pytest.approx(1)

    @given(st.floats(-700, 700, width=32), st.integers(0, 1))
    def test_the_loss_is_the_logarithm_of_the_probability(self, logit: float, label: int) -> None:
        output = np.array([[logit]], np.float32)
        (loss,) = Attributes(("a",)).losses(output, np.array([[label]], np.uint8))
        probability = sigmoid(output if label else -output).item()
        assert loss >= 0
        assert loss == pytest.approx(-math.log(probability), rel=1e-9, abs=1e-12)

    def test_the_loss_is_the_mean_over_the_attributes(self) -> None:
        zero = np.zeros((1, 2), np.float32)
        losses = TWO.losses(zero, np.array([[0, 1]], np.uint8))
        np.testing.assert_allclose(losses, [math.log(2)])


class TestPrediction:
    def test_the_likeliest_come_first_and_ties_in_their_order(self) -> None:
        task = Attributes(("a", "b", "c"))
        guesses = task.predict("x", np.array([1, 2, 1], np.float32), None).guesses
        assert [guess.label for guess in guesses] == ["b", "a", "c"]
        assert guesses[1].probability == guesses[2].probability

    def test_logits_whose_probabilities_round_to_a_tie_keep_their_order(self) -> None:
        guesses = TWO.predict("x", np.array([50, 51], np.float32), None).guesses
        assert guesses[0].probability == guesses[1].probability == 1
        assert [guess.label for guess in guesses] == [*reversed(TWO.classes)]

    def test_as_many_as_are_asked_for_are_named_though_absent(self) -> None:
        task = Attributes(("a", "b", "c"))
        output = np.array([-1, -9, -2], np.float32)
        assert str(task.predict("x", output, None)) == "none of the attributes"
        assert str(task.predict("x", output, 2)) == "a 26.9%, c 11.9%"
        assert len(task.predict("x", output, 99).guesses) == 3


class TestEvaluation:
    @given(st.integers(1, 5), st.integers(0, 20), st.integers(0, 2**32 - 1))
    def test_each_attribute_counts_each_photo_once(self, attributes, images, seed) -> None:
        rng, task = np.random.default_rng(seed), Attributes(numbered(attributes))
        outputs = rng.integers(-2, 3, (images, attributes)).astype(np.float32)
        labels = rng.integers(0, 2, (images, attributes), np.uint8)
        result = task.evaluate([(outputs, labels)])
        for number, figures in enumerate(result.per_attribute):
            has, taken = labels[:, number] == 1, outputs[:, number] > 0
            assert figures.images == images
            assert (figures.present, figures.predicted) == (has.sum(), taken.sum())
            assert figures.found == (has & taken).sum()
            if images:
                assert figures.accuracy == pytest.approx((has == taken).mean())

    def test_figures_of_one_attribute(self) -> None:
        result = AttributeEvaluation(("a",), np.array([[[5, 1], [2, 4]]]))  # absent, then present
        (figures,) = result.per_attribute
        assert figures.accuracy == 9 / 12
        assert figures.recall == 4 / 6
        assert figures.precision == 4 / 5

    def test_csv(self, tmp_path) -> None:
        counts = np.array([[[1, 1], [1, 1]], [[4, 0], [0, 0]]])
        path = tmp_path / "attributes.csv"
        AttributeEvaluation(("größe, groß", "b"), counts).write_per_class(path)
        with path.open(encoding="utf-8", newline="") as file:
            assert list(csv.reader(file)) == [
                ["attribute", "images", "present", "accuracy", "recall", "precision"],
                ["größe, groß", "4", "2", "0.5", "0.5", "0.5"],
                ["b", "4", "0", "1.0", "nan", "nan"],
            ]


def reader(*titles: str, free: tuple[int, ...] | None = None):
    """Of a table whose first column is the file."""
    columns = tuple(range(1, len(titles))) if free is None else free
    return Attributes.columns(titles, columns, "t.csv")


class TestColumns:
    def test_every_free_column_is_an_attribute(self) -> None:
        read = reader("file", "young", "split", "bald", free=(1, 3))
        assert read.titles == ("young", "bald")
        assert read(["a.png", "1", "train", "0"], 2) == bytes([1, 0])

    @pytest.mark.parametrize("titles", [("file",), ("file", "Label", "young"), ("file", "class")])
    def test_without_attributes_another_task_reads_the_table(self, titles) -> None:
        assert reader(*titles) is None

    def test_minus_one_is_absent(self) -> None:
        read = reader("file", "young", "bald")
        assert read(["a", "-1", "1"], 2) == bytes([0, 1])
        assert read(["b", "1", "1"], 3) == bytes([1, 1])

    def test_both_ways_to_say_absent_are_refused_also_in_different_rows(self) -> None:
        read = reader("file", "young")
        read(["a", "-1"], 2)
        with pytest.raises(PocketuneError, match=r"t\.csv has both 0 and -1"):
            read(["b", "0"], 3)

    @pytest.mark.parametrize(
        ("row", "said"),
        [
            (["a", "1", "maybe"], "'maybe' for 'bald' in line 4"),
            (["a", "2", "maybe"], "'2' for 'young' in line 4"),
            (["a", "1.5", "1"], "'1.5' for 'young' in line 4"),
            (["a", "\u0661", "1"], "'\u0661' for 'young' in line 4"),
            (["a", "1", ""], "no value for 'bald' in line 4"),
            (["a", "1", "0", "1"], "more values than titles in line 4"),
        ],
    )
    def test_other_values_are_refused_with_their_place(self, row: list[str], said: str) -> None:
        with pytest.raises(PocketuneError, match=said):
            reader("file", "young", "bald")(row, 4)

    def test_separators_at_the_end_of_a_line_are_harmless(self) -> None:
        assert reader("file", "young")(["a", "1", "", ""], 2) == b"\1"

    def test_names_that_only_look_different_are_the_same(self) -> None:
        with pytest.raises(PocketuneError, match="two columns 'größe'"):
            reader("file", "größe", "gro\u0308ße")


class TestLabels:
    @given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1))
    def test_the_columns_of_the_trained_attributes_in_their_order(self, rows) -> None:
        task = Attributes(("c", "a"))
        labels = task.encode([bytes(row) for row in rows], ("a", "b", "c"), "t", complete=True)
        assert labels.dtype == np.uint8
        assert labels.tolist() == [[c, a] for a, b, c in rows]

    def test_a_table_without_a_trained_attribute_is_refused_with_its_columns(self) -> None:
        with pytest.raises(PocketuneError, match=r"no column for the attribute 'young'.* old$"):
            TWO.encode([b"\1"], ("old",), "t", complete=False)

    def test_the_order_of_the_table_is_that_of_the_attributes(self) -> None:
        assert Attributes.find_classes([b"\1\0"], ("young", "bald")) == ("young", "bald")

    def test_images_must_differ_in_an_attribute(self) -> None:
        same, none = np.array([[1, 0], [1, 0]], np.uint8), np.empty((0, 2), np.uint8)
        with pytest.raises(PocketuneError, match="all have the same attributes"):
            TWO.check_training(same, none, "t")
        TWO.check_training(np.array([[1, 0], [1, 1]], np.uint8), none, "t")

    def test_a_batch_of_labels(self) -> None:
        rows = [np.array([1, 0], np.uint8), np.array([0, 0], np.uint8)]
        batch = TWO.collate(rows)
        assert (batch.dtype, batch.tolist()) == (np.uint8, [[1, 0], [0, 0]])
