"""Loss and accuracy on labeled photos."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from pocketune.arrays import FloatArray
from pocketune.data import Batch
from pocketune.device.train.validation import validate
from pocketune.tasks.losses import cross_entropy


class Pixels:
    """Takes the first pixels as logits."""

    def predict(self, images: np.ndarray) -> FloatArray:
        return images[:, 0, 0, :].astype(np.float32)


def batches(*logits: list[list[int]]) -> Iterator[Batch]:
    for rows in logits:
        images = np.array(rows, np.uint8)[:, None, None, :]
        yield Batch(images, np.zeros(len(rows), np.int64), tuple("x" * len(rows)))


def test_counts_photos_and_not_batches() -> None:
    calls: list[None] = []
    result = validate(
        Pixels(),  # type: ignore[arg-type]
        batches([[9, 0, 0], [9, 0, 0], [9, 0, 0]], [[0, 9, 0]]),
        lambda: calls.append(None),
    )
    assert (result.images, result.accuracy, len(calls)) == (4, 0.75, 2)
    right, wrong = math.log(1 + 2 * math.exp(-9)), 9 + math.log(1 + 2 * math.exp(-9))
    assert result.loss == pytest.approx((3 * right + wrong) / 4)


def test_the_share_of_right_guesses_is_exact() -> None:
    right, wrong = [9, 0, 0], [0, 9, 0]
    rows = [right] * 7 + [wrong] * 18, [wrong] * 22
    result = validate(Pixels(), batches(*rows), lambda: None)  # type: ignore[arg-type]
    assert result.accuracy == 7 / 47


def test_no_photos() -> None:
    result = validate(Pixels(), iter(()), lambda: None)  # type: ignore[arg-type]
    assert result.images == 0
    assert math.isnan(result.loss)


def test_cross_entropy_does_not_overflow() -> None:
    logits = np.array([[1e4, 0], [0, 1e4]], np.float32)
    np.testing.assert_allclose(cross_entropy(logits, np.array([0, 0])), [0, 1e4])


def test_cross_entropy_equals_torch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((50, 7), np.float32)
    labels = rng.integers(0, 7, 50)
    expected = torch.nn.functional.cross_entropy(
        torch.from_numpy(logits), torch.from_numpy(labels), reduction="none"
    )
    np.testing.assert_allclose(cross_entropy(logits, labels), expected.numpy(), rtol=1e-5)
