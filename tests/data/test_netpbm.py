"""PPM and PGM files of any largest value: the pixels that Pillow decodes."""

import io

import numpy as np
import pytest
from PIL import Image

from pocketune.data import netpbm
from pocketune.data.images import load_image, open_image


def written(kind: bytes, largest: int) -> bytes:
    bands, itemsize = (3 if kind == b"P6" else 1), 1 if largest < 256 else 2
    values = np.random.default_rng(0).integers(0, 256**itemsize, (7, 5, bands))
    data = values.astype(np.uint8 if itemsize == 1 else ">u2").tobytes()
    return b"%s 5 7 %d\n" % (kind, largest) + data


@pytest.mark.parametrize("largest", [1, 15, 200, 256, 1023, 65535])
@pytest.mark.parametrize("kind", [b"P5", b"P6"])
def test_pixels_are_those_of_pillow(kind, largest, monkeypatch) -> None:
    monkeypatch.setattr(netpbm, "PIXELS", 10)  # several strips
    data = written(kind, largest)
    with open_image(io.BytesIO(data)) as image, Image.open(io.BytesIO(data)) as expected:
        assert image.mode == expected.mode
        np.testing.assert_array_equal(np.asarray(image), np.asarray(expected))


def test_it_is_decoded_here(monkeypatch) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("Pillow decodes it pixel by pixel")

    monkeypatch.setattr("PIL.PpmImagePlugin.PpmDecoder.decode", forbidden)
    assert load_image(written(b"P6", 200)).size == (5, 7)


def test_truncated() -> None:
    with (
        pytest.raises(OSError, match="truncated"),
        open_image(io.BytesIO(written(b"P6", 200)[:-1])) as image,
    ):
        image.load()
