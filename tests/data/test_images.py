"""Every kind of image that people have arrives upright, in RGB, or is refused with a reason."""

import contextlib
import io
import struct
import subprocess
import sys
import threading
import zlib
from contextlib import AbstractContextManager

import numpy as np
import pytest
from PIL import Image

from pocketune.data import UnreadableImage, center_crop, load_image, open_image
from pocketune.data import decoding as decoding_module
from pocketune.data import images as images_module
from pocketune.data.decoding import HEAVY_BYTES, turn_for
from pocketune.data.headers import Header
from pocketune.data.images import (
    EXIF_ORIENTATION,
    FORMATS,
    UPRIGHT,
    decode,
    oriented_size,
)

RED, WHITE = (255, 0, 0), (255, 255, 255)


def pixel(image: Image.Image) -> tuple[int, ...]:
    assert image.mode == "RGB"
    return tuple(image.getpixel((0, 0)))


def enter(turn: AbstractContextManager, entered: threading.Event) -> None:
    with turn:
        entered.set()


def forged_png(width: int, height: int) -> bytes:
    """A PNG whose header promises any size; its pixels are missing."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 64)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


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
        made, decoder = [], images_module.AvifImagePlugin._avif.AvifDecoder
        monkeypatch.setattr(
            images_module.AvifImagePlugin._avif,
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


def test_a_heic_photo_is_decoded(noise):
    heif, file = pytest.importorskip("pillow_heif"), io.BytesIO()
    image = noise(0, 48, 32).resize((480, 320))
    heif.from_pillow(image).save(file, quality=90)
    decoded = load_image(file.getvalue())
    assert decoded.size == (480, 320)
    assert np.abs(np.asarray(decoded, float) - np.asarray(image)).mean() < 12
    opened = open_image(file)
    header = images_module.header_of(opened)
    size = len(file.getvalue())
    assert header == Header("HEIF", "RGB", 480, 320, file_bytes=size, planes=1.5)
    with pytest.raises(UnreadableImage):
        load_image(file.getvalue()[:200])


class TestRefusals:
    def refusal(self, data: bytes) -> str:
        with pytest.raises(UnreadableImage) as caught:
            load_image(data)
        assert "\n" not in str(caught.value)
        assert caught.value.reason in str(caught.value)
        return caught.value.reason

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"", "empty"),
            (b"these are words", "not an image"),
            (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "not an image"),
        ],
    )
    def test_no_image(self, data, reason):
        assert reason in self.refusal(data)

    def test_a_heic_photo_names_the_package_that_reads_it(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pillow_heif", None)
        reason = self.refusal(b"\0\0\0\x18ftypheic\0\0\0\0")
        assert 'pip install "pocketune[heif]", or export it as JPEG' in reason

    @pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"])
    @pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
    def test_truncated(self, encoded, noise, kind, share):
        data = encoded(noise(0, 200, 200), kind)
        assert self.refusal(data[: int(len(data) * share)])

    @pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "TIFF", "WEBP"])
    @pytest.mark.filterwarnings("ignore::UserWarning:PIL")
    def test_damaged_bytes_never_raise_anything_else(self, encoded, noise, kind):
        data = bytearray(encoded(noise(0, 64, 64), kind))
        rng = np.random.default_rng(0)
        for _ in range(60):
            broken = data.copy()
            for position in rng.integers(0, len(data), 8):
                broken[position] = rng.integers(256)
            with contextlib.suppress(UnreadableImage):
                load_image(bytes(broken))

    @pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
    @pytest.mark.parametrize(("side", "reason"), [(20_000, "million pixels"), (9_600, "to decode")])
    def test_too_large(self, side, reason):
        """The header shows it, so no memory of that size is ever allocated."""
        assert reason in self.refusal(forged_png(side, side))

    def test_progressive_jpeg_counts_its_coefficients(self, encoded, monkeypatch):
        image = Image.new("RGB", (400, 300))
        monkeypatch.setattr(decoding_module, "MAX_WORKING_BYTES", 400 * 300 * 2)
        load_image(encoded(image, "JPEG"))
        assert "to decode" in self.refusal(encoded(image, "JPEG", progressive=True))

    def test_missing_file(self, tmp_path):
        with pytest.raises(UnreadableImage, match=r"gone\.jpg cannot be used .* no such file"):
            load_image(tmp_path / "gone.jpg")

    def test_no_permission(self, tmp_path, monkeypatch, encoded, noise):
        path = tmp_path / "secret.png"
        path.write_bytes(encoded(noise(0)))

        def refuse(*args, **kwargs):
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(type(path), "open", refuse)
        with pytest.raises(UnreadableImage, match="no permission"):
            load_image(path)

    def test_damaged_compression_is_said_in_words(self, encoded, noise):
        data = bytearray(encoded(noise(0), "TIFF", compression="tiff_adobe_deflate"))
        data[100:160] = bytes(60)
        with pytest.raises(UnreadableImage, match="the file is damaged"):
            load_image(bytes(data))

    def test_memory_errors_are_not_hidden(self, encoded, noise, monkeypatch):
        monkeypatch.setattr(
            images_module, "to_rgb", lambda image: (_ for _ in ()).throw(MemoryError)
        )
        with pytest.raises(MemoryError):
            load_image(encoded(noise(0)))


class TestMemory:
    @pytest.mark.parametrize(
        ("scale", "expected"), [(1, 1600), (0.5, 800), (0.3, 800), (0.01, 200)]
    )
    def test_jpeg_is_decoded_small(self, encoded, scale, expected):
        with open_image(io.BytesIO(encoded(Image.new("RGB", (1600, 1200)), "JPEG"))) as image:
            assert decode(image, scale).width == expected

    def test_heavy_images_take_turns(self):
        light, heavy = HEAVY_BYTES, HEAVY_BYTES + 1
        with turn_for(heavy):
            with turn_for(light):
                pass
            entered = threading.Event()
            other = threading.Thread(target=lambda: enter(turn_for(heavy), entered))
            other.start()
            assert not entered.wait(0.05)
        other.join()
        assert entered.is_set()

    def test_photo_is_not_heavy(self, encoded):
        data = encoded(Image.new("L", (4000, 3000)), "JPEG")
        with decoding_module._heavy, open_image(io.BytesIO(data)) as image:
            assert center_crop(image, 32).shape == (32, 32, 3)

    def test_no_other_plugin_is_imported(self):
        script = (
            "import sys\nfrom pocketune.data import load_image, UnreadableImage\n"
            "try: load_image(b'no image at all')\nexcept UnreadableImage: pass\n"
            "assert not {'PIL.EpsImagePlugin', 'torch', 'onnx'} & set(sys.modules)\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True)
