"""One class for each image: the loss in numpy, and what is told of it."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pocketune.errors import PocketuneError
from pocketune.files import Skipped
from pocketune.tasks import Classification, numbered
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
    confusion = np.array([[3, 1], [0, 0]])
    return ClassEvaluation(("größe, groß", 'a "b"'), confusion, among_top5=4, skipped=())


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
    with pytest.raises(PocketuneError, match="cannot be written"):
        small.write_confusion(tmp_path / "missing" / "confusion.csv")


def test_plain_values(small: ClassEvaluation) -> None:
    values = replace(small, skipped=(Skipped("a.txt", "not an image"),)).to_dict()
    assert json.loads(json.dumps(values, allow_nan=False)) == {
        "images": 4,
        "top1": 0.75,
        "top5": 1.0,
        "classes": [
            {"class": "größe, groß", "images": 4, "correct": 3, "recall": 0.75, "precision": 1.0},
            {"class": 'a "b"', "images": 0, "correct": 0, "recall": None, "precision": 0.0},
        ],
        "confusion": [[3, 1], [0, 0]],
        "skipped": [{"image": "a.txt", "reason": "not an image"}],
    }
    assert str(small) == "top-1 75.0%, top-5 100.0% of 4 photos"
