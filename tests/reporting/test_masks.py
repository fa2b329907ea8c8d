"""Photos with their masks in a report."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

from pocketune.data import load_splits
from pocketune.device.use.model import Model
from pocketune.device.use.pictures import palette
from pocketune.reporting.evidence import Evidence, photo_sections
from pocketune.reporting.masks import mask_pictures
from pocketune.reporting.page import Page, render
from pocketune.tasks.maps import IGNORED

from ..device.pixel_kit import CLASSES, write_exact_model, write_scenes
from .html import check_alone

SIZE = 45, 30


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Scenes, of which the last has another size, and a model that knows their colors."""
    folder = tmp_path_factory.mktemp("masks")
    write_scenes(folder / "photos", 5, size=SIZE)
    write_exact_model(folder / "kit")
    return folder


@pytest.fixture(scope="module")
def opened(place):
    model = Model.open(place / "kit")
    return model, load_splits(place / "photos", val_fraction=0.0, classes=CLASSES)


def decoded(address: str) -> Image.Image:
    image = Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))
    image.load()
    return image


def test_the_masks_are_those_of_the_photos_and_of_the_model(opened):
    model, splits = opened
    found = mask_pictures(model, splits.train, [3, 0, 4])
    assert sorted(found) == [0, 3, 4]
    for index, pictures in found.items():
        assert [each.what for each in pictures] == ["photo", "true mask", "predicted mask"]
        photo, truth, guess = (decoded(each.address) for each in pictures)
        assert photo.size == truth.size == guess.size == SIZE
        pixels = np.asarray(truth)
        np.testing.assert_array_equal(pixels, splits.train.label(index, *SIZE))
        assert truth.info["transparency"] == IGNORED
        assert truth.getpalette()[: 3 * len(CLASSES)] == palette(len(CLASSES)).ravel().tolist()
        counts = pixels != IGNORED
        assert (np.asarray(guess) == pixels)[counts].mean() > 0.8


def test_a_photo_that_is_gone_has_no_pictures(place, opened):
    model, splits = opened
    file = place / "photos" / "images" / "2.png"
    content = file.read_bytes()
    file.unlink()
    try:
        assert sorted(mask_pictures(model, splits.train, [1, 2])) == [1]
    finally:
        file.write_bytes(content)


def test_the_worst_photos_are_shown_with_them(opened):
    model, splits = opened
    told = tuple(photo_sections(Evidence.gather(model, splits)))
    mistakes = told[0]
    assert [chart.title for chart in mistakes.charts] == [
        "Overlap of each class",
        "Confusion matrix",
    ]
    assert "The masks have the colors of the chart" in mistakes.text[0]
    assert len(mistakes.photos) == len(splits.train)
    assert all(len(photo.masks) == 3 and "are right" in photo.note for photo in mistakes.photos)
    page = Page(title="t", subtitle="s", summary=(), tiles=(), sections=told, version="1")
    assert len(check_alone(render(page)).all("img")) == 3 * len(splits.train)
