"""What the boxes of a HEIC say of its decoded planes."""

from __future__ import annotations

import re

_COLORS = re.compile(rb"hvcC\x01.{15}([\xfc-\xff])([\xf8-\xff])", re.DOTALL)
_SAMPLES = 1.0, 1.5, 2.0, 3.0
"""Samples of luma and chroma for each pixel, by the number of the chroma format."""
_DEEP = 2


def heif_planes(data: bytes) -> float:
    """Bytes of luma and chroma for each pixel of a HEIC.

    Each coded item has a box `hvcC` with the chroma format and the depth of its planes (ISO/IEC
    14496-15, section 8.3.3.1). Of several items, the one with most counts. Without such a box
    before the pixels, as in a HEIF of another codec, it is the most.

    Args:
        data: The file.
    """
    boxes = data[: data.find(b"mdat")]
    found = [
        _SAMPLES[chroma[0] & 3] * (_DEEP if depth[0] & 7 else 1)
        for chroma, depth in _COLORS.findall(boxes)
    ]
    return max(found, default=_DEEP * max(_SAMPLES))
