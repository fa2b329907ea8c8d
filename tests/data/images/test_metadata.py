"""An image file without metadata: the same pixels, turned the same way."""

import io
import random
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from pocketune.data.images.decode import EXIF_ORIENTATION, decode, orientation
from pocketune.data.images.metadata import without_metadata
from pocketune.data.images.opening import open_image

from ..conftest import segment
from .loading import load_image

TURNED = 6


def chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def large_jpeg(encoded, image) -> bytes:
    """A JPEG with half a megabyte of previews and comments, before and behind its orientation."""
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = TURNED
    data = encoded(image, "JPEG", exif=exif)
    preview = segment(0xE2, b"FPXR\0" + bytes(60_000)) * 5 + segment(0xFE, bytes(60_000)) * 3
    return data[:2] + preview + data[2:20] + preview + data[20:]


def large_png(encoded, image, behind: bool = False) -> bytes:
    """A small PNG with megabytes of compressed text, before or behind its pixels."""
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = TURNED
    data = encoded(image, "PNG", exif=exif)
    text = b"".join(
        chunk(b"zTXt", b"k%d\0\0" % number + zlib.compress(bytes(1 << 19))) for number in range(8)
    )
    text += chunk(b"prVt", bytes(1 << 20))
    place = len(data) - 12 if behind else 33
    return data[:place] + text + data[place:]


def large_gif(encoded, image) -> bytes:
    """A GIF with half a megabyte of comments between other extensions, and a byte too many."""
    data = encoded(image.convert("P"), "GIF", duration=90)
    place = data.index(b"!\xf9")
    comment = b"!\xfe" + (b"\xff" + b"c" * 255) * 1000 + b"\0"
    return data[:place] + comment + b"\0!\xff\3app\3one\0" + comment + data[place:]


@pytest.mark.parametrize("make", [large_jpeg, large_png])
def test_pixels_and_orientation_stay(encoded, noise, make) -> None:
    data = make(encoded, noise(0, 60, 40))
    with open_image(io.BytesIO(data)) as image:
        assert orientation(image) == TURNED
        found = decode(image)
    with Image.open(io.BytesIO(data)) as image:
        expected = image.convert("RGB").transpose(Image.Transpose.ROTATE_270)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_no_metadata_of_a_jpeg_is_kept(encoded, noise) -> None:
    with open_image(io.BytesIO(large_jpeg(encoded, noise(0)))) as image:
        assert sum(len(content) for _, content in image.applist) < 1000  # type: ignore[attr-defined]


@pytest.mark.parametrize("behind", [False, True])
def test_no_metadata_of_a_png_is_kept(encoded, noise, behind) -> None:
    with open_image(io.BytesIO(large_png(encoded, noise(0), behind))) as image:
        assert isinstance(image, PngImagePlugin.PngImageFile)
        image.load()
        assert not image.png.im_text
        assert not image.private_chunks


def test_no_comments_of_a_gif_are_kept(encoded, noise) -> None:
    data = large_gif(encoded, noise(0, 60, 40))
    with Image.open(io.BytesIO(data)) as expected, open_image(io.BytesIO(data)) as image:
        assert len(expected.info["comment"]) > 500_000
        assert "comment" not in image.info
        assert image.info["duration"] == expected.info["duration"]
        np.testing.assert_array_equal(np.asarray(image), np.asarray(expected))


def test_a_turn_in_texts_stays(encoded, noise) -> None:
    info = PngImagePlugin.PngInfo()
    info.add_itxt("XML:com.adobe.xmp", '<x tiff:Orientation="6"/>')
    info.add_text("note", "n" * 1000, zip=True)
    with open_image(io.BytesIO(encoded(noise(0), "PNG", pnginfo=info))) as image:
        assert orientation(image) == TURNED
        assert "note" not in image.info


def test_files_of_little_metadata_are_themselves(encoded, noise) -> None:
    for kind in ("JPEG", "PNG", "GIF"):
        file = io.BytesIO(encoded(noise(0), kind, comment=b"short"))
        assert without_metadata(file) is file
        assert file.tell() == 0


def test_a_view_reads_as_a_file_of_the_remaining_parts(encoded, noise) -> None:
    whole = large_png(encoded, noise(0))
    view = without_metadata(io.BytesIO(whole))
    data = view.read()
    assert len(data) < len(whole) - (1 << 20)
    assert np.asarray(load_image(data)).shape == np.asarray(load_image(whole)).shape
    drawn = random.Random(0)
    for _ in range(200):
        start, size = drawn.randrange(len(data) + 9), drawn.randrange(90)
        assert view.seek(start) == start
        assert view.read(size) == data[start : start + size]
        assert view.tell() == max(start, min(start + size, len(data)))
    assert view.seek(-4, io.SEEK_END) == len(data) - 4
    assert view.seek(2, io.SEEK_CUR) == len(data) - 2
    assert view.read() == data[-2:]
