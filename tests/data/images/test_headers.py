"""What is read of a header is what Pillow reads; what Pillow refuses is never accepted."""

import io

import numpy as np
import pytest
from PIL import Image

from pocketune.data.images.decode import EXIF_ORIENTATION
from pocketune.data.images.headers import BEGINNING, Header, read_header
from pocketune.data.images.opening import open_image
from pocketune.data.images.pillow_headers import header_of

from ..conftest import divided_jpeg

KINDS = [
    ("JPEG", "RGB", {}),
    ("JPEG", "RGB", {"progressive": True}),
    ("JPEG", "RGB", {"progressive": True, "subsampling": 0}),
    ("JPEG", "L", {"progressive": True}),
    ("JPEG", "CMYK", {}),
    ("JPEG", "RGB", {"comment": b"c" * 200, "dpi": (72, 72)}),
    ("JPEG", "RGB", {"icc_profile": b"p" * 500}),
    *(("PNG", mode, {}) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")),
    ("PNG", "RGB", {"dpi": (72, 72)}),
]
LEFT = [  # to Pillow
    ("PNG", "RGB", {"icc_profile": b"p" * 50}),
    ("PNG", "P", {"transparency": 0}),
    ("WEBP", "RGB", {}),
    ("GIF", "P", {}),
    ("TIFF", "RGB", {}),
]


def image(mode: str) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (34, 50, 3), dtype=np.uint8)
    if mode == "I;16":
        return Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
    return Image.fromarray(pixels).convert(mode)


def read(data: bytes) -> Header | None:
    return read_header(lambda size: data[:size])


def pillows(data: bytes) -> Header | None:
    try:
        with open_image(io.BytesIO(data)) as opened:
            return header_of(opened)
    except Exception:  # Pillow raises nearly anything
        return None


@pytest.mark.parametrize(("kind", "mode", "options"), KINDS)
def test_usual_headers(encoded, kind, mode, options) -> None:
    data = encoded(image(mode), kind, **options)
    assert read(data) == pillows(data) != None  # noqa: E711 - one comparison shows both


@pytest.mark.parametrize(("kind", "mode", "options"), LEFT)
def test_others_are_left_to_pillow(encoded, kind, mode, options) -> None:
    data = encoded(image(mode), kind, **options)
    assert read(data) is None
    assert pillows(data) is not None


def test_a_header_with_a_preview_is_read_in_two_steps(encoded) -> None:
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = 6
    exif[0x9286] = b"note" * 3 * BEGINNING
    data, asked = encoded(image("RGB"), "JPEG", exif=exif), []
    found = read_header(lambda size: asked.append(size) or data[:size])
    assert found == pillows(data)
    assert len(asked) == 2


@pytest.mark.parametrize(("sampling", "coefficients"), [(0x22, 1.5), (0x11, 3.0)])
def test_a_jpeg_of_one_scan_for_each_component_keeps_coefficients(sampling, coefficients) -> None:
    for frame in (0xC0, 0xC1):
        data = divided_jpeg(40, 30, sampling, frame)
        assert read(data) == Header("JPEG", "RGB", 40, 30, coefficients) == pillows(data)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize(("kind", "options"), [("JPEG", {"dpi": (72, 72)}), ("PNG", {})])
def test_nothing_damaged_is_accepted_that_pillow_refuses(encoded, kind, options) -> None:
    data = encoded(image("RGB"), kind, **options)
    end = 700 if kind == "JPEG" else 80
    rng = np.random.default_rng(1)
    for _ in range(1500):
        broken = bytearray(data)
        for position in rng.integers(0, end, rng.integers(1, 3)):
            broken[position] = rng.choice([0, 1, 2, 8, 64, 255, rng.integers(256)])
        broken = bytes(broken[: rng.integers(20, len(data))] if rng.random() < 0.3 else broken)
        found = read(broken)
        assert found is None or found == pillows(broken)


@pytest.mark.parametrize(("compression", "mode"), [("tiff_lzw", "RGB"), ("jpeg", "YCbCr")])
@pytest.mark.parametrize(("rows", "strip"), [(1 << 30, 200), (8, 8)])
def test_a_compressed_tiff_counts_a_strip(encoded, compression, mode, rows, strip) -> None:
    picture = Image.new(mode, (300, 200))
    data = encoded(picture, "TIFF", compression=compression, strip_size=rows * 300 * 3)
    with open_image(io.BytesIO(data)) as opened:
        assert header_of(opened).file_bytes == len(data) + 300 * strip * 3
    with open_image(io.BytesIO(encoded(Image.new("RGB", (300, 200)), "TIFF"))) as opened:
        assert header_of(opened).file_bytes == 0


@pytest.mark.parametrize("compression", ["tiff_lzw", "jpeg"])
def test_a_tiff_counts_the_strips_of_its_first_page(encoded, compression, tmp_path) -> None:
    """In a file of its own; in an archive, all pages are in memory."""
    page, rest = Image.new("RGB", (300, 200)), [image("RGB").resize((900, 600))] * 3
    options = {"compression": compression, "strip_size": 8 * 300 * 3}
    one = encoded(page, "TIFF", **options)
    data = encoded(page, "TIFF", **options, save_all=True, append_images=rest)
    (tmp_path / "pages.tiff").write_bytes(data)
    strip = 8 * 300 * 3
    with (tmp_path / "pages.tiff").open("rb") as file, open_image(file) as opened:
        assert header_of(opened).file_bytes < len(one) + strip
    with open_image(io.BytesIO(data)) as opened:
        assert header_of(opened).file_bytes == len(data) + strip


def test_a_tiff_that_is_turned_counts_its_copy(encoded) -> None:
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = 6
    with open_image(io.BytesIO(encoded(Image.new("RGB", (300, 200)), "TIFF", exif=exif))) as opened:
        assert header_of(opened).file_bytes == 4 * 300 * 200


@pytest.mark.parametrize(
    ("kind", "options"), [("WEBP", {}), ("AVIF", {"speed": 10}), ("TIFF", {}), ("PNG", {})]
)
def test_metadata_that_is_held(encoded, kind, options) -> None:
    data = encoded(image("RGB"), kind, icc_profile=b"p" * 5000, **options)
    with open_image(io.BytesIO(data)) as opened:
        found = header_of(opened).metadata
    assert found == 0 if kind == "PNG" else 5000 <= found < 5100
