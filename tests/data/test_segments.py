"""The segments before the pixels, and what the first scan says."""

import io
from itertools import pairwise

import pytest

from pocketune.data.segments import (
    IDAT,
    SCAN,
    has_divided_scans,
    jpeg_segments,
    png_chunks,
)

from .conftest import divided_jpeg


def test_the_segments_of_a_jpeg(encoded, noise) -> None:
    data = encoded(noise(0), "JPEG")
    found = list(jpeg_segments(io.BytesIO(data)))
    assert [found[0].start, found[-1].marker] == [2, SCAN]
    for one, other in pairwise(found):
        assert one.end == other.start
        assert data[one.start : one.start + 2] == bytes([0xFF, one.marker])


def test_the_chunks_of_a_png(encoded, noise) -> None:
    found = list(png_chunks(io.BytesIO(encoded(noise(0), "PNG", dpi=(72, 72)))))
    assert [each.kind for each in found] == [b"IHDR", b"pHYs", IDAT]
    assert [found[0].start, found[0].end] == [8, 33]


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
