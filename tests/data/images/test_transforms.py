"""Crops are inside the image, of the allowed shapes, and give the expected pixels."""

import io
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from pocketune.data import open_image
from pocketune.data.images.decode import decode, oriented_size
from pocketune.data.images.transforms import (
    AREA,
    ASPECT,
    FILL,
    apply,
    center_box,
    center_crop,
    center_view,
    random_box,
    random_view,
    recolored,
    resized,
)
from pocketune.tasks import Box, Segmentation, View
from pocketune.tasks.views import Colors, random_square

sides = st.integers(1, 5000)
seeds = st.integers(0, 2**32 - 1)


def inside(box: Box, width: int, height: int) -> bool:
    slack = 1e-6 * max(width, height)
    return (
        box.width > 0
        and box.height > 0
        and box.left >= -slack
        and box.top >= -slack
        and box.left + box.width <= width + slack
        and box.top + box.height <= height + slack
    )


class TestRandomBox:
    @given(width=sides, height=sides, seed=seeds)
    def test_inside(self, width, height, seed):
        assert inside(random_box(width, height, np.random.default_rng(seed)), width, height)

    @given(width=st.integers(200, 4000), height=st.integers(200, 4000), seed=seeds)
    def test_area_and_aspect(self, width, height, seed):
        box = random_box(width, height, np.random.default_rng(seed))
        rounding = 1 / 50  # half a pixel of the shortest box
        assert ASPECT[0] * (1 - rounding) <= box.width / box.height <= ASPECT[1] * (1 + rounding)
        if ASPECT[0] <= width / height <= ASPECT[1]:
            share = box.width * box.height / (width * height)
            assert AREA[0] * (1 - rounding) <= share <= AREA[1] * (1 + rounding)

    @pytest.mark.parametrize(("width", "height"), [(1, 1), (5000, 1), (1, 5000)])
    def test_extreme_shapes_are_centered(self, width, height):
        box = random_box(width, height, np.random.default_rng(0))
        assert inside(box, width, height)
        assert box.left + box.width / 2 == pytest.approx(width / 2)
        assert box.top + box.height / 2 == pytest.approx(height / 2)

    def test_covers_the_image(self):
        rng = np.random.default_rng(0)
        covered = np.zeros((60, 80), dtype=int)
        for _ in range(300):
            left, top, width, height = (int(value) for value in random_box(80, 60, rng))
            covered[top : top + height, left : left + width] += 1
        assert covered.min() > 0


class TestCenterBox:
    @given(width=sides, height=sides, size=st.integers(1, 512))
    def test_square_in_the_center(self, width, height, size):
        box = center_box(width, height, size)
        assert inside(box, width, height)
        assert box.width == box.height
        assert box.left == pytest.approx(width - box.left - box.width)
        assert box.top == pytest.approx(height - box.top - box.height)

    @given(size=st.integers(1, 512), longer=st.integers(0, 300))
    def test_equals_resizing_the_shorter_side_first(self, size, longer):
        """At the size `ceil(size / 0.875)` nothing is scaled."""
        side = math.ceil(size / 0.875)
        assert center_box(side, side + longer, size).width == pytest.approx(size)


def random_crop(image, size, rng):
    return apply(image, random_view(*oriented_size(image), size, rng))


class TestCrop:
    @settings(max_examples=60)
    @given(
        width=st.integers(1, 300), height=st.integers(1, 300), size=st.integers(1, 64), seed=seeds
    )
    def test_any_image_gives_a_square(self, width, height, size, seed):
        image = Image.new("RGB", (width, height), (10, 200, 30))
        for pixels in (
            random_crop(image, size, np.random.default_rng(seed)),
            center_crop(image, size),
        ):
            assert pixels.shape == (size, size, 3)
            assert pixels.dtype == np.uint8
            assert (pixels == (10, 200, 30)).all()

    def test_box_of_the_same_size_copies_pixels(self, noise):
        image = noise(0, 40, 30)
        pixels = resized(image, Box(5, 7, 16, 16), 16, 16)
        np.testing.assert_array_equal(pixels, np.asarray(image)[7:23, 5:21])

    def test_same_stream_same_crop(self, noise):
        image = noise(0, 64, 48)
        first, again = (random_crop(image, 24, np.random.default_rng(3)) for _ in range(2))
        np.testing.assert_array_equal(first, again)

    def test_mirrored_half_of_the_time(self):
        ramp = np.arange(0, 256, 8, dtype=np.uint8)
        image = Image.fromarray(np.tile(ramp[None, :, None], (32, 1, 3)))
        mirrored = 0
        for seed in range(200):
            pixels = random_crop(image, 8, np.random.default_rng(seed))
            mirrored += int(pixels[0, 0, 0] > pixels[0, -1, 0])
        assert 70 < mirrored < 130

    @pytest.mark.parametrize("orientation", [1, 3, 6, 8])
    def test_decoded_small_is_the_same_picture(self, encoded, orientation):
        """A JPEG decoded at an eighth, and turned, gives the crop of the whole photo."""
        y, x = np.mgrid[0:1200, 0:1600]
        waves = np.stack([x % 256, y % 256, (x + y) % 256], axis=-1)
        smooth = Image.fromarray(waves.astype(np.uint8)).resize((40, 30)).resize((1600, 1200), 3)
        exif = Image.Exif()
        exif[0x0112] = orientation
        data = encoded(smooth, "JPEG", exif=exif, quality=95)
        for seed in range(4):
            with open_image(io.BytesIO(data)) as lazy:
                small = random_crop(lazy, 48, np.random.default_rng(seed))
            with open_image(io.BytesIO(data)) as whole:
                full = random_crop(decode(whole), 48, np.random.default_rng(seed))
            assert np.abs(small.astype(int) - full).mean() < 2


def turned(image: Image.Image, orientation: int, encoded) -> Image.Image:
    """Opened from a file whose note says how it is to be turned."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return open_image(io.BytesIO(encoded(image, exif=exif)))


class TestView:
    """What a view shows, by pixels that are told apart."""

    def test_mirrored_columns_are_exchanged_and_rows_are_not(self, noise):
        image, box = noise(0, 40, 30), Box(3, 4, 10, 20)
        plain, mirrored = (apply(image, View(box, 12, side)) for side in (False, True))
        np.testing.assert_array_equal(mirrored, plain[:, ::-1])
        assert not np.array_equal(mirrored, plain)

    def test_a_view_is_not_mirrored_unless_it_says_so(self, noise):
        image = noise(0, 16, 16)
        whole = apply(image, View(Box(0, 0, 16, 16), 16))
        np.testing.assert_array_equal(whole, np.asarray(image))

    @pytest.mark.parametrize("mirrored", [False, True])
    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_the_box_is_of_the_upright_image(self, encoded, noise, orientation, mirrored):
        image = noise(0, 40, 30)
        view = View(Box(2, 3, 16, 16), 16, mirrored)
        with turned(image, orientation, encoded) as photo:
            pixels = apply(photo, view)
        exif = Image.Exif()
        exif[0x0112] = orientation
        copy = Image.open(io.BytesIO(encoded(image, exif=exif)))
        upright = np.asarray(ImageOps.exif_transpose(copy))
        expected = upright[3:19, 2:18]
        np.testing.assert_array_equal(pixels, expected[:, ::-1] if mirrored else expected)

    def test_a_part_of_other_shape_becomes_a_square(self):
        halves = np.zeros((20, 40, 3), np.uint8)
        halves[:, 20:] = 255
        pixels = apply(Image.fromarray(halves), View(Box(0, 0, 40, 10), 8))
        assert pixels.shape == (8, 8, 3)
        assert pixels[:, 0].max() == 0 and pixels[:, -1].min() == 255

    def test_the_middle_is_a_view_that_is_not_mirrored(self):
        view = center_view(100, 60, 56)
        assert view == View(center_box(100, 60, 56), 56, mirrored=False)

    def test_a_mirrored_view_has_the_same_box(self):
        for seed in range(20):
            view = random_view(90, 70, 32, np.random.default_rng(seed))
            assert view.box == random_box(90, 70, np.random.default_rng(seed))
            assert view.size == 32


class TestBeyondTheImage:
    def test_the_rest_is_filled(self):
        image = Image.new("RGB", (10, 10), (200, 0, 0))
        found = apply(image, View(Box(-5, 0, 20, 20), 20))
        assert (found[:10, 5:15] == (200, 0, 0)).all()
        assert (found[10:] == FILL).all()
        assert (found[:, :5] == FILL).all()

    @given(seed=seeds, size=st.integers(1, 40))
    def test_image_and_mask_lie_at_one_place(self, seed, size):
        """An image of one value and a mask of one class fill the same pixels of a view."""
        rng = np.random.default_rng(seed)
        width, height = rng.integers(1, 50, 2).tolist()
        view = View(random_square(width, height, rng), size, mirrored=bool(rng.random() < 0.5))
        pixels = apply(Image.new("RGB", (width, height)), view)
        mask = Segmentation(("a",)).transform(np.zeros((height, width), np.uint8), view)
        np.testing.assert_array_equal((pixels == 0).all(axis=2), mask == 0)


class TestRecolored:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 3), np.uint8)

    def test_no_change(self):
        np.testing.assert_array_equal(recolored(self.pixels, Colors()), self.pixels)

    def test_brightness_and_contrast(self):
        exact = self.pixels.astype(float)
        for last, expected in (
            (False, (exact + 20).clip(0, 255) * 1.5),
            (True, (exact + 20).clip(0, 255) * 1.5),
        ):
            found = recolored(self.pixels, Colors(20.0, 1.5, contrast_last=last))
            assert np.abs(found - expected.clip(0, 255)).max() <= 1

    def test_saturation_and_hue(self):
        color = np.array([[[200, 100, 100]]], np.uint8)
        gray = recolored(color, Colors(saturation=0.0))
        np.testing.assert_allclose(gray, 200, atol=1)
        turned = recolored(color, Colors(hue=1 / 3))
        np.testing.assert_allclose(turned[0, 0], [100, 200, 100], atol=4)

    def test_a_view_changes_the_image_and_not_what_is_filled(self):
        image = Image.new("RGB", (10, 10), (100, 100, 100))
        view = View(Box(0, 0, 20, 10), 10, colors=Colors(brightness=30.0))
        found = apply(image, view)
        assert (found[:, :5] == 130).all()
        assert (found[:, 5:] == FILL).all()
