"""The planes that a decoded HEIC has, from its boxes."""

import pytest

from pocketune.data.images.cost import view_bytes
from pocketune.data.images.headers import Header
from pocketune.data.images.heif import heif_planes


def box(chroma: int, depth: int) -> bytes:
    return b"hvcC\x01" + bytes(15) + bytes([0xFC | chroma, 0xF8 | depth - 8])


@pytest.mark.parametrize(
    ("data", "planes"),
    [
        (box(1, 8), 1.5),
        (box(3, 8), 3),
        (box(1, 10), 3),
        (box(3, 10), 6),
        (box(0, 8) + box(2, 8), 2),
        (b"no box", 6),
    ],
)
def test_the_item_with_most_planes_counts(data: bytes, planes: float) -> None:
    assert heif_planes(data + b"mdat" + box(3, 12)) == planes


def test_subsampled_planes_take_less() -> None:
    """A 12-megapixel photo of a phone took 7.3 bytes a pixel."""
    phones, usual, alpha = (
        view_bytes(Header("HEIF", mode, 1000, 1000, planes=planes), 224)
        for mode, planes in (("RGB", 1.5), ("RGB", 3.0), ("RGBA", 1.5))
    )
    assert usual - phones == 2_000_000
    assert alpha >= usual


def test_deep_planes_that_are_not_subsampled_take_more() -> None:
    """The decoder first makes pixels of 16 bits a channel of them."""
    usual, deep, alpha = (
        view_bytes(Header("HEIF", mode, 1000, 1000, planes=planes), 224)
        for mode, planes in (("RGB", 3.0), ("RGB", 6.0), ("RGBA", 6.0))
    )
    assert usual < 12_000_000
    assert deep - usual == 6_000_000
    assert alpha > deep + 6_000_000
