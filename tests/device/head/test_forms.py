"""The closed forms, and their leave-one-out outputs, against refits in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketune.device.head.gaussian import LDA, UNSCATTERED, Means
from pocketune.device.head.ridge import Ridge
from pocketune.device.head.sums import add_up
from pocketune.tasks import Attributes, Classification, numbered

from . import brute

STRENGTHS = np.array([1e-2, 1.0, 30.0])


@st.composite
def classes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    """Embeddings of 2 to 5 classes of 2 to 9 photos each, in 1 to 12 dimensions."""
    counts = draw(st.lists(st.integers(2, 9), min_size=2, max_size=5))
    size = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    rows = rng.normal(size=(len(counts), size))[labels] + rng.normal(size=(len(labels), size))
    return (3 + rows).astype(np.float32), labels, len(counts)


def without(index: int, *arrays: np.ndarray) -> list[np.ndarray]:
    return [np.delete(array, index, axis=0) for array in arrays]


def compare(found: np.ndarray, expected: np.ndarray) -> None:
    """Scores of a softmax are equal up to a constant for each photo."""
    found = found - found.mean(axis=1, keepdims=True)
    expected = expected - expected.mean(axis=1, keepdims=True)
    largest = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * largest)


def outputs(layer: tuple[np.ndarray, np.ndarray], rows: np.ndarray) -> np.ndarray:
    weight, bias = layer
    return rows @ weight.T + bias


@given(classes())
@settings(max_examples=40, deadline=None)
def test_class_means(drawn: tuple[np.ndarray, np.ndarray, int]) -> None:
    rows, labels, count = drawn
    sums = add_up(brute.blocks(rows, labels), Classification(numbered(count)))
    form = Means(brute.blocks(rows, labels), sums)
    exact = rows.astype(np.float64)
    variance = np.trace(brute.scatter(exact, labels)) / (rows.shape[1] * (len(rows) - count))
    inverse = np.eye(rows.shape[1]) / variance
    compare(
        outputs(form.layer(0), exact), outputs(brute.gaussian(exact, labels, inverse, count), exact)
    )
    (found,) = form.left_out(rows, labels)
    expected = [
        outputs(brute.gaussian(*without(i, exact, labels), inverse, count), exact[i : i + 1])
        for i in range(len(rows))
    ]
    compare(found, np.concatenate(expected))


def test_class_means_of_single_photos_are_not_certain() -> None:
    rows = np.random.default_rng(0).normal(3, 20, size=(6, 300)).astype(np.float32)
    sums = add_up(brute.blocks(rows, np.arange(6)), Classification(numbered(6)))
    found = outputs(Means(brute.blocks(rows, np.arange(6)), sums).layer(0), rows)
    leads = found.diagonal()[:, None] - found
    assert leads.sum() / 30 == pytest.approx(UNSCATTERED, rel=1e-5)
    same = np.ones((6, 300), np.float32)
    sums = add_up(brute.blocks(same, np.arange(6)), Classification(numbered(6)))
    assert np.isfinite(Means(brute.blocks(same, np.arange(6)), sums).layer(0)[0]).all()


@given(classes())
@settings(max_examples=40, deadline=None)
def test_lda(drawn: tuple[np.ndarray, np.ndarray, int]) -> None:
    rows, labels, count = drawn
    sums = add_up(brute.blocks(rows, labels), Classification(numbered(count)))
    form = LDA(brute.blocks(rows, labels), sums, STRENGTHS)
    exact, size = rows.astype(np.float64), rows.shape[1]
    unit = np.trace(brute.scatter(exact, labels)) / size
    left_out = list(form.left_out(rows, labels))
    for index, strength in enumerate(STRENGTHS):

        def fit(
            rows: np.ndarray, labels: np.ndarray, strength: float = strength
        ) -> tuple[np.ndarray, np.ndarray]:
            covariance = brute.scatter(rows, labels) + strength * unit * np.eye(size)
            free = len(exact) - count
            return brute.gaussian(rows, labels, free * np.linalg.inv(covariance), count)

        compare(outputs(form.layer(index), exact), outputs(fit(exact, labels), exact))
        expected = [
            outputs(fit(*without(i, exact, labels)), exact[i : i + 1]) for i in range(len(rows))
        ]
        compare(left_out[index], np.concatenate(expected))


@given(classes())
@settings(max_examples=20, deadline=None)
def test_a_class_without_photos_changes_nothing_and_is_not_predicted(
    drawn: tuple[np.ndarray, np.ndarray, int],
) -> None:
    rows, labels, count = drawn
    more = labels + (labels > 0)  # class 1 is empty
    present = np.delete(np.arange(count + 1), 1)
    for make in (Means, lambda *given: LDA(*given, STRENGTHS)):
        alone, with_empty = (
            make(blocks, add_up(blocks, Classification(numbered(classes))))
            for blocks, classes in (
                (brute.blocks(rows, labels), count),
                (brute.blocks(rows, more), count + 1),
            )
        )
        for index in range(len(alone.strengths)):
            expected = outputs(alone.layer(index), rows.astype(np.float64))
            found = outputs(with_empty.layer(index), rows.astype(np.float64))
            compare(found[:, present], expected)
            assert (found.argmax(axis=1) != 1).all()
            weight, _ = with_empty.layer(index)
            np.testing.assert_allclose(weight[1], 0, atol=1e-9 * np.abs(weight).max())


@given(classes(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_ridge(drawn: tuple[np.ndarray, np.ndarray, int], exclusive: bool) -> None:
    rows, labels, count = drawn
    exact, weights = rows.astype(np.float64), brute.balanced(labels)
    task = Classification(numbered(count))
    if not exclusive:
        task, weights = Attributes(numbered(count)), np.ones(len(rows))
        labels = np.random.default_rng(len(rows)).integers(0, 2, (len(rows), count), dtype=np.uint8)
    sums = add_up(brute.blocks(rows, labels), task)
    form = Ridge(brute.blocks(rows, labels), sums, STRENGTHS)
    targets = task.targets(labels).astype(np.float64)
    centered = exact - weights @ exact / len(exact)
    unit = float((weights[:, None] * centered**2).sum()) / rows.shape[1]
    left_out = list(form.left_out(rows, labels))
    for index, strength in enumerate(STRENGTHS):
        args = (exact, targets, weights)
        whole = brute.ridge(*args, strength * unit)
        np.testing.assert_allclose(
            outputs(form.layer(index), exact), outputs(whole, exact), rtol=0, atol=1e-6
        )
        expected = [
            outputs(brute.ridge(*without(i, *args), strength * unit), exact[i : i + 1])
            for i in range(len(rows))
        ]
        np.testing.assert_allclose(left_out[index], np.concatenate(expected), rtol=0, atol=1e-6)
