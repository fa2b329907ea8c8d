"""What the headers in an AVIF say of its decoded planes."""

from __future__ import annotations

import re
from itertools import islice

_MOST_SAMPLES, _DEEP = 3.0, 2
_COLORS = re.compile(rb"av1C\x81.(.)", re.DOTALL)
_SEQUENCE = re.compile(rb"\x0a[\x06-\x7f](?=[\x18-\x1f\x38-\x3f\x58-\x5f])")
"""Type and size of an AV1 sequence header that begins as that of a still picture."""
_RGB = 0x010D00  # colors whose range it does not say
_LONGEST = 32  # bytes of one that are looked at


def avif_planes(data: bytes, size: tuple[int, int], *, alpha: bool) -> float:
    """Bytes of luma, chroma and alpha for each pixel of an AVIF, which film grain doubles.

    Each coded item has a box `av1C` with the chroma format and the depth of its planes (AV1 Codec
    ISO Media File Format Binding, section 2.3). Of several items, the one with most counts. A grid
    of items is put together from copies. What is not certain counts as the most.

    Args:
        data: The file.
        size: Width and height of the image.
        alpha: Whether the image has an alpha channel.
    """
    start = data.find(b"mdat")
    boxes = data[:start]
    flags = [found[1][0] for found in _COLORS.finditer(boxes)]
    if not flags or b"grid" in boxes:
        return 2 * _DEEP * (_MOST_SAMPLES + alpha)
    depth = _DEEP if any(each & 0x40 for each in flags) else 1
    copies = 1 if _is_plain(data, start, size, len(flags)) else 2
    return copies * depth * (max(map(_samples, flags)) + alpha)


def _samples(flags: int) -> float:
    """Samples of luma and chroma for each pixel."""
    if flags & 0x10:  # monochrome
        return 1.0
    return 1 + 2 / ((1 + (flags >> 3 & 1)) * (1 + (flags >> 2 & 1)))


def _is_plain(data: bytes, start: int, size: tuple[int, int], images: int) -> bool:
    """Whether so many still pictures of a size follow, all without film grain."""
    ends = (found.end() for found in _SEQUENCE.finditer(data, start))
    grains = [_has_grain(data[end : end + _LONGEST], size) for end in ends]
    return grains.count(False) >= images and True not in grains


def _has_grain(header: bytes, size: tuple[int, int]) -> bool | None:
    """What a sequence header says of film grain; None if it is no usual one of such a picture.

    The source is the AV1 Bitstream and Decoding Process Specification, sections 5.5.1 and 5.5.2.
    """
    bits = iter("".join(f"{byte:08b}" for byte in header))

    def take(count: int) -> int:
        return int("0" + "".join(islice(bits, count)), 2)

    profile, is_still = take(3), take(2) == 3
    take(5)  # the level
    widths = [take(4) + 1, take(4) + 1]
    if not is_still or tuple(take(width) + 1 for width in widths) != size:
        return None
    take(6)  # tools
    deep, gray, described = take(1), profile != 1 and take(1), take(1)
    if (profile == 2 and deep) or (described and take(24) == _RGB):
        return None
    # The range of colors; the place of the chroma samples, and whether both quantize alike.
    take(1 if gray else 4 if profile == 0 else 2)
    return bool(take(1))
