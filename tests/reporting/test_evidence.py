"""What the photos show: many classes, attributes, and tasks that are neither."""

import io
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pocketune.data import Batch, ImageDataset, Splits
from pocketune.data.names import Names
from pocketune.files import Skipped
from pocketune.reporting.evidence import SHOWN, Evidence, photo_sections
from pocketune.reporting.page import Page, render
from pocketune.reporting.photos import Collector, Predicted
from pocketune.tasks import Attributes, Classification, Segmentation
from pocketune.tasks.segmentation import Mask

from ..tasks.regression import Regression
from .html import check_alone

CONFIDENCE = "Is it as sure as it should be?"


def jpeg() -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (200, 260, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=95)  # noise: the largest thumbnails
    return stream.getvalue()


class OnePhoto:
    """A folder in which each file is the same photo, and those called gone are none."""

    root = Path("photos")
    content = jpeg()

    def names(self):
        return []

    @contextmanager
    def open(self, name):
        if "gone" in name:
            raise FileNotFoundError(name)
        yield io.BytesIO(self.content)


def dataset(task, labels, name="photo") -> ImageDataset:
    names = tuple(f"{name} {number}.jpg" for number in range(len(labels)))
    return ImageDataset(OnePhoto(), Names(names), labels, task)


def predicted(task, labels, outputs, name="photo") -> Predicted:
    photos = dataset(task, labels, name)
    found = Collector(task, photos)
    pixels = np.zeros((len(labels), 1, 1, 3), np.uint8)
    found.add(Batch(pixels, labels, photos.names), outputs)
    made = found.predicted(task.evaluate([(outputs, labels)]), outputs)
    assert made is not None
    return made


def evidence(task, labels, outputs, *, name="photo") -> Evidence:
    found = predicted(task, labels, outputs, name)
    splits = Splits(found.photos, found.photos, (Skipped("<b>.txt", "not an image"),))
    return Evidence(task, splits, found, found)


def sections(made: Evidence):
    return {section.title: section for section in photo_sections(made)}


def page(made: Evidence) -> str:
    told = tuple(photo_sections(made))
    return render(Page(title="t", subtitle="s", summary=(), tiles=(), sections=told, version="1"))


@pytest.fixture(scope="module")
def large() -> Evidence:
    rng = np.random.default_rng(0)
    names = tuple(
        f"<script>class {number} größe 花 {'long ' * 12}</script>" for number in range(200)
    )
    task = Classification(names)
    labels = rng.integers(0, 200, 5000)
    outputs = rng.normal(size=(5000, 200)).astype(np.float32)
    outputs[np.arange(5000), labels] += 3
    return evidence(task, labels, outputs)


def test_photos_that_turned_out_to_be_damaged_are_not_counted():
    task, labels = Classification(("a", "b")), np.array([0, 0, 1])
    made = evidence(task, labels, np.eye(2, dtype=np.float32)[labels])
    assert sections(made)["Photos"].charts[0].table.rows[0][:3] == ("a", "2", "2")
    damaged = replace(made.training, skipped=(Skipped("photo 1.jpg", "the file is cut off"),))
    made = replace(made, training=damaged)
    assert sections(made)["Photos"].charts[0].table.rows[0][:3] == ("a", "1", "2")


def test_a_page_of_200_classes_and_5000_photos_is_under_two_megabytes(large):
    text = page(large)
    assert len(text.encode()) < 2_000_000
    read = check_alone(text)
    assert len(read.all("img")) == 2 * SHOWN


def test_of_many_classes_the_most_confused_are_drawn(large):
    charts = {chart.title: chart for chart in sections(large)["Mistakes"].charts}
    assert "19 most confused of 200 classes" in charts["Confusion matrix"].text
    balance = sections(large)["Photos"].charts[0]
    assert len(balance.table.rows) == 200 and "8 largest and 8 smallest" in balance.text


def test_of_attributes_the_wrong_ones_are_named():
    task = Attributes(("hat", "coat"))
    labels = np.array([[1, 0], [0, 1], [1, 1], [1, 0], [0, 1]], np.uint8)
    outputs = np.where(labels, 2.0, -2.0).astype(np.float32)
    outputs[2] = [-5.0, 3.0]
    found = sections(evidence(task, labels, outputs))
    (photo,) = found["Mistakes"].photos
    assert (photo.truth, photo.guess) == ("hat", "not hat (99%)")
    assert [chart.title for chart in found["Mistakes"].charts] == ["Is it as sure as it should be?"]
    ((_, table),) = found["Mistakes"].tables
    assert [row[0] for row in table.rows] == ["hat", "coat"]
    assert found["Photos"].charts[0].table.rows[0][0] in task.classes
    hurting = found["Photos that may hurt"]
    assert [photo.note.partition(";")[0] for photo in hurting.photos] == ["looks like not hat"]


def test_a_task_without_decisions_shows_its_highest_losses():
    task = Regression(("length",))
    labels = np.array([[1.0], [2.0], [3.0]], np.float32)
    outputs = np.array([[1.0], [5.0], [3.5]], np.float32)
    found = sections(evidence(task, labels, outputs))
    assert list(found) == ["Mistakes", "Photos"]
    assert [photo.truth for photo in found["Mistakes"].photos] == ["2", "3", "1"]
    assert not found["Mistakes"].charts and not found["Photos"].charts


def test_a_photo_that_is_predicted_right_does_not_hurt():
    task, labels = Classification(("a", "b")), np.array([0, 0, 0, 1, 1])
    border = [1.1, 1.0]  # nearer to the photos of b
    for last, count in ((border, 0), (border[::-1], 1)):
        outputs = np.array([[9, 0], [8, 0], last, [0, 2], [0, 1]], np.float32)
        found = sections(evidence(task, labels, outputs))
        assert len(found["Photos that may hurt"].photos) == count


def test_without_mistakes_it_says_so():
    task = Classification(("a", "b"))
    labels = np.array([0, 0, 1, 1])
    outputs = np.array([[9, 0], [8, 0], [0, 9], [0, 8]], np.float32)
    found = sections(evidence(task, labels, outputs))
    assert found["Mistakes"].text == ("All 4 validation photos are predicted correctly.",)
    assert CONFIDENCE in [each.title for each in found["Mistakes"].charts]
    assert "looks most like those with the same label" in found["Photos that may hurt"].text[0]


def test_confidence_on_photos_that_trained_the_model_is_not_judged():
    task, labels = Classification(("a", "b")), np.array([0, 0, 1, 1])
    outputs = np.array([[9, 0], [8, 0], [0, 9], [0, 8]], np.float32)
    found = sections(replace(evidence(task, labels, outputs), held=None))
    assert found["Mistakes"].text == ("All 4 training photos are predicted correctly.",)
    assert CONFIDENCE not in [each.title for each in found["Mistakes"].charts]


def test_a_photo_that_is_gone_keeps_its_place():
    task = Classification(("a", "b"))
    outputs = np.array([[0, 9], [8, 0], [0, 9]], np.float32)
    made = evidence(task, np.array([0, 0, 1]), outputs, name="gone")
    (photo,) = sections(made)["Mistakes"].photos
    assert photo.picture is None and photo.guess == "b (100%)"
    assert "cannot be read" in page(made)


@pytest.mark.parametrize(("read", "places"), [("aac", [0, 2, 3]), ("ba", [1, 2])])
def test_photos_that_were_read_are_found_even_if_two_have_one_name(read, places):
    task, labels = Classification(("a", "b")), np.array([0, 1, 0, 1])
    photos = ImageDataset(OnePhoto(), Names("abac"), labels, task)
    outputs = np.zeros((len(read), 2), np.float32)
    found = Collector(task, photos)
    found.add(Batch(np.zeros((len(read), 1, 1, 3), np.uint8), labels[places], tuple(read)), outputs)
    made = found.predicted(task.evaluate([(outputs, labels[places])]))
    assert made is not None
    np.testing.assert_array_equal(made.labels, labels[places])


def test_masks():
    """Classes of pixels: a table of each class, shares in the matrix, and photos by their loss."""
    task = Segmentation(("sky", "road"))
    masks = np.array([[[0, 0, 1, 255]]] * 3, np.uint8)
    rows = [Mask(f"{i}.png", ((0, 2), (1, 1), (255, 1))) for i in range(3)]
    labels = task.encode(rows, ("sky", "road", *[""] * 254), "photos", complete=False)
    outputs = np.zeros((3, 2, 1, 4), np.float32)
    outputs[:, 0, 0, :2] = 2
    outputs[2, 0] = 9
    photos = dataset(task, labels)
    found = Collector(task, photos)
    found.add(Batch(np.zeros((3, 1, 1, 3), np.uint8), masks, photos.names), outputs)
    judged = found.predicted(task.evaluate([(outputs, masks)]))
    made = Evidence(task, Splits(photos, photos, ()), judged, judged)
    mistakes = sections(made)["Mistakes"]
    assert "Photos that may hurt" not in sections(made)
    assert mistakes.text[0].startswith("The photos with the highest loss come first.")
    assert mistakes.photos[0].name == "photo 2.jpg"
    assert mistakes.photos[0].truth == "sky (67%), road (33%)"
    (table,) = mistakes.tables
    assert table[1].rows[0] == ("sky", 6, "66.7%", "100.0%", "66.7%")
    _, chart = mistakes.charts
    assert "3 pixels labeled road are taken for sky" in chart.text
    assert "IoU" in page(made)
