"""Types and helpers of arrays that both halves share."""

import numpy as np
import pytest

from pocketune.arrays import distinct


@pytest.mark.parametrize("values", [[], [3], [2, 0, 2, 1, 0]])
def test_distinct_is_what_numpy_calls_unique(values):
    values = np.array(values, np.int64)
    np.testing.assert_array_equal(distinct(values), np.unique(values))
    assert distinct(values).dtype == np.int64
