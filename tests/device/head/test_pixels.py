"""A classifier of pixels in closed form, against weighted least squares and by its scores."""

import numpy as np
import pytest

from pocketune.data import load_splits
from pocketune.device.head.pixels import STRENGTH, PixelRidge, cell_classes, score_pixels
from pocketune.errors import PocketuneError
from pocketune.tasks import Box
from pocketune.tasks.maps import IGNORED, Truth

from ..pixel_kit import CLASSES, pooled, write_scenes

WEIGHTS = np.array([0.5, 1.0, 3.0])
SIZE = 16


def test_the_class_at_the_center_of_each_cell():
    mask = np.arange(24, dtype=np.uint8).reshape(4, 6)
    assert cell_classes(Truth(mask, Box(0, 0, 6, 4)), 2, 3).tolist() == [[7, 9, 11], [19, 21, 23]]
    beyond = cell_classes(Truth(mask, Box(0, -1, 6, 6)), 3, 3)
    assert beyond.tolist() == [[1, 3, 5], [13, 15, 17], [IGNORED] * 3]


def test_it_is_weighted_least_squares_with_a_penalty():
    rng = np.random.default_rng(0)
    maps = rng.standard_normal((5, 4, 3, 6)).astype(np.float32)
    masks = rng.integers(0, 3, (5, 3, 6)).astype(np.uint8)
    masks[:, 0, :2] = IGNORED
    ridge = PixelRidge(4, WEIGHTS)
    for part in (slice(2), slice(2, 5)):
        labels = [Truth(mask, Box(0, 0, 6, 3)) for mask in masks[part]]
        ridge.add(maps[part], labels)
    weight, bias = ridge.layer()

    rows = np.moveaxis(maps, 1, -1).reshape(-1, 4).astype(np.float64)
    cells = masks.reshape(-1)
    known = cells != IGNORED
    rows, cells = rows[known], cells[known]
    own = WEIGHTS[cells] / WEIGHTS[cells].sum()
    targets = np.eye(3)[cells]
    centered, wanted = rows - own @ rows, targets - own @ targets
    spread = centered.T @ (own[:, None] * centered)
    penalty = STRENGTH * np.trace(spread) / 4
    expected = np.linalg.solve(spread + penalty * np.eye(4), centered.T @ (own[:, None] * wanted)).T
    np.testing.assert_allclose(weight, expected, rtol=1e-6)
    np.testing.assert_allclose(bias, own @ targets - expected @ (own @ rows), rtol=1e-6)


def test_colors_are_told_apart_on_photos_that_it_was_not_computed_from(tmp_path):
    photos = load_splits(write_scenes(tmp_path, 12), val_fraction=0).train
    score, count = score_pixels(pooled, photos, SIZE, 8)
    assert (score.name, count) == ("mIoU", 4)
    assert score.value > 0.6
    assert len(CLASSES) == len(photos.classes)


def test_one_photo_is_too_few(tmp_path):
    photos = load_splits(write_scenes(tmp_path, 1), val_fraction=0).train
    with pytest.raises(PocketuneError, match="too few of the photos"):
        score_pixels(pooled, photos, SIZE, 8)
