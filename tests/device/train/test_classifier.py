"""A new output layer."""

import numpy as np
import pytest

from pocketune.device.train.classifier import with_new_classifier
from pocketune.kit.manifest import ClassifierSpec

SPEC = ClassifierSpec("fc.weight", "fc.bias")


@pytest.mark.parametrize("tail", [(50,), (50, 1, 1)], ids=["linear", "convolution"])
def test_shape_range_and_dtype(tail: tuple[int, ...]) -> None:
    other = np.ones(3, np.float32)
    state = {
        "fc.weight": np.zeros((10, *tail), np.float32),
        "fc.bias": np.ones(10, np.float32),
        "other": other,
    }
    new = with_new_classifier(state, SPEC, classes=200, seed=0)
    assert new["fc.weight"].shape == (200, *tail)
    assert new["fc.weight"].dtype == new["fc.bias"].dtype == np.float32
    limit = 1 / np.sqrt(50)
    assert 0.99 * limit < np.abs(new["fc.weight"]).max() <= np.float32(limit)
    np.testing.assert_array_equal(new["fc.bias"], np.zeros(200))
    assert new["other"] is other
    assert state["fc.weight"].shape[0] == 10


def test_seeded() -> None:
    state = {"fc.weight": np.zeros((2, 5), np.float32), "fc.bias": np.zeros(2, np.float32)}
    first, same, other = (
        with_new_classifier(state, SPEC, classes=3, seed=seed)["fc.weight"] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)
