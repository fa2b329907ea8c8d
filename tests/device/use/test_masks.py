"""Masks of a model: evaluated at their own size, predicted into folders, through windows."""

import json
import weakref

import numpy as np
import pytest
from PIL import Image

from pocketune.data import MaskOptions, load_splits
from pocketune.device import Model, Predictor, evaluate, predict
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.use.pictures import Pictures, palette
from pocketune.device.use.windows import Windows
from pocketune.errors import PocketuneError
from pocketune.kit import Kit
from pocketune.tasks.segmentation import Segmentation

from ..pixel_kit import CLASSES, PixelEngine, write_exact_model, write_scenes
from ..tiny_kit import TinyKit


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Scenes, and a model that knows their colors."""
    folder = tmp_path_factory.mktemp("masks")
    write_scenes(folder / "photos", 5, size=(45, 30))
    write_exact_model(folder / "kit")
    return folder


def test_both_engines_predict_alike(place):
    model = Model.open(place / "kit")
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), np.uint8)
    expected = PixelEngine(model.kit, model.state).predict(images)
    np.testing.assert_allclose(
        OnnxEngine(model.kit, model.state).predict(images), expected, atol=1e-4
    )


def test_a_mask_of_an_image_in_memory(place):
    (file, *_) = sorted((place / "photos" / "images").iterdir())
    (expected,) = predict(place / "kit", file)
    predictor = Predictor(place / "kit")
    for image in (file.read_bytes(), np.asarray(Image.open(file))):
        found = predictor.predict(image)
        assert found.class_map.shape == (30, 45)
        np.testing.assert_array_equal(found.class_map, expected.class_map)


@pytest.mark.parametrize(("window", "least"), [("whole", 0.4), ("slide", 0.5)])
def test_evaluated_at_the_masks_size(place, window, least):
    found = evaluate(place / "kit", place / "photos", window=window)
    assert found.images == 5
    assert found.confusion.sum() == 5 * 45 * 29  # the lowest row is ignored
    assert found.miou > least


def test_sliding_windows_see_more(place):
    whole, slid = (
        evaluate(place / "kit", place / "photos", window=w).pixel_accuracy
        for w in ("whole", "slide")
    )
    assert slid > whole


def test_a_square_photo_is_one_window(place, tmp_path):
    write_scenes(tmp_path, 3, size=(32, 32))
    one, other = (
        evaluate(place / "kit", tmp_path, window=w).confusion.tolist() for w in ("whole", "slide")
    )
    assert one == other


class TestWindows:
    @pytest.mark.parametrize("size", [(16, 16), (47, 16), (16, 47), (100, 30), (5, 300), (1, 1)])
    @pytest.mark.parametrize("overlap", [0.0, 0.25, 0.9])
    def test_all_of_a_photo_is_covered(self, place, tmp_path, size, overlap):
        """The network's outputs depend on each cell alone, so windows give those of the whole."""
        model = Model.open(place / "kit")
        pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
        (tmp_path / "images").mkdir()
        (tmp_path / "masks").mkdir()
        Image.fromarray(pixels).save(tmp_path / "images" / "a.png")
        mask = np.arange(size[0] * size[1]).reshape(size[::-1]) % 3
        Image.fromarray(mask.astype(np.uint8)).save(tmp_path / "masks" / "a.png")
        dataset = load_splits(tmp_path, val_fraction=1.0, classes=CLASSES).val
        windows = Windows(model.manifest, overlap)
        photo, seen = windows.open(dataset, 0)
        assert min(photo.shape[:2]) == 16
        output = windows.output(PixelEngine(model.kit, model.state), photo, seen)
        rows, columns = output.shape[1:]
        assert (rows, columns) == (photo.shape[0] // 4, photo.shape[1] // 4)
        cells = photo.reshape(rows, 4, columns, 4, 3).mean(axis=(1, 3)) / 255
        weight = model.state["head.weight"][..., 0, 0]
        expected = np.einsum("kc,hwc->khw", weight, cells) + model.state["head.bias"][:, None, None]
        np.testing.assert_allclose(output, expected, atol=1e-3)

    @pytest.mark.parametrize("overlap", [-0.1, 1.0, float("nan")])
    def test_overlap(self, place, overlap):
        with pytest.raises(PocketuneError, match="must be from 0 to below 1"):
            Windows(Kit.open(place / "kit").manifest, overlap)

    def test_an_overlap_of_nothing(self, place):
        with pytest.raises(PocketuneError, match=r"overlap=0\.5 is for windows that slide"):
            predict(place / "kit", place / "photos/images", overlap=0.5)

    def test_a_line_is_too_long(self, place, tmp_path):
        """It would be enlarged to 30,000 times its size."""
        Image.new("RGB", (3000, 1)).save(tmp_path / "line.png")
        (found,) = predict(place / "kit", tmp_path, window="slide")
        assert "too much for sliding windows" in found.reason

    def test_for_masks_alone(self, tmp_path):
        kit = TinyKit().write(tmp_path / "kit").path
        with pytest.raises(PocketuneError, match="window='slide' is for masks"):
            evaluate(kit, tmp_path, window="slide")
        with pytest.raises(PocketuneError, match="unknown window 'round'"):
            predict(kit, tmp_path, window="round")  # type: ignore[arg-type]


class TestPredict:
    @pytest.mark.parametrize("window", ["whole", "slide"])
    def test_masks_and_overlays(self, place, tmp_path, window):
        out = tmp_path / "out"
        found = list(predict(place / "kit", place / "photos/images", out=out, window=window))
        assert [f.mask.shape for f in found] == [(30, 45)] * 5
        names = sorted(str(p.relative_to(out)) for p in out.rglob("*.*"))
        assert names == sorted(
            ["classes.txt"]
            + [f"masks/{i}.png" for i in range(5)]
            + [f"overlays/{i}.jpg" for i in range(5)]
        )
        with Image.open(out / "masks" / "3.png") as written:
            assert (written.mode, written.size) == ("P", (45, 30))
            np.testing.assert_array_equal(np.asarray(written), found[3].mask)
            assert written.getpalette()[:9] == [0, 0, 0, 128, 0, 0, 0, 128, 0]
        with Image.open(out / "overlays" / "3.jpg") as overlay:
            assert (overlay.mode, overlay.size) == ("RGB", (45, 30))

    def test_one_map_is_in_memory_beside_the_next(self, place, monkeypatch):
        computed = []
        predicted = Segmentation.predict

        def counted(*args):
            computed.append(args[1])
            return predicted(*args)

        monkeypatch.setattr(Segmentation, "predict", counted)
        results = predict(place / "kit", place / "photos/images")
        held = None
        for number, found in enumerate(results, 1):
            assert len(computed) == number  # although a batch has more
            assert held is None or held() is None
            held = weakref.ref(found.mask)
            del found

    def test_pictures_are_counted(self, place, tmp_path, monkeypatch):
        (tmp_path / "images").mkdir()
        Image.new("RGB", (2000, 1500)).save(tmp_path / "images" / "large.jpg")
        found = []
        monkeypatch.setattr(
            "pocketune.device.use.predict.check_prediction",
            lambda model, limit, before, decoding, *rest: found.append(decoding.beside),
        )
        for out in (None, tmp_path / "out"):
            predict(place / "kit", tmp_path / "images", out=out, budget="1GB")
        plain, pictures = found
        assert plain == 2 * 2000 * 1500
        assert plain + 2000 * 1500 < pictures

    def test_the_folder_can_be_trained_on(self, place, tmp_path):
        list(predict(place / "kit", place / "photos/images", out=tmp_path / "out"))
        (tmp_path / "out" / "images").symlink_to(place / "photos" / "images")
        assert load_splits(tmp_path / "out").classes == CLASSES

    def test_shares(self, place):
        (found, *_) = predict(place / "kit", place / "photos/images/0.png", top=2)
        values = json.loads(json.dumps(found.to_dict()))
        assert {each["class"] for each in values["classes"]} == {"sky", "road"}
        first = values["classes"][0]
        assert str(found).startswith(f"{first['class']} {first['share']:.1%}, ")

    def test_skipped(self, place, tmp_path):
        (tmp_path / "notes.txt").write_text("hello")
        for window in ("whole", "slide"):
            ((name, reason),) = predict(place / "kit", tmp_path, window=window)
            assert (name, reason) == (
                str(tmp_path / "notes.txt"),
                "not an image in a known format",
            )

    def test_a_folder_with_files_is_refused(self, place, tmp_path):
        (tmp_path / "mine.png").write_bytes(b"")
        with pytest.raises(PocketuneError, match="is not empty: choose a new folder"):
            predict(place / "kit", place / "photos/images", out=tmp_path)

    def test_no_masks_of_other_models(self, tmp_path):
        kit = TinyKit().write(tmp_path / "kit").path
        with pytest.raises(PocketuneError, match="there are no masks to write"):
            predict(kit, tmp_path / "kit", out=tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_unknown_photos_cannot_be_told(self, place):
        with pytest.raises(PocketuneError, match="photos of none of the classes cannot be told"):
            predict(place / "kit", place / "photos/images", unknown=True)

    def test_names_of_files(self, tmp_path):
        class Photos:
            names = ("a/x/1.jpg", "a/x/1.png", "a/y/1.jpg")

        pictures = Pictures(tmp_path / "out", Photos(), ())  # type: ignore[arg-type]
        assert pictures._files == ["x/1", "x/1.png", "y/1"]


def test_masks_are_read_as_they_are_given(place):
    options = MaskOptions(ignore="sky")
    with pytest.raises(PocketuneError, match="read as in its training"):
        evaluate(place / "kit", masks=options)
    found = evaluate(place / "kit", place / "photos", masks=options)
    assert found.absent == ("sky",)


def test_a_wide_photo_is_laid_over_at_a_small_size(place, tmp_path):
    Image.new("RGB", (3000, 30), (40, 90, 220)).save(tmp_path / "wide.png")
    (found,) = predict(place / "kit", tmp_path / "wide.png", out=tmp_path / "out")
    assert found.mask.shape == (30, 3000)
    with Image.open(tmp_path / "out" / "overlays" / "wide.jpg") as overlay:
        assert overlay.size == (1024, 10)


def test_the_colors_of_voc():
    assert palette(4).tolist() == [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0]]
    assert palette()[255].tolist() == [224, 224, 192]
    assert len({tuple(color) for color in palette().tolist()}) == 256
