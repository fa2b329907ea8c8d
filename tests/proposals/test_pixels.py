"""The score of feature maps on photos that their classifier was not computed from."""

import pytest

from pocketune.data import load_splits
from pocketune.errors import PocketuneError
from pocketune.proposals.pixels import score_pixels

from ..device.pixel_kit import CLASSES, pooled, write_scenes

SIZE = 16


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
