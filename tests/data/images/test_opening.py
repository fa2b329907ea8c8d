"""Files that are no images, or too large, are refused with a reason; HEIC opens by a plug-in."""

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

from pocketune.data import UnreadableImage, center_crop, open_image
from pocketune.data.images import cost as cost_module
from pocketune.data.images import decode as decode_module
from pocketune.data.images import opening as opening_module
from pocketune.data.images.cost import HEAVY_BYTES, turn_for
from pocketune.data.images.decode import decode
from pocketune.data.images.headers import Header

from .loading import load_image

RED, WHITE = (255, 0, 0), (255, 255, 255)


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


def test_a_heic_photo_is_decoded(noise):
    heif, file = pytest.importorskip("pillow_heif"), io.BytesIO()
    image = noise(0, 48, 32).resize((480, 320))
    heif.from_pillow(image).save(file, quality=90)
    decoded = load_image(file.getvalue())
    assert decoded.size == (480, 320)
    assert np.abs(np.asarray(decoded, float) - np.asarray(image)).mean() < 12
    opened = open_image(file)
    header = opening_module.header_of(opened)
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
            (b"\xff\xd8\xff\xe0 nope", "the file is cut off"),
            (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "not an image"),
        ],
    )
    def test_no_image(self, data, reason):
        assert reason in self.refusal(data)

    def test_a_heic_photo_names_the_package_that_reads_it(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pillow_heif", None)
        reason = self.refusal(b"\0\0\0\x18ftypheic\0\0\0\0")
        assert 'pip install "pocketune[heif]", or export it as JPEG' in reason

    def test_a_damaged_heic_photo_is_said_to_be_damaged(self):
        pytest.importorskip("pillow_heif")
        assert self.refusal(b"\0\0\0\x18ftypheic" + bytes(100)) == "the file is damaged"

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
        monkeypatch.setattr(cost_module, "MAX_WORKING_BYTES", 400 * 300 * 2)
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
            decode_module, "to_rgb", lambda image: (_ for _ in ()).throw(MemoryError)
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
        with cost_module._heavy, open_image(io.BytesIO(data)) as image:
            assert center_crop(image, 32).shape == (32, 32, 3)

    def test_no_other_plugin_is_imported(self):
        script = (
            "import io, sys\nfrom pocketune.data import UnreadableImage, open_image\n"
            "from pocketune.data.images.opening import reading_image\n"
            "try:\n  with reading_image('it'): open_image(io.BytesIO(b'no image at all'))\n"
            "except UnreadableImage: pass\n"
            "assert not {'PIL.EpsImagePlugin', 'torch', 'onnx'} & set(sys.modules)\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True)
