"""Predicting images in memory."""

import io
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pocketune.data import UnreadableImage
from pocketune.device.use.model import Model
from pocketune.device.use.predict import predict
from pocketune.device.use.predictor import Predictor
from pocketune.errors import PocketuneError
from pocketune.tasks import Prediction
from pocketune.tasks.classification import ClassPrediction

from ..runs import write_photos
from ..tiny_kit import CLASSES


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    return sorted(write_photos(tmp_path / "photos", CLASSES, each=3).rglob("*.png"))


def shares(prediction: object) -> dict[str, float]:
    assert isinstance(prediction, ClassPrediction)
    return {guess.label: guess.probability for guess in prediction.guesses}


def same(one: object, other: object) -> bool:
    """Apart from rounding, which depends on the number of images that are computed together."""
    return shares(one) == pytest.approx(shares(other), abs=1e-6)


def test_an_image_in_memory_is_predicted_as_its_file(run: Path, photos: list[Path]) -> None:
    predictor = Predictor(run)
    for file, expected in zip(photos, predict(run, photos), strict=True):
        data = file.read_bytes()
        found = predictor.predict(data, expected.name)
        assert found.name == str(file)
        assert same(found, expected)
        for other in (bytearray(data), memoryview(data)):
            assert predictor.predict(other, expected.name) == found
        with Image.open(file) as image:
            pixels = np.asarray(image)
            assert same(predictor.predict(image), expected)
            assert same(predictor.predict(pixels), expected)
            assert same(predictor.predict(image.convert("RGBA")), expected)


def test_several_at_once(run: Path, photos: list[Path]) -> None:
    predictor = Predictor(Model.open(run), top=2)
    files = [file.read_bytes() for file in photos]
    names = [file.name for file in photos]
    found = predictor.predict_batch(files, names)
    assert [each.name for each in found] == names
    for each, expected in zip(found, predict(run, photos, top=2), strict=True):
        assert same(each, expected)
    assert predictor.predict_batch([]) == []
    assert {each.name for each in predictor.predict_batch(files)} == {""}
    with pytest.raises(ValueError, match="zip"):
        predictor.predict_batch(files, names[1:])


def test_the_program_keeps_its_image(run: Path, photos: list[Path]) -> None:
    """Decoding an image of a file frees its pixels otherwise, and a JPEG would be decoded small."""
    predictor = Predictor(run)
    stored = io.BytesIO()
    Image.new("RGB", (640, 480), "red").save(stored, "JPEG")
    image = Image.open(stored)
    predictor.predict(image)
    assert (image.size, image.getpixel((0, 0))) == ((640, 480), (254, 0, 0))
    pixels = np.asarray(Image.open(photos[0])).copy()
    before = pixels.copy()
    predictor.predict(pixels)
    predictor.predict(pixels[:, ::-1, ::-1])  # blue, green and red, not contiguous
    assert (pixels == before).all()


@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_an_image_is_turned_as_its_file(orientation: int, run: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    stored = io.BytesIO()
    Image.fromarray(pixels).save(stored, "PNG", exif=exif)
    predictor = Predictor(run)
    expected = predictor.predict(stored.getvalue())
    assert same(predictor.predict(Image.open(stored)), expected)


def test_the_model_s_files_are_read_once(run: Path, photos: list[Path]) -> None:
    expected, predictor = Predictor(run).predict(photos[0].read_bytes()), Predictor(run)
    shutil.rmtree(run)
    assert predictor.predict(photos[0].read_bytes()) == expected


def test_gray(run: Path) -> None:
    gray = np.random.default_rng(0).integers(0, 256, (12, 16), dtype=np.uint8)
    predictor = Predictor(run)
    assert same(predictor.predict(gray), predictor.predict(np.stack([gray] * 3, axis=2)))


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((4, 4, 3), np.float32), r"an array of float32 \(4, 4, 3\) is not an image: give"),
        (np.zeros((4, 4, 4), np.uint8), r"uint8 \(4, 4, 4\) is not an image"),
        (np.zeros(4, np.uint8), r"uint8 \(4,\) is not an image"),
        (np.zeros((0, 4, 3), np.uint8), "the image cannot be used as an image: it has no pixels"),
        (Image.new("RGB", (0, 4)), "it has no pixels"),
        (b"no image", "not an image in a known format"),
        ("photo.jpg", "str is not an image: give an image of Pillow, an array, or the bytes"),
    ],
)
def test_what_is_no_image(image: Any, message: str, run: Path) -> None:
    with pytest.raises(PocketuneError, match=message):
        Predictor(run).predict(image)


def test_a_damaged_image_is_named(run: Path, photos: list[Path]) -> None:
    with pytest.raises(UnreadableImage) as caught:
        Predictor(run).predict(photos[0].read_bytes()[:60], "front door")
    assert caught.value.name == "front door"


def test_threads_take_turns(run: Path, photos: list[Path]) -> None:
    predictor, files = Predictor(run), [file.read_bytes() for file in photos]
    alone = [predictor.predict(data) for data in files]
    begin = threading.Barrier(4)

    def together(_: int) -> list[Prediction]:
        begin.wait()
        return [predictor.predict(data) for data in files]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(together, range(4)):
            assert found == alone


def test_arguments(run: Path, photos: list[Path]) -> None:
    with pytest.raises(PocketuneError, match="top=0"):
        Predictor(run, top=0)
    with pytest.raises(PocketuneError, match="cannot tell"):
        Predictor(run, unknown=True)  # a run that has not finished
    predictor = Predictor(run)
    assert predictor.classes == CLASSES
    assert repr(predictor) == f"Predictor({Model.open(run)!r})"
