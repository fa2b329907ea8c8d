"""CamVid as it is published: a .zip with a table, names, and a void class among the others."""

from pathlib import Path

import numpy as np
import pytest

from pocketune.data import Loader, MaskOptions, load_splits


@pytest.fixture(scope="module")
def camvid(shared_data: Path) -> Path:
    path = shared_data / "segmentation" / "camvid_12cls_180x240.zip"
    if not path.is_file():
        pytest.skip(f"no photos with masks at {path}")
    return path


def test_all_pixels_of_all_masks_are_counted(camvid):
    splits = load_splits(camvid, masks=MaskOptions(ignore="void"))
    assert (len(splits.train), len(splits.val), splits.skipped) == (367, 101, ())
    assert splits.classes[:2] == ("sky", "building")
    assert "void" not in splits.classes
    pixels = splits.train.labels["pixels"].sum(axis=0)
    shares = [17.35, 23.49, 0.96, 31.81, 4.43, 9.52, 1.12, 1.12, 5.80, 0.62, 0.28]
    assert 100 * pixels / (367 * 180 * 240) == pytest.approx(shares, abs=0.005)
    weights = splits.train.labeled.balanced(splits.train.labels).step_inputs()["class_weights"]
    assert (weights * pixels).sum() / pixels.sum() == pytest.approx(1)
    assert weights[10] > weights[9] > 4 > 1 > weights[3]


def test_a_batch(camvid):
    dataset = load_splits(camvid, masks=MaskOptions(ignore="11")).train.subset(range(4))
    batch = next(Loader(dataset, size=64, batch=4, train=True).epoch(0))
    assert batch.labels.shape == (4, 64, 64)
    assert set(np.unique(batch.labels)) <= {*range(11), 255}
    assert len(np.unique(batch.labels)) > 5


def test_void_counts_unless_it_is_ignored(camvid):
    assert load_splits(camvid, test="only").classes[11] == "void"
