"""Parse and format sizes such as 96MB."""

from __future__ import annotations

import re

from pocketune.errors import PocketuneError

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}


def parse_size(text: str | int) -> int:
    """Bytes of a size such as `96MB`, `1.5 GiB` or `100000000`; units are not case-sensitive.

    A text needs a unit where it would be less than a million bytes: `96` means megabytes.

    >>> parse_size("96MB"), parse_size("128 MiB"), parse_size(4096)
    (96000000, 134217728, 4096)

    Raises:
        PocketuneError: The text is not a size or lacks a unit, or the size is not above 0.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(text))
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise PocketuneError(f"{text!r} is not a size: write for example 96MB, 128MiB or 1GB")
    size = float(match[1]) * unit
    if isinstance(text, str) and not match[2] and 1 <= size < 1e6:
        raise PocketuneError(f"a size of {text.strip()} has no unit: write for example 96MB")
    if not 1 <= size < float("inf"):
        problem = "must be above 0" if size < 1 else "is too large"
        raise PocketuneError(f"a size of {text} {problem}: write for example 96MB")
    return int(size)


def parse_pixels(text: str | int) -> int:
    """Pixels of a number such as `12MP` (megapixels), `1.5 mp` or `12000000`.

    >>> parse_pixels("12MP"), parse_pixels("1.5 mp"), parse_pixels(4096)
    (12000000, 1500000, 4096)

    Raises:
        PocketuneError: The text is not a number of pixels, or it is not above 0.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(mp)?\s*", str(text), re.IGNORECASE)
    pixels = float(match[1]) * (10**6 if match[2] else 1) if match else 0
    if not 1 <= pixels < float("inf"):
        raise PocketuneError(f"{text!r} is not a number of pixels: write for example 12MP")
    return int(pixels)


def format_size(size: float) -> str:
    """A size in MB (10^6 bytes), with one decimal if it is below 10 MB; a small one in kB or bytes.

    >>> format_size(96_000_000), format_size(1_234_567), format_size(5)
    ('96 MB', '1.2 MB', '5 bytes')
    """
    megabytes = size / 1e6
    if 0 < megabytes < 0.05:
        return f"{size / 1e3:.0f} kB" if size >= 1e3 else f"{size:.0f} bytes"
    return f"{megabytes:.0f} MB" if megabytes >= 10 else f"{megabytes:.1f} MB"
