"""Dropout masks drawn by the device."""

import numpy as np
import pytest

from pocketune.device.engine.base import draw_masks
from pocketune.kit.manifest import MaskSpec

SPECS = [MaskSpec("a.mask", (64, 500), 0.8), MaskSpec("b.mask", (3, 2, 5, 5), 0.5)]


def test_masks_have_the_shapes_and_values_of_their_specs() -> None:
    masks = draw_masks(SPECS, np.random.default_rng(0))
    assert list(masks) == ["a.mask", "b.mask"]
    for spec in SPECS:
        mask = masks[spec.name]
        assert mask.shape == spec.shape
        assert mask.dtype == np.float32
        assert set(np.unique(mask)) == {np.float32(0), np.float32(1 / spec.keep)}


def test_share_of_kept_elements() -> None:
    mask = draw_masks(SPECS, np.random.default_rng(0))["a.mask"]
    assert np.mean(mask > 0) == pytest.approx(0.8, abs=0.01)
    assert mask.mean() == pytest.approx(1, abs=0.01)


def test_the_same_generator_gives_the_same_masks_and_then_others() -> None:
    rng = np.random.default_rng(7)
    first, second = draw_masks(SPECS, rng), draw_masks(SPECS, rng)
    again = draw_masks(SPECS, np.random.default_rng(7))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["a.mask"], second["a.mask"])


def test_without_specs_the_generator_is_left_alone() -> None:
    rng = np.random.default_rng(0)
    assert draw_masks([], rng) == {}
    assert rng.random() == np.random.default_rng(0).random()
