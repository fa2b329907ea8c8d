"""The projection of long embeddings, against principal components in float64."""

import numpy as np
import pytest

from pocketune.device.head.projection import RANK, Projection, orthonormal, projection_bytes
from pocketune.device.head.sums import add_up
from pocketune.tasks import Classification, numbered

from .brute import balanced, blocks

SIZE = RANK + 40


def photos(counts: tuple[int, ...], decay: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings whose variances fall by a power law."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    scales = np.arange(1, SIZE + 1) ** -decay
    turn = np.linalg.qr(rng.normal(size=(SIZE, SIZE)))[0]
    rows = (rng.normal(size=(len(labels), SIZE)) + labels[:, None]) * scales @ turn
    return (2 + rows).astype(np.float32), labels


def project(rows: np.ndarray, labels: np.ndarray) -> Projection:
    given = blocks(rows, labels, 64)
    return Projection.of(given, add_up(given, Classification(numbered(int(labels.max()) + 1))))


def test_it_loses_no_more_variance_than_expected() -> None:
    """Halko et al. (2011), theorem 10.5, with a half of the directions as oversampling."""
    rows, labels = photos((700, 80))
    found = project(rows, labels)
    np.testing.assert_allclose(found.axes.T @ found.axes, np.eye(RANK), atol=1e-5)
    weighted = np.sqrt(balanced(labels))[:, None] * (rows.astype(np.float64) - found.center)
    squares = np.linalg.svd(weighted, compute_uv=False) ** 2
    kept = np.square(weighted @ found.axes).sum()
    assert squares.sum() - kept < 2.01 * squares[RANK // 2 :].sum()


def test_few_photos_keep_all_their_differences() -> None:
    rows, labels = photos((9, 5))
    found = project(rows, labels)
    assert found.axes.shape == (SIZE, 13)
    ((short, same),) = found.apply(blocks(rows, labels, 64))()
    np.testing.assert_array_equal(same, labels)
    distances = [np.linalg.norm(x[:, None] - x[None], axis=2) for x in (rows, short)]
    np.testing.assert_allclose(distances[1], distances[0], rtol=1e-4, atol=1e-5)


def test_the_layer_gives_the_outputs_of_the_short_one() -> None:
    rows, labels = photos((9, 5))
    found, rng = project(rows, labels), np.random.default_rng(1)
    weight, bias = rng.normal(size=(2, found.axes.shape[1])), rng.normal(size=2)
    ((short, _),) = found.apply(blocks(rows, labels, 64))()
    full, moved = found.layer(weight, bias)
    np.testing.assert_allclose(rows @ full.T + moved, short @ weight.T + bias, atol=1e-4)


def test_equal_photos_have_no_directions() -> None:
    assert project(np.ones((8, SIZE), np.float32), np.arange(8) % 2).axes.shape == (SIZE, 0)


@pytest.mark.parametrize("condition", [1e1, 1e5])
def test_ill_conditioned_vectors_become_orthonormal(condition: float) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(200, 30)) * np.geomspace(1, 1 / condition, 30)
    axes = orthonormal(vectors.astype(np.float32))
    np.testing.assert_allclose(axes.T @ axes, np.eye(30), atol=1e-4)


def test_short_embeddings_need_no_memory_for_it() -> None:
    assert projection_bytes(1000, RANK) == 0
    assert projection_bytes(1000, RANK + 1) == 4 * RANK * (RANK + 1)
