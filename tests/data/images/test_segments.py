"""The segments before the pixels, and what the first scan says."""

import io
from itertools import pairwise

import pytest
from PIL import TiffImagePlugin

from pocketune.data.images.segments import (
    IDAT,
    SCAN,
    gif_extensions,
    has_divided_scans,
    jpeg_segments,
    png_chunks,
    tag_bytes,
)

from ..conftest import divided_jpeg


def test_the_segments_of_a_jpeg(encoded, noise) -> None:
    data = encoded(noise(0), "JPEG")
    found = list(jpeg_segments(io.BytesIO(data)))
    assert [found[0].start, found[-1].kind] == [2, SCAN]
    for one, other in pairwise(found):
        assert one.end == other.start
        assert data[one.start : one.start + 2] == bytes([0xFF, one.kind])


def test_the_chunks_of_a_png(encoded, noise) -> None:
    found = list(png_chunks(io.BytesIO(encoded(noise(0), "PNG", dpi=(72, 72)))))
    assert [each.kind for each in found] == [b"IHDR", b"pHYs", IDAT]
    assert [found[0].start, found[0].end] == [8, 33]


def test_the_extensions_of_a_gif(encoded, noise) -> None:
    for colors in (2, 256):
        picture = noise(0).quantize(colors)
        data = encoded(picture, "GIF", comment=b"c" * 700, duration=90, loop=0)
        found = list(gif_extensions(io.BytesIO(data)))
        assert sorted(each.kind for each in found) == [0xF9, 0xFE, 0xFF]
        for one, other in pairwise(found):
            assert one.end == other.start
            assert data[one.start : one.start + 2] == bytes([0x21, one.kind])
        assert data[found[-1].end] == 0x2C
        assert list(gif_extensions(io.BytesIO(data[: found[-1].start]))) == found[:-1]


@pytest.mark.parametrize("options", [{}, {"big_tiff": True}])
def test_the_tags_of_a_tiff(encoded, noise, options) -> None:
    few = tag_bytes(io.BytesIO(encoded(noise(0), "TIFF", **options)))
    assert few <= 6  # bits of red, green and blue
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[270], tags[50_000] = "d" * 999, tuple(range(500))
    tags.tagtype[50_000] = 4
    data = encoded(noise(0), "TIFF", tiffinfo=tags, **options)
    assert tag_bytes(io.BytesIO(data)) == few + 1000 + 2000
    for length in range(0, 60, 7):
        assert tag_bytes(io.BytesIO(data[:length])) <= length


@pytest.mark.parametrize("length", [0, 2, 20, 30])
def test_a_short_file_has_the_segments_before_its_end(encoded, noise, length) -> None:
    for kind, segments in (("JPEG", jpeg_segments), ("PNG", png_chunks)):
        data = encoded(noise(0), kind)
        whole = list(segments(io.BytesIO(data)))
        short = list(segments(io.BytesIO(data[:length])))
        assert short == whole[: len(short)]
        assert len(short) < len(whole)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_rows": 1}])
def test_a_jpeg_of_pillow_is_not_divided(encoded, noise, options) -> None:
    assert not has_divided_scans(io.BytesIO(encoded(noise(0), "JPEG", **options)))


@pytest.mark.parametrize("frame", [0xC0, 0xC1, 0xC9])
def test_a_jpeg_of_one_scan_for_each_component_is_divided(frame) -> None:
    assert has_divided_scans(io.BytesIO(divided_jpeg(40, 30, frame=frame)))


def test_bytes_may_fill_the_space_before_a_marker() -> None:
    content = divided_jpeg(40, 30, frame=0xC0)
    first = next(jpeg_segments(io.BytesIO(content)))
    filled = content[: first.end] + b"\xff" * 5 + content[first.end :]
    assert has_divided_scans(io.BytesIO(filled))
    assert len(list(jpeg_segments(io.BytesIO(filled)))) == len(
        list(jpeg_segments(io.BytesIO(content)))
    )
    endless = content[: first.end] + b"\xff" * 5_000
    assert list(jpeg_segments(io.BytesIO(endless))) == [first]
