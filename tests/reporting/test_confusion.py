"""Matrices that are grouped, and pairs that are confused."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pocketune.reporting.confusion import confused_pairs, most_confused
from pocketune.tasks.results import Confusions

counts = st.integers(2, 9).flatmap(lambda n: arrays(np.int64, (n, n), elements=st.integers(0, 20)))


def confusions(names, matrix):
    """A matrix as the pairs of classes that occur."""
    found = np.argwhere(matrix)
    return Confusions(names, np.c_[found, matrix[tuple(found.T)]])


@given(counts, st.integers(2, 9))
def test_grouping_keeps_all_photos_and_the_kept_cells(matrix, limit):
    names = [f"c{i}" for i in range(len(matrix))]
    found = most_confused(confusions(names, matrix), limit)
    assert len(found.names) == min(limit, len(names)) == len(found.counts)
    assert found.counts.sum() == matrix.sum()
    kept = [name for name in found.names if name in names]
    assert kept == sorted(kept)
    for i, row in enumerate(kept):
        for j, column in enumerate(kept):
            assert found.counts[i, j] == matrix[names.index(row), names.index(column)]


@given(counts)
def test_pairs_are_the_largest_cells_off_the_diagonal(matrix):
    names = [f"c{i}" for i in range(len(matrix))]
    pairs = confused_pairs(confusions(names, matrix), 5)
    wrong = sorted(
        (int(matrix[i, j]) for i in range(len(matrix)) for j in range(len(matrix)) if i != j),
        reverse=True,
    )
    assert [pair.photos for pair in pairs] == [count for count in wrong[:5] if count]
    for pair in pairs:
        assert matrix[names.index(pair.truth), names.index(pair.guess)] == pair.photos


def test_the_classes_that_are_never_confused_are_grouped():
    matrix = np.diag([9, 9, 9, 9])
    matrix[1, 3] = 2
    found = most_confused(confusions(["a", "b", "c", "d"], matrix), 3)
    assert found.names == ("b", "d", "2 others")
    assert found.counts.tolist() == [[9, 2, 0], [0, 9, 0], [0, 0, 18]]


def test_no_matrix_of_all_classes_is_made():
    names = [str(i) for i in range(200_000)]
    found = Confusions(names, np.array([[7, 7, 3], [7, 199_999, 2], [8, 8, 1]]))
    assert confused_pairs(found, 3) == (("7", "199999", 2),)
    assert most_confused(found, 3).names == ("7", "199999", "199998 others")
