"""Any number of attributes for each image: the loss in numpy, and what is told of them."""

import json

import numpy as np
import pytest

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
        "  bald    50.0%",
        "  young  100.0%",
    ]


def test_attributes_have_no_confusion_matrix(tmp_path) -> None:
    result = AttributeEvaluation(("bald",), np.zeros((1, 2, 2), np.int64))
    with pytest.raises(PocketuneError, match="has no confusion matrix"):
        result.write_confusion(tmp_path / "out.csv")
    assert not list(tmp_path.iterdir())
