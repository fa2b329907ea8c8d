"""The two sums of Adam in 8 bits a value, with a scale for each 256 values.

Gradients of a tensor differ by orders of magnitude, and Adam divides by the root of its second sum,
so that small values must not become zero. Dettmers et al. (2022, arXiv 2110.02861, section 2) use a
code whose steps grow with the value. Here the steps are equal, and what is coded is a root: the
signed square root of the first sum, and the fourth root of the second one. Both resolve the same
range of gradients, and need arithmetic alone.

The second sum changes by a thousandth in a step, far less than a step of the code, so that rounding
to the nearest would never let it change. Values are therefore rounded up as often as they are near
to the upper code: where a fixed sequence, shifted by one in each step, is above the remainder. Its
numbers are the multiples of the golden ratio, of which any few that follow each other are evenly
spread.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pocketune.arrays import FloatArray

SHARED = 256
"""Values that share a scale."""

SHIFTS = 4_096
"""Steps after which the sequence of rounding begins again."""

LEAST = 2.0**-12
"""Least threshold: more than the error of float32, so that the largest of a group gets its code."""

_SIGNED, _UNSIGNED = 127.0, 255.0
_GOLDEN = (math.sqrt(5) - 1) / 2


def groups(size: int) -> int:
    """Number of scales for so many values."""
    return -(-size // SHARED)


def thresholds(size: int) -> FloatArray:
    """What is added before rounding down, for blocks of `size` values and all shifts."""
    values = np.arange(size + SHIFTS) * _GOLDEN % 1.0
    return np.asarray(np.clip(values, LEAST, 1.0 - 2.0**-20), np.float32)


def read_sums(
    code: NDArray[np.int8], scale: FloatArray, out: FloatArray, spare: FloatArray
) -> None:
    """Decode sums of gradients: `c |c| scale^2`."""
    np.copyto(out, code)
    _by_group(out)[...] *= scale[:, None]
    np.abs(out, out=spare)
    out *= spare


def write_sums(
    values: FloatArray,
    code: NDArray[np.int8],
    scale: FloatArray,
    threshold: FloatArray,
    spare: FloatArray,
) -> None:
    """Encode sums of gradients, whose array is kept."""
    np.abs(values, out=spare)
    np.sqrt(spare, out=spare)
    _round(spare, scale, threshold, _SIGNED)
    np.copysign(spare, values, out=spare)
    np.copyto(code, spare, casting="unsafe")


def read_squares(code: NDArray[np.uint8], scale: FloatArray, out: FloatArray) -> None:
    """Decode sums of squares: `(c scale)^4`."""
    np.copyto(out, code)
    _by_group(out)[...] *= scale[:, None]
    out *= out
    out *= out


def write_squares(
    values: FloatArray, code: NDArray[np.uint8], scale: FloatArray, threshold: FloatArray
) -> None:
    """Encode sums of squares, whose array is overwritten. No code is 0: Adam divides by it."""
    np.sqrt(values, out=values)
    np.sqrt(values, out=values)
    _round(values, scale, threshold, _UNSIGNED)
    np.maximum(values, np.float32(1), out=values)
    np.copyto(code, values, casting="unsafe")


def _round(roots: FloatArray, scale: FloatArray, threshold: FloatArray, most: float) -> None:
    """Find the scale of each group, and make the roots codes, of which a cast drops fractions."""
    rows = _by_group(roots)
    np.max(rows, axis=1, out=scale)
    scale /= np.float32(most)
    factors = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    rows *= factors[:, None]
    roots += threshold
    np.minimum(roots, np.float32(most), out=roots)


def _by_group(values: FloatArray) -> FloatArray:
    return values.reshape(-1, SHARED)
