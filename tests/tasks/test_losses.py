"""Losses, right guesses and probabilities in numpy, against PyTorch in float64."""

import numpy as np
import pytest

from pocketune.tasks.losses import LOSSES, binary_cross_entropy, loss_name, sigmoid, softmax

BINARY = LOSSES["binary_cross_entropy"]


def test_labels_tell_the_loss() -> None:
    assert loss_name(np.zeros(3, np.int64)) == "cross_entropy"
    assert loss_name(np.zeros((3, 1), np.uint8)) == "binary_cross_entropy"


def test_equal_to_torch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    logits = 5 * rng.standard_normal((50, 7), np.float32)
    labels = rng.integers(0, 2, (50, 7), np.uint8)
    exact = torch.from_numpy(logits).double()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        exact, torch.from_numpy(labels).double(), reduction="none"
    )
    np.testing.assert_allclose(BINARY.values(logits, labels), expected.mean(1), rtol=1e-12)
    np.testing.assert_allclose(sigmoid(logits), exact.sigmoid(), rtol=1e-12)
    np.testing.assert_allclose(softmax(logits), exact.softmax(1), rtol=1e-12)


def test_large_logits() -> None:
    logits = np.array([[1e4, -1e4], [1e4, -1e4]], np.float32)
    labels = np.array([[1, 0], [0, 0]], np.uint8)
    np.testing.assert_allclose(binary_cross_entropy(logits, labels), [0, 5e3])
    np.testing.assert_allclose(sigmoid(logits), [[1, 0]] * 2)
    assert BINARY.correct(logits, labels).tolist() == [[True, True], [False, True]]


def test_a_half_is_not_there() -> None:
    logits, absent = np.zeros((1, 1), np.float32), np.zeros((1, 1), np.uint8)
    assert BINARY.correct(logits, absent).all()
