"""Every kind of image that people have arrives upright, in RGB."""

import io

import numpy as np
import pytest
from PIL import Image

from pocketune.data import open_image
from pocketune.data.images import opening as opening_module
from pocketune.data.images.decode import EXIF_ORIENTATION, UPRIGHT, decode, oriented_size
from pocketune.data.images.opening import FORMATS

from .loading import load_image

RED, WHITE = (255, 0, 0), (255, 255, 255)


def pixel(image: Image.Image) -> tuple[int, ...]:
    assert image.mode == "RGB"
    return tuple(image.getpixel((0, 0)))


class TestModes:
    @pytest.mark.parametrize(
        ("mode", "color", "expected"),
        [
            ("1", 1, WHITE),
            ("L", 77, (77, 77, 77)),
            ("LA", (0, 0), WHITE),
            ("LA", (77, 255), (77, 77, 77)),
            ("RGB", (1, 2, 3), (1, 2, 3)),
            ("RGBA", (*RED, 255), RED),
            ("RGBA", (*RED, 0), WHITE),
            ("RGBA", (0, 0, 0, 128), (127, 127, 127)),
            ("I;16", 77 * 256, (77, 77, 77)),
        ],
    )
    def test_png(self, encoded, mode, color, expected):
        assert pixel(load_image(encoded(Image.new(mode, (4, 3), color)))) == expected

    @pytest.mark.parametrize("color", [(0, 255, 255, 0), (0, 0, 0, 0), (0, 255, 255, 128)])
    def test_cmyk_jpeg(self, encoded, color):
        image = Image.new("CMYK", (16, 16), color)
        difference = np.subtract(
            pixel(load_image(encoded(image, "JPEG", quality=95))), pixel(image.convert("RGB"))
        )
        assert np.abs(difference).max() <= 4

    def test_gray_jpeg(self, encoded):
        assert pixel(load_image(encoded(Image.new("L", (16, 16), 99), "JPEG"))) == (99, 99, 99)

    def test_palette(self, encoded):
        assert pixel(load_image(encoded(Image.new("RGB", (4, 4), RED).quantize()))) == RED

    def test_transparent_palette(self, encoded):
        image = Image.new("P", (4, 4), 0)
        image.putpalette([0, 0, 0, 255, 0, 0])
        assert pixel(load_image(encoded(image, transparency=0))) == WHITE

    def test_transparent_color(self, encoded):
        image = Image.new("RGB", (4, 4), RED)
        assert pixel(load_image(encoded(image, transparency=RED))) == WHITE

    @pytest.mark.parametrize(
        ("values", "expected"),
        [(np.float32(0.5), 127), (np.float32(90), 90), (np.int32(25600), 100)],
    )
    def test_deep_gray_tiff(self, encoded, values, expected):
        image = Image.fromarray(np.full((3, 4), values))
        assert pixel(load_image(encoded(image, "TIFF"))) == (expected,) * 3

    def test_sixteen_bits_keep_their_order(self, encoded):
        ramp = np.arange(0, 65536, 16, dtype=np.uint16).reshape(64, 64)
        gray = np.asarray(load_image(encoded(Image.fromarray(ramp))))[..., 0]
        np.testing.assert_array_equal(gray, ramp >> 8)

    @pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
    def test_first_frame_of_an_animation(self, encoded, kind):
        first, second = Image.new("RGB", (8, 8), RED), Image.new("RGB", (8, 8), (0, 0, 255))
        options = {"lossless": True} if kind == "WEBP" else {}
        data = encoded(first, kind, save_all=True, append_images=[second], duration=50, **options)
        assert pixel(load_image(data)) == RED

    @pytest.mark.parametrize("kind", [name for name in FORMATS if name != "AVIF"])
    def test_formats(self, encoded, kind):
        difference = np.subtract(
            pixel(load_image(encoded(Image.new("RGB", (16, 16), RED), kind))), RED
        )
        assert np.abs(difference).max() <= 4

    def test_an_avif_is_decoded_by_few_threads(self, encoded, monkeypatch):
        made, decoder = [], opening_module.AvifImagePlugin._avif.AvifDecoder
        monkeypatch.setattr(
            opening_module.AvifImagePlugin._avif,
            "AvifDecoder",
            lambda *options: made.append(options[2]) or decoder(*options),
        )
        load_image(encoded(Image.new("RGB", (16, 16)), "AVIF"))
        assert made == [2]


class TestOrientation:
    @pytest.mark.parametrize("orientation", range(1, 9))
    @pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
    def test_upright(self, encoded, noise, kind, orientation):
        upright = noise(0, 16, 8).resize((64, 32), Image.Resampling.NEAREST)
        inverse = {6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
        turn = inverse.get(orientation, UPRIGHT.get(orientation))
        stored = upright if turn is None else upright.transpose(turn)
        exif = Image.Exif()
        exif[EXIF_ORIENTATION] = orientation
        options = {"JPEG": {"quality": 95, "subsampling": 0}, "WEBP": {"lossless": True}}.get(
            kind, {}
        )
        data = encoded(stored, kind, exif=exif, **options)
        with open_image(io.BytesIO(data)) as image:
            assert oriented_size(image) == (64, 32)
        loaded = load_image(data)
        assert loaded.size == (64, 32)
        difference = np.subtract(loaded, upright, dtype=float)
        assert np.abs(difference).mean() <= (10 if kind == "JPEG" else 0)

    def test_not_turned_twice(self, encoded, noise):
        exif = Image.Exif()
        exif[EXIF_ORIENTATION] = 6
        loaded = load_image(encoded(noise(0, 40, 20), "JPEG", exif=exif))
        assert loaded.size == oriented_size(loaded) == (20, 40)
        assert decode(loaded).size == (20, 40)

    @pytest.mark.filterwarnings("ignore:Corrupt EXIF")
    def test_damaged_note_is_ignored(self, encoded, noise):
        data = encoded(noise(0), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xffgarbage")
        assert load_image(data).size == (24, 20)

    def test_unknown_value_is_ignored(self, encoded, noise):
        exif = Image.Exif()
        exif[EXIF_ORIENTATION] = 77
        assert load_image(encoded(noise(0), "JPEG", exif=exif)).size == (24, 20)
