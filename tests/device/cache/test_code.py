"""Encoded features are as near as their bits allow, and always the same bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.device.cache.code import BLOCK, EXACT, Code, Features

shapes = st.sampled_from([(1,), (BLOCK,), (BLOCK + 1,), (5, 7, 9), (300, 2)])


def features_of(shape: tuple[int, ...], seed: int, scale: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (scale * rng.standard_normal(shape) ** 3 + rng.uniform(-9, 9)).astype(np.float32)


def again(code: Code, features: np.ndarray) -> np.ndarray:
    content = code.encode(features)
    assert len(content) == code.size
    return code.decode(np.frombuffer(content, np.uint8)[np.newaxis])[0]


@pytest.mark.parametrize("bits", [8, 16])
@given(shapes, st.integers(0, 2**32), st.floats(1e-6, 1e6))
def test_no_value_is_off_by_more_than_half_a_level(bits, shape, seed, scale) -> None:
    features, code = features_of(shape, seed, scale), Code(shape, bits)
    found = again(code, features)
    assert (found.shape, found.dtype) == (shape, np.float32)
    for start in range(0, features.size, BLOCK):
        exact = features.ravel()[start : start + BLOCK].astype(np.float64)
        error = np.abs(found.ravel()[start : start + BLOCK] - exact).max()
        rounding = 3e-7 * np.abs(exact).max()  # of float32
        assert error <= np.ptp(exact) / (2 * (2**bits - 1)) + rounding


@given(shapes, st.integers(0, 2**32))
def test_32_bits_are_the_values_themselves(shape, seed) -> None:
    features = features_of(shape, seed)
    np.testing.assert_array_equal(again(Code(shape, EXACT), features), features)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("value", [0.0, -3.25, 1e30])
def test_equal_values_are_exact(bits: int, value: float) -> None:
    features = np.full((3, 70), value, np.float32)
    np.testing.assert_array_equal(again(Code((3, 70), bits), features), features)


@pytest.mark.parametrize("bits", [8, 16, EXACT])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_not_hidden(bits: int, value: float) -> None:
    features = features_of((2 * BLOCK,), 0)
    features[3] = value
    found = again(Code((2 * BLOCK,), bits), features)
    assert not np.isfinite(found[3])
    assert np.isfinite(found[BLOCK:]).all()


@pytest.mark.parametrize("bits", [8, 16, EXACT])
def test_a_batch_in_parts(bits: int) -> None:
    code = Code((4, 50), bits)
    images = [features_of(code.shape, seed) for seed in range(5)]
    content = b"".join(code.encode(image) + b"label" for image in images)
    rows = np.frombuffer(content, np.uint8).reshape(5, -1)[:, : code.size]
    batch = Features(code, rows)
    assert (len(batch), batch.shape, len(batch[3:])) == (5, (5, 4, 50), 2)
    expected = np.stack([again(code, image) for image in images])
    np.testing.assert_array_equal(batch.decoded(), expected)
    np.testing.assert_array_equal(batch[1:3].decoded(), expected[1:3])
