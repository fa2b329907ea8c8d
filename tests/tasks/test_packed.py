"""Masks are the same once they are unpacked, and take little while they wait."""

import numpy as np
import pytest

from pocketune.tasks.packed import _BLOCK, PackedMask, packed_bytes, unpacking_bytes

AREAS = np.zeros((1500, 2000), np.uint8)
AREAS[300:900, 500:1700] = 3
AREAS[700:, 1200:] = 255
MASKS = [
    AREAS,
    np.zeros((1, 1), np.uint8),
    np.zeros((3, _BLOCK), np.uint8),
    np.arange(3 * _BLOCK).reshape(3, -1).astype(np.uint8),
    np.repeat(np.arange(6, dtype=np.uint8), _BLOCK // 2).reshape(2, -1),
    np.random.default_rng(0).integers(0, 3, (70, 90), np.uint8),
    np.asfortranarray(AREAS[::50, ::50]),
]


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_an_unpacked_mask_is_the_same(mask) -> None:
    packed = PackedMask(mask)
    assert packed.shape == mask.shape
    np.testing.assert_array_equal(packed.unpacked(), mask)
    assert packed.nbytes == packed_bytes(mask) <= mask.size


def test_a_mask_of_areas_takes_little() -> None:
    assert packed_bytes(AREAS) < AREAS.size / 100
    assert AREAS.size < unpacking_bytes(AREAS.size, packed_bytes(AREAS)) < 1.02 * AREAS.size
