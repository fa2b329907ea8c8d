"""What decoding an image takes, from its header; and that large images are decoded one by one."""

from __future__ import annotations

import threading
from bisect import insort
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pocketune.heap import freed_at_once
from pocketune.tasks.packed import unpacking_bytes

if TYPE_CHECKING:
    from pocketune.data.images.headers import Header

MAX_WORKING_BYTES = 128 << 20  # an image that would take more than this is refused
_MOST_PIXELS = 178_956_970  # Pillow opens no larger image
HEAVY_BYTES = 3 << 20  # above this, one image at a time
SMALL = 1 << 18
"""Pixels of an image that is decoded as a whole, which takes less time than in strips."""
PIXELS = 1 << 16
"""Pixels of a strip of a larger one."""

_SCALES = 8, 4, 2, 1  # a JPEG can be decoded at these fractions of its size
_SMALLEST_VIEW = 0.4
"""Least side of a part that a network sees, relative to the image's shorter side: training crops
have at least 22 % of the area and an aspect ratio of 3 to 4, and a task may enlarge twice."""

# Bytes for each pixel, measured with Pillow 13 (benchmarks/bench_photos.py).
_MODES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I": 17, "F": 17}
_OTHER_MODES = 4
_FORMATS = {"WEBP": 16.25, "HEIF": 10}  # of whole images, the decoder's copies included
_SUBSAMPLED_HEIF, _SUBSAMPLED_PLANES = 8, 1.5  # of a HEIC with a sample of chroma for four pixels
_USUAL_PLANES, _DEEP_HEIF = 3, 6  # of a HEIC; above, 16 bits a channel are kept as well
_PLANES, _NOTES = 1.125, 0.5
"""Size of an AVIF's planes with their edges, relative to `Header.planes`; and bytes for each pixel
that the decoder notes of blocks."""
READ_WHOLE = ("WEBP", "AVIF", "TIFF", "HEIF")  # their files are in memory too
_CONVERTED = {"RGB": 4, "1": 6, "L": 6, "P": 6, "CMYK": 8, "I": 17, "F": 17}
_OTHERS_CONVERTED = 17  # through RGBA, with the page behind it
_STRIP = 8, 16  # of RGB, and of a mode that is converted
_ROWS = 200_000  # what the decoder itself holds
_METADATA = {"AVIF": 5}  # copies of what a file holds beside its pixels, which Pillow makes
_OTHERS_METADATA = 3
_OPENED = 2  # copies of a file that is read when it is opened
_STREAM = 1_200_000  # copies of the rows of a PNG, compressed and not, that are decoded one by one
MASK_BYTES = 2
"""For each pixel of a mask: decoded, and as an array."""
DRAWN_MASK_BYTES = 3
"""For each pixel of a mask that is drawn from polygons: also the file that it is decoded from."""
COLORED_MASK_BYTES = 5
"""For each pixel of a mask in colors: four for its color, and one for the number of its class."""
_MOST_WAITING = 4096
"""Masks whose sizes are remembered, more than wait at the same time."""

_heavy = threading.Lock()


@dataclass(frozen=True)
class Decoding:
    """What decoding the photos of a set takes.

    Attributes:
        name: The photo that takes most.
        header: Its header.
        most: Bytes that it takes.
        others: Most bytes that a photo takes while another one is decoded: if it is light enough
            to be decoded at the same time, or else opened and waiting for its turn.
        masks: Bytes of the packed masks that take most, in descending order.
        compared: Bytes for unpacking the mask that takes most, to compare it with a prediction.
        beside: Most bytes that are taken for an image while others are decoded.
    """

    name: str
    header: Header
    most: int
    others: int
    masks: tuple[int, ...] = ()
    compared: int = 0
    beside: int = 0

    def total(self, workers: int) -> int:
        """Bytes that so many threads take together."""
        return self.most + (workers - 1) * self.others

    def waiting(self, count: int) -> int:
        """Most bytes that so many masks take, packed."""
        return sum(self.masks[:count])


class Use(NamedTuple):
    """What is done with each image of a set beside cutting squares out of it.

    Attributes:
        held: Bytes for each pixel of an image that are held until the next one.
        copied: The same while it is written.
        longest: The whole image is shrunk until its longer side has at most so many pixels; 0 if
            that is not done.
        drawn: Bytes for each pixel of the shrunk image.
    """

    held: int
    copied: int = 0
    longest: int = 0
    drawn: int = 0


class LargestDecoding:
    """Finds what decoding takes most, photo by photo.

    Args:
        size: Height and width of the squares that photos are cut to.
        masks: Bytes for each pixel of a mask while it is read; 0 without masks.
        use: What else is done with each.
    """

    def __init__(self, size: int, masks: int = 0, use: Use | None = None) -> None:
        self._size, self._masks, self._use = size, masks, use
        self._most, self._others = -1, 0
        self._beside, self._whole, self._compared = 0, 0, 0
        self._waiting: list[int] = []
        self._found: tuple[str, Header] | None = None

    def add(self, name: str, header: Header) -> None:
        """Another photo of the set."""
        taken, least = view_bytes(header, self._size), least_bytes(header, self._size)
        pixels, light = header.width * header.height, HEAVY_BYTES
        if self._masks:  # read before the photo is decoded
            taken = max(taken + pixels, self._masks * pixels)
            light = max(light, pixels)
        if self._use is not None:
            self._add_use(header, self._use)
        self._others = max(self._others, opening_bytes(header))
        if least <= HEAVY_BYTES:  # a view may be light, others not
            self._others = max(self._others, min(taken, light))
        if taken > self._most:
            self._most, self._found = taken, (name, header)

    def _add_use(self, header: Header, use: Use) -> None:
        """What is done with another photo of the set beside cutting squares out of it."""
        pixels, longer = header.width * header.height, max(header.width, header.height)
        held, whole = use.held * pixels, 0
        self._beside = max(self._beside, held)
        if not use.longest:
            return
        shrunk = min(1.0, use.longest / longer)
        whole = decoding_bytes(header, shrunk, round(shrunk * longer))
        drawn = max(use.copied * pixels, round(use.drawn * pixels * shrunk**2))
        if whole > HEAVY_BYTES:  # while the decoding threads have no heavy one
            self._whole = max(self._whole, held + whole)
        self._beside = max(self._beside, held + max(drawn, min(whole, HEAVY_BYTES)))

    def add_mask(self, pixels: int, packed: int) -> None:
        """The mask of a photo of the set: its pixels, and the bytes that it takes packed."""
        self._compared = max(self._compared, unpacking_bytes(pixels, packed))
        insort(self._waiting, -packed)
        del self._waiting[_MOST_WAITING:]

    @property
    def decoding(self) -> Decoding | None:
        """What was found; None without photos."""
        if self._found is None:
            return None
        return Decoding(
            *self._found,
            self._most,
            self._others,
            masks=tuple(-size for size in self._waiting),
            compared=self._compared,
            beside=max(self._beside, self._whole + self._others - self._most),
        )


def check_size(
    header: Header,
    max_pixels: int | None = None,
    remedy: str = "make it smaller with pocketune prepare",
) -> None:
    """Refuse an image that is too large.

    Args:
        header: Of the image.
        max_pixels: Most pixels of an image that is decoded in full, as ordinary JPEGs and PNGs of
            8 bits a channel are not; None for the limit on bytes alone, which always holds.
        remedy: What to do with an image of more, beside allowing it.

    Raises:
        ValueError: It is too large.
    """
    pixels, needed = header.width * header.height, limited_bytes(header)
    if pixels > _MOST_PIXELS:
        raise ValueError(
            f"its {header.width} x {header.height} pixels are more than {_MOST_PIXELS // 10**6} "
            "million; make it smaller"
        )
    if needed > MAX_WORKING_BYTES:
        raise ValueError(
            f"its {header.width} x {header.height} pixels take {needed >> 20} MB to decode, more "
            f"than the {MAX_WORKING_BYTES >> 20} MB allowed; make it smaller"
        )
    if max_pixels is not None and pixels > max_pixels and not _decoded_in_part(header):
        raise ValueError(
            f"its {header.width} x {header.height} pixels would be decoded in full, and max_pixels "
            f"is {max_pixels:,}; allow more, or {remedy}"
        )


def _decoded_in_part(header: Header) -> bool:
    """Whether an image is never in memory as a whole, as ordinary JPEGs and PNGs of 8 bits."""
    return header.streamed or (header.format == "JPEG" and not header.coefficients)


def limited_bytes(header: Header) -> int:
    """What counts for the limit on sizes, whatever the decoder takes.

    A large JPEG is decoded at a quarter of its size or less, but one of several scans keeps two
    bytes for every coefficient at full size until its last scan.
    """
    pixels = header.width * header.height
    if header.format != "JPEG":
        return pixels * (4 if header.mode == "RGB" else 8)
    return pixels * 4 // 16 + _coefficient_bytes(header)


def view_bytes(header: Header, size: int) -> int:
    """Most bytes for cutting a square of `size` pixels out of an image, at any place."""
    scale = size / (_SMALLEST_VIEW * min(header.width, header.height))
    return decoding_bytes(header, scale, size)


def least_bytes(header: Header, size: int) -> int:
    """Bytes for shrinking the whole of an image to `size` pixels."""
    return decoding_bytes(header, size / max(header.width, header.height), size)


def opening_bytes(header: Header) -> int:
    """Peak of the memory of an image that is opened and not decoded yet."""
    copies = 0 if header.format == "TIFF" else _OPENED
    return _metadata_bytes(header) + copies * header.file_bytes


def decoding_bytes(header: Header, scale: float, columns: int) -> int:
    """Peak of the memory for decoding an image and shrinking a part of it.

    Args:
        header: Of the image. One of more pixels than `SMALL` is converted strip by strip.
        scale: By which the part is shrunk.
        columns: To which width.
    """
    width, height = header.width, header.height
    if header.format == "JPEG":
        fraction = next((each for each in _SCALES if each * scale <= 1), 1)
        width, height = -(-width // fraction), -(-height // fraction)
    pixels = width * height
    if pixels <= SMALL:
        converted = _CONVERTED.get(header.mode, _OTHERS_CONVERTED)
        taken = pixels * (converted + _decoder_bytes(header))
    else:
        taken = PIXELS * _STRIP[header.mode != "RGB"] + 4 * columns * max(width, height)
        if header.streamed:
            taken += _STREAM
        else:
            each = _decoder_bytes(header)
            taken += pixels * max(each, pixel_bytes(header.mode))
    if header.format in READ_WHOLE:
        taken += header.file_bytes
    return int(taken) + _coefficient_bytes(header) + _metadata_bytes(header) + _ROWS


@contextmanager
def turn_for(taken: int) -> Iterator[None]:
    """A context to hold while so many bytes of pixels are in memory; only one may be heavy.

    The heap keeps nothing of a heavy one for reuse.
    """
    if taken <= HEAVY_BYTES:
        yield
        return
    with _heavy, freed_at_once():
        yield


def _decoder_bytes(header: Header) -> float:
    """Bytes for each pixel of a whole image, with the decoder's copies; 0 where it makes none."""
    if header.format == "HEIF":
        images = 1 + ("A" in header.mode)
        if images == 1 and header.planes <= _SUBSAMPLED_PLANES:
            return _SUBSAMPLED_HEIF
        deep = _DEEP_HEIF * images if header.planes > _USUAL_PLANES else 0
        return _FORMATS["HEIF"] + deep
    if header.format != "AVIF":
        return _FORMATS.get(header.format, 0)
    images = 1 + ("A" in header.mode)  # the alpha is another one
    decoded = _PLANES * header.planes + images * _NOTES
    return decoded + len(header.mode) + pixel_bytes(header.mode)


def pixel_bytes(mode: str) -> int:
    """Bytes of a pixel in memory."""
    return _MODES.get(mode, _OTHER_MODES)


def _metadata_bytes(header: Header) -> int:
    return header.metadata * _METADATA.get(header.format, _OTHERS_METADATA)


def _coefficient_bytes(header: Header) -> int:
    return int(2 * header.width * header.height * header.coefficients)
