"""Masks in colors with a list of these, as CVAT exports them."""

from functools import partial

import numpy as np
import pytest
from PIL import Image

from pocketune.data import Loader, MaskOptions, load_splits
from pocketune.data.prepare import prepare

from .. import refusals
from .conftest import HEIGHT, WIDTH, masks_of

refusal = partial(refusals.refusal, val_fraction=0, longest=400)

MAP = "# label:color_rgb:parts:actions\nbackground:0,0,0::\ncat:250, 50,83::\nbig dog:10,10,133\n"
COLORS = [(0, 0, 0), (250, 50, 83), (10, 10, 133)]
NUMBERS = np.zeros((HEIGHT, WIDTH), np.uint8)
NUMBERS[2:9] = 1
NUMBERS[12:, 5:] = 2
CVAT = ("JPEGImages/", "SegmentationClass/")


def colored(mode="RGB", numbers=NUMBERS):
    image = Image.fromarray(numbers)
    if mode == "L":
        return image
    image.putpalette([level for color in COLORS for level in color])
    return image.convert(mode)


@pytest.fixture
def set_of(tree, encoded):
    """`set_of(mode)`: a photo and a mask of this mode, with a list of colors."""

    def write(mode="RGB", folders=CVAT, labels=MAP, **more):
        mask = colored(mode) if isinstance(mode, str) else mode
        files = {f"{folders[0]}a.png": 1, f"{folders[1]}a.png": encoded(mask)}
        return tree({**files, "labelmap.txt": labels, **more})

    return write


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L"])
@pytest.mark.parametrize("folders", [CVAT, ("images/", "masks/")])
def test_colors_are_numbers(set_of, pack, mode, folders):
    path = set_of(mode, folders, **{"ImageSets/Segmentation/default.txt": "a\n"})
    for each in (path, "", "set/"):
        place = pack(path, each) if isinstance(each, str) else each
        splits = load_splits(place, val_fraction=0, size=16)
        assert splits.classes == ("background", "cat", "big dog")
        (mask,) = masks_of(splits)
        assert (mask == np.array(splits.classes)[NUMBERS]).all()
        (batch,) = Loader(splits.train, size=16, batch=1, train=False).epoch(0)
        assert set(np.unique(batch.labels[0].mask())) == {0, 1, 2}


def test_a_class_may_be_ignored(set_of):
    splits = load_splits(set_of(), val_fraction=0, masks=MaskOptions(ignore="background"))
    assert splits.classes == ("cat", "big dog")


def test_strips(set_of, monkeypatch):
    monkeypatch.setattr("pocketune.data.masks.colored._STRIP", 3 * WIDTH)
    (mask,) = masks_of(load_splits(set_of(), val_fraction=0))
    assert (mask == np.array(["background", "cat", "big dog"])[NUMBERS]).all()


def test_small_copies(set_of, tmp_path):
    assert prepare(set_of(), tmp_path / "small", size=HEIGHT // 2).shrunk == 2
    (mask,) = load_splits(tmp_path / "small", val_fraction=0).train.labels["pixels"].tolist()
    assert all(mask)
    assert sum(mask) == HEIGHT * WIDTH // 4


class TestRefused:
    @pytest.mark.parametrize(
        ("labels", "reason"),
        [
            ("", "labelmap.txt is empty"),
            ("# nothing\n", "labelmap.txt is empty"),
            ("cat:::", "labelmap.txt has no class and color in line 1; write a line such as"),
            ("cat:0,0,256::", "no class and color in line 1"),
            (":0,0,0::", "no class and color in line 1"),
            ("a:0,0,0::\nb:0,0,0::", "labelmap.txt has the color of a twice"),
            ("a:0,0,0::\na:250,50,83::\nb:10,10,133::", "'a' or its value 1 twice"),
            ("".join(f"{i}:0,{i},0::\n" for i in range(256)) + "x:1,1,1::", "in line 257"),
            (
                MAP.replace("83", "84"),
                "has the color 250, 50, 83, which labelmap.txt does not list",
            ),
        ],
    )
    def test_lists(self, set_of, labels, reason):
        assert reason in refusal(set_of(labels=labels))

    def test_a_photo(self, set_of, noise):
        assert "which labelmap.txt does not list" in refusal(set_of(noise(3)))

    def test_without_a_list(self, set_of):
        path = set_of()
        (path / "labelmap.txt").unlink()
        assert "has 3 colors (mode RGB), but a mask has a number for each pixel" in refusal(path)
