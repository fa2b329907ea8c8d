"""PPM, PGM and PBM files of any largest value, and of text: the pixels that Pillow decodes."""

import io

import numpy as np
import pytest
from PIL import Image

from pocketune.data import UnreadableImage
from pocketune.data.images import netpbm
from pocketune.data.images.opening import open_image

from .loading import load_image

WIDTH, HEIGHT = 5, 7


def drawn(kind: bytes, largest: int) -> np.ndarray:
    """Values of an image (row, value), some of them the largest."""
    bands = 3 if kind in (b"P3", b"P6") else 1
    return np.random.default_rng(0).integers(0, largest + 1, (HEIGHT, WIDTH * bands))


def written(kind: bytes, largest: int) -> bytes:
    most = 255 if largest < 256 else 65535
    data = drawn(kind, most).astype(np.uint8 if most < 256 else ">u2").tobytes()
    return b"%s %d %d %d\n" % (kind, WIDTH, HEIGHT, largest) + data


def text(kind: bytes, largest: int, between: bytes = b" ") -> bytes:
    rows = [between.join(b"%d" % value for value in row) for row in drawn(kind, largest).tolist()]
    head = b"%s\n# made by hand\n%d %d\n" % (kind, WIDTH, HEIGHT)
    number = b"" if kind == b"P1" else b"%d\n" % largest
    return head + number + b"\n# a row\r\n".join(rows) + b"\n"


TEXTS = [(b"P1", 1), (b"P2", 1), (b"P2", 255), (b"P2", 65535), (b"P3", 255), (b"P3", 1023)]


def agrees(data: bytes) -> None:
    with open_image(io.BytesIO(data)) as image, Image.open(io.BytesIO(data)) as expected:
        assert image.mode == expected.mode
        np.testing.assert_array_equal(np.asarray(image), np.asarray(expected))


@pytest.mark.parametrize("largest", [1, 15, 200, 256, 1023, 65535])
@pytest.mark.parametrize("kind", [b"P5", b"P6"])
def test_pixels_are_those_of_pillow(kind, largest, monkeypatch) -> None:
    for pixels in (8 * WIDTH, 12):  # some rows at a time, or parts of a row
        monkeypatch.setattr(netpbm, "PIXELS", pixels)
        agrees(written(kind, largest))


@pytest.mark.parametrize("block", [2, 7, 1000])
@pytest.mark.parametrize(("kind", "largest"), TEXTS)
def test_pixels_of_a_text(kind, largest, block, monkeypatch) -> None:
    monkeypatch.setattr(netpbm, "PIXELS", 10)
    monkeypatch.setattr(netpbm, "_BLOCK", block)
    agrees(text(kind, largest))
    agrees(text(kind, largest, b" \t\v\f\r\n  "))
    agrees(text(kind, largest).rstrip())


def test_what_follows_the_pixels_is_not_read() -> None:
    data = text(b"P3", 255)
    np.testing.assert_array_equal(load_image(data + b"\0 P3 999"), load_image(data))


def test_digits_without_spaces() -> None:
    agrees(text(b"P1", 1, b""))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (text(b"P3", 255)[:-9], "cut off"),
        (text(b"P1", 1)[:-9], "cut off"),
        (text(b"P2", 255).replace(b"255\n", b"9\n", 1), "larger than the largest"),
        (text(b"P1", 1).replace(b" 1", b" 3"), "larger than the largest"),
        (text(b"P2", 255).replace(b" 1", b" x"), "cut off"),
        (b"P2 5 7 255\n" + b"4294967297 " * 35, "larger than the largest"),
        (b"P2 5 7 255\n" + b"1" * 100_000, "too many digits"),
    ],
)
def test_damaged_texts(data, why) -> None:
    with pytest.raises(UnreadableImage, match=why):
        load_image(data)


@pytest.mark.parametrize(
    ("decoder", "data"), [("PpmDecoder", written(b"P6", 200)), ("PpmPlainDecoder", text(b"P3", 9))]
)
def test_it_is_decoded_here(decoder, data, monkeypatch) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("Pillow decodes it pixel by pixel")

    monkeypatch.setattr(f"PIL.PpmImagePlugin.{decoder}.decode", forbidden)
    assert load_image(data).size == (WIDTH, HEIGHT)


def test_truncated() -> None:
    for count in (1, 2):
        with (
            pytest.raises(OSError, match="truncated"),
            open_image(io.BytesIO(written(b"P6", 1000)[:-count])) as image,
        ):
            image.load()
