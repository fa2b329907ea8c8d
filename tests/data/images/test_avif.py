"""The planes that a decoded AVIF has, from its beginning."""

import io

import numpy as np
import pytest
from PIL import Image

from pocketune.data.images.avif import avif_planes
from pocketune.data.images.opening import open_image
from pocketune.data.images.pillow_headers import header_of

SIZE = 50, 34


def written(encoded, mode: str, **options) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (*SIZE[::-1], 3), dtype=np.uint8)
    picture = Image.fromarray(pixels).convert(mode)
    if mode == "RGBA":
        picture.putalpha(99)
    return encoded(picture, "AVIF", speed=10, **options)


@pytest.mark.parametrize(
    ("mode", "subsampling", "planes"),
    [
        ("L", "4:0:0", 1),
        ("RGB", "4:2:0", 1.5),
        ("RGB", "4:2:2", 2),
        ("RGB", "4:4:4", 3),
        ("RGBA", "4:2:0", 2.5),
    ],
)
def test_film_grain_doubles_the_planes(encoded, mode, subsampling, planes) -> None:
    options = {"subsampling": subsampling, "codec": "aom"}
    for grain, copies in (({}, 1), ({"film-grain-test": "5"}, 2)):
        data = written(encoded, mode, advanced=grain, **options)
        with open_image(io.BytesIO(data)) as opened:
            assert header_of(opened).planes == copies * planes
    data = written(encoded, mode, **options)
    flags = data.find(b"av1C") + 6
    deeper = data[:flags] + bytes([data[flags] | 0x40]) + data[flags + 1 :]
    assert avif_planes(deeper, SIZE, alpha=mode == "RGBA") == 2 * planes


@pytest.mark.parametrize("data", [b"", b"mdatav1C\x81\0\x0c\0", b"gridav1C\x81\0\x0c\0"])
def test_planes_that_are_not_certain_are_the_most(data) -> None:
    assert [avif_planes(data, SIZE, alpha=alpha) for alpha in (False, True)] == [12, 16]


def test_what_says_nothing_of_film_grain_counts_as_with_it(encoded) -> None:
    data = written(encoded, "RGB", subsampling="4:4:4")
    coded = data.find(b"mdat") + 4
    assert avif_planes(data, SIZE, alpha=False) == 3
    for cut in (coded, coded + 5):
        assert avif_planes(data[:cut], SIZE, alpha=False) == 6
    assert avif_planes(data, (SIZE[0] + 1, SIZE[1]), alpha=False) == 6
    several = written(encoded, "RGB", save_all=True, append_images=[Image.new("RGB", SIZE)])
    assert avif_planes(several, SIZE, alpha=False) == 3  # twice 1.5
