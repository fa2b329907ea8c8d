"""Masks: their files, values and names; one sentence for each that cannot be used."""

import io
import struct
import zlib
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pocketune.data import Loader, MaskOptions, UnreadableImage, load_splits
from pocketune.data.masks.numbered import Masks
from pocketune.data.masks.values import MOST_UNNAMED
from pocketune.data.prepare import prepare

from .. import refusals

VOID = MaskOptions(ignore="void")
NAMES = "sky\nroad\nvoid\n"
refusal = partial(refusals.refusal, val_fraction=0)


def mask(*values: int, size: tuple[int, int] = (24, 20), mode: str = "L") -> Image.Image:
    """A mask of columns of these values."""
    pixels = np.array(values, np.uint8)[np.arange(size[0]) * len(values) // size[0]]
    image = Image.fromarray(np.tile(pixels, (size[1], 1)))
    if mode == "P":
        image.putpalette(np.random.default_rng(0).integers(0, 256, 768, np.uint8).tobytes())
    return image


def few_bits(image: Image.Image, bits: int) -> bytes:
    """A gray PNG of so many bits a pixel, which Pillow writes as such a palette alone."""
    file = io.BytesIO()
    image.convert("P").save(file, "PNG", bits=bits)
    data = file.getvalue()
    header = struct.pack(">4sIIBBBBB", b"IHDR", *image.size, bits, 0, 0, 0, 0)
    start = data.index(b"IDAT") - 4
    return data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[start:]


@pytest.fixture
def masked(tree, encoded):
    """`masked(a=mask(0, 1), ...)`: folders of images and masks; extra files by path."""

    def write(files=(), **masks):
        written = {f"images/{name}.png": seed for seed, name in enumerate(masks)}
        for name, image in masks.items():
            written[f"masks/{name}.png"] = encoded(image) if not isinstance(image, bytes) else image
        return tree({**written, **dict(files)})

    return write


def train(path, **options):
    return load_splits(path, val_fraction=0, **options).train


class TestRead:
    @pytest.mark.parametrize("mode", ["L", "P"])
    def test_pixels_are_numbers_whatever_their_color(self, masked, mode):
        found = train(masked(a=mask(0, 1, 2, mode=mode)))
        assert found.labeled.name == "segmentation"
        assert found.classes == ("0", "1", "2")
        assert found.labels["pixels"].tolist() == [[160, 160, 160]]
        np.testing.assert_array_equal(found.label(0, 24, 20)[0], np.repeat([0, 1, 2], 8))

    def test_one_bit(self, masked):
        found = train(masked(a=mask(0, 255).convert("1")))
        assert found.classes == ("0", "1")

    @pytest.mark.parametrize("bits", [2, 4])
    def test_gray_of_few_bits_also_in_copies(self, masked, encoded, bits, tmp_path):
        path = masked(a=few_bits(mask(0, 1, 2, 3), bits))
        prepare(path, tmp_path / "small", size=10)
        for each in (path, tmp_path / "small"):
            found = train(each)
            assert found.classes == ("0", "1", "2", "3")
            assert found.labels["pixels"].sum() == (480 if each == path else 120)

    def test_names_and_ignored(self, masked):
        found = train(masked([("classes.txt", NAMES)], a=mask(0, 1, 2, 255)), masks=VOID)
        assert found.classes == ("sky", "road")
        assert np.unique(found.label(0, 24, 20)).tolist() == [0, 1, 255]

    def test_the_order_of_a_model(self, masked):
        path = masked([("labels.txt", NAMES)], a=mask(0, 1, 2))
        found = train(path, masks=VOID, classes=("road", "sky", "car"))
        assert found.labels["pixels"].tolist() == [[160, 160, 0]]
        assert found.label(0, 24, 20)[0, [0, 10, 20]].tolist() == [1, 0, 255]

    def test_a_model_names_masks_without_names(self, masked):
        path = masked(a=mask(1, 2))
        options = {"classes": ("sky", "road"), "masks": MaskOptions(ignore="0")}
        assert train(path, **options).label(0, 24, 20)[0, [0, 20]].tolist() == [0, 1]

    def test_nothing_is_ignored(self, masked):
        found = train(masked(a=mask(0, 255)), masks=MaskOptions(ignore="none"))
        assert found.classes == ("0", "255")
        assert found.label(0, 24, 20).max() == 1

    @pytest.mark.parametrize("given", ["road,sky", "names.txt"])
    def test_names_as_an_option(self, masked, tmp_path, monkeypatch, given):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "names.txt").write_text("road\nsky\n")
        path = masked([("classes.txt", "no\nmatter\n")], a=mask(0, 1))
        assert train(path, masks=MaskOptions(class_names=given)).classes == ("road", "sky")

    def test_many_names_as_an_option(self, masked):
        names = ",".join(f"{number:0300}" for number in range(3))
        assert len(train(masked(a=mask(0, 2)), masks=MaskOptions(class_names=names)).classes) == 3

    def test_batches(self, masked):
        path = masked(a=mask(0, 1), b=mask(1, 0, 255), c=mask(0, 1, size=(24, 20)))
        loader = Loader(train(path), size=16, batch=2, train=True)
        batch = next(loader.epoch(0))
        assert (batch.labels.shape, batch.labels.dtype) == ((2, 16, 16), np.uint8)
        assert set(np.unique(batch.labels)) <= {0, 1, 255}
        again = next(loader.epoch(0))
        np.testing.assert_array_equal(batch.images, again.images)
        np.testing.assert_array_equal(batch.labels, again.labels)

    def test_image_and_mask_are_seen_alike(self, tree, encoded):
        """Images whose brightness is their class show in each view where the mask lies."""
        values = np.kron(np.random.default_rng(0).integers(0, 2, (5, 7)), np.ones((8, 8)))
        image = Image.fromarray((values * 200 + 20).astype(np.uint8)).convert("RGB")
        path = tree(
            {
                "images/a.png": encoded(image),
                "masks/a.png": encoded(Image.fromarray(values.astype(np.uint8))),
            }
        )
        loader = Loader(train(path), size=64, batch=1, train=True)
        for epoch in range(12):
            batch = next(loader.epoch(epoch))
            pixels, labels = batch.images[0].mean(axis=2), batch.labels[0]
            light, dark = (pixels[labels == value] for value in (1, 0))
            assert np.median(light) > np.median(dark) + 20
            middle = (np.median(light) + np.median(dark)) / 2
            agree = ((pixels > middle) == (labels == 1))[labels != 255]
            assert agree.mean() > 0.93

    def test_in_an_archive(self, masked, pack):
        path = pack(masked([("classes.txt", "a\nb\n")], x=mask(0, 1), y=mask(1, 0)), "wrapped/")
        assert train(path).classes == ("a", "b")

    def test_a_changed_mask_changes_the_fingerprint(self, masked, encoded):
        path = masked(a=mask(0, 1), b=mask(0, 1))
        before = load_splits(path).fingerprint()
        (path / "masks/a.png").write_bytes(encoded(mask(0, 0, 1)))
        assert load_splits(path).fingerprint() != before


class TestRefused:
    def test_another_size(self, masked):
        message = refusal(masked(a=mask(0, 1, size=(20, 24))))
        assert "masks/a.png has 20 x 24 pixels and its image images/a.png 24 x 20" in message

    def test_a_rotated_photo(self, tree, encoded, noise):
        exif = Image.Exif()
        exif[0x0112] = 6
        photo = encoded(noise(0), "JPEG", exif=exif)
        stored = {"images/a.jpg": photo, "masks/a.png": encoded(mask(0, 1))}
        message = refusal(tree(stored))
        assert "its image images/a.jpg 20 x 24; its EXIF orientation turns the image" in message
        upright = {"images/a.jpg": photo, "masks/a.png": encoded(mask(0, 1, size=(20, 24)))}
        assert len(train(tree(upright, "upright"))) == 1

    def test_a_photo(self, masked, noise):
        message = refusal(masked(a=noise(3)))
        assert "masks/a.png is a picture of more than 256 colors" in message
        assert "not exchanged" in message

    def test_colors(self, masked):
        message = refusal(masked(a=mask(0, 1, mode="P").convert("RGB")))
        assert "masks/a.png has 2 colors (mode RGB)" in message
        assert "palette PNG" in message

    @pytest.mark.parametrize("dtype", [np.uint16, np.int32])
    def test_many_bits(self, masked, encoded, dtype):
        image = Image.fromarray(np.zeros((20, 24), dtype))
        stored = encoded(image, "TIFF")
        assert "has more than 8 bits a pixel" in refusal(masked(a=stored))

    def test_jpeg(self, masked, encoded):
        assert "masks/a.png is a JPEG" in refusal(masked(a=encoded(mask(0, 1), "JPEG")))

    def test_palettes_of_two_sets(self, masked):
        other = mask(0, 1, mode="P")
        other.putpalette(bytes(768))
        message = refusal(masked(a=mask(0, 1, mode="P"), b=other))
        assert "masks/b.png has another palette than masks/a.png: the value 0" in message

    def test_a_palette_and_gray(self, masked):
        assert len(train(masked(a=mask(0, 1, mode="P"), b=mask(0, 1)))) == 2

    def test_objects_of_255(self, masked):
        message = refusal(masked(a=mask(0, 0, 255)))
        assert "only the values 0 (66.7%), 255 (33.3%)" in message
        assert 'ignore="none"' in message
        assert "one class only, '0'" in refusal(
            masked(a=mask(0, 0, 255)), masks=MaskOptions(ignore="255")
        )

    def test_a_few_photos_of_one_class_can_be_evaluated(self, masked):
        path = masked(a=mask(1, 255))
        splits = load_splits(path, val_fraction=1.0, classes=("sky", "road"))
        assert splits.val.labels["pixels"].tolist() == [[0, 240]]

    def test_a_value_above_the_names(self, masked):
        message = refusal(masked([("classes.txt", "a\nb\n")], a=mask(0, 1), b=mask(0, 2)))
        assert "masks/b.png in" in message
        assert "has the value 2 (50.0% of its pixels), but the 2 classes are the values 0 to 1" in (
            message
        )

    def test_a_class_that_the_model_does_not_know(self, masked):
        message = refusal(masked([("classes.txt", "a\nb\n")], a=mask(0, 1)), classes=("a", "c"))
        assert "the class 'b' in masks/a.png, which is not one of the 2 classes trained" in message
        assert message.endswith("; ignore that class, or give masks without it")

    def test_all_ignored(self, masked):
        message = refusal(masked(a=mask(255), b=mask(255)))
        assert "every pixel of the masks" in message
        assert "255 (100.0%)" in message

    def test_one_class(self, masked):
        assert "one class only, '4'" in refusal(masked(a=mask(4)))

    def test_values_of_a_photo(self, masked):
        message = refusal(masked(a=mask(*range(0, 240, 3), size=(80, 20)), b=mask(0)))
        assert "has 80 x 20" in message or "different values" in message

    def test_more_values_than_classes_without_names(self, tree, encoded, noise):
        files = {
            "images/a.png": encoded(noise(0, 240, 4)),
            "masks/a.png": encoded(mask(*range(120), size=(240, 4))),
        }
        assert "have 120 different values, as photos or smoothed edges have" in refusal(tree(files))
        assert MOST_UNNAMED < 120

    @pytest.mark.parametrize("ignore", ["grass", "256", "-1", "1.5", ""])
    def test_an_unknown_value_to_ignore(self, masked, ignore):
        path = masked([("classes.txt", "a\nb\n")], a=mask(0, 1))
        message = refusal(path, masks=MaskOptions(ignore=ignore))
        assert f"ignore={ignore!r} is neither a value of 0 to 255 nor a class" in message
        assert "a, b" in message

    def test_names_that_are_no_file(self, masked):
        message = refusal(masked(a=mask(0, 1)), masks=MaskOptions(class_names="nowhere"))
        assert "nowhere cannot be read" in message
        assert "names separated by commas" in message


class TestSkipped:
    @pytest.mark.parametrize(
        ("content", "reason"),
        [(b"", "the file is empty"), (b"no image", "not an image in a known format")],
    )
    def test_an_unreadable_mask(self, masked, content, reason):
        splits = load_splits(masked(a=mask(0, 1), b=content), val_fraction=0)
        assert splits.train.names == ("images/a.png",)
        assert splits.skipped == (("images/b.png", f"its mask masks/b.png: {reason}"),)

    def test_a_truncated_mask(self, masked, encoded):
        pixels = np.random.default_rng(0).integers(0, 2, (20, 24), np.uint8)
        whole = encoded(Image.fromarray(pixels))
        splits = load_splits(masked(a=mask(0, 1), b=whole[:80]), val_fraction=0)
        ((name, reason),) = splits.skipped
        assert name == "images/b.png"
        assert reason.startswith("its mask masks/b.png: ")

    def test_a_mask_that_is_damaged_later(self, masked, encoded):
        path = masked(a=mask(0, 1), b=mask(0, 1), c=mask(0, 1))
        dataset = train(path)
        (path / "masks/a.png").write_bytes(b"")
        (path / "masks/b.png").write_bytes(encoded(mask(0, 1, size=(9, 9))))
        loader = Loader(dataset, size=8, batch=2, train=False)
        (batch,) = loader.epoch(0)
        assert batch.names == ("images/c.png",)
        assert [each.reason for each in loader.skipped] == [
            "its mask masks/a.png: the file is empty",
            "its mask masks/b.png: it has another size than its image",
        ]


@given(st.binary(max_size=400))
def test_any_bytes_are_skipped_or_refused(data):
    """Whatever a mask holds, it is skipped with a reason or refused with a sentence."""

    class Source:
        def open(self, name):
            return io.BytesIO(data)

    with pytest.raises(UnreadableImage, match="its mask"):
        Masks(Source(), np.zeros(256, np.uint8)).read("a.png", 3, 2)


@given(st.data())
def test_a_damaged_png_is_skipped_or_refused(data):
    buffer = io.BytesIO()
    mask(0, 1, 2, mode="P").save(buffer, "PNG")
    content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(8, len(content) - 1))] = data.draw(st.integers(0, 255))

    class Source:
        def open(self, name):
            return io.BytesIO(bytes(content))

    with suppress(UnreadableImage):
        found = Masks(Source(), np.arange(256, dtype=np.uint8)).read("a.png", 24, 20)
        assert (found.shape, found.dtype) == ((20, 24), np.uint8)
