"""The places of gradient filtering's patches on a convolution's output and input."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pocketune.filtering.patches import Pair, Patches


class Geometry(NamedTuple):
    """The numbers of a convolution that place its patches, (vertical, horizontal) each."""

    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    x: Pair
    """Height and width of the input."""
    y: Pair
    """Height and width of the output."""


def convolution_geometry(
    kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, x: Pair
) -> Geometry:
    """The geometry of a convolution whose input has `x` rows and columns."""
    down, across = (
        (length + 2 * pad - step * (taps - 1) - 1) // by + 1
        for length, pad, step, taps, by in zip(x, padding, dilation, kernel, stride, strict=True)
    )
    return Geometry(kernel, stride, padding, dilation, x, (down, across))


class Filter(NamedTuple):
    """The patches of one convolution on maps of one size.

    Attributes:
        output: Patches of the output's gradient.
        input: Patches of the input, one for each of the output's.
        divisor: Divides the sum of a patch of the output's gradient; None for the number of its
            elements that are on the feature map.
        meets: A tap meets one in `meets` elements of a patch of the input; both gradients are
            divided by it.
        dilation: Of the kernel, in patches of the input; 0 if its taps are too close together to
            be distinguished, so that only their sum counts.
    """

    output: Patches
    input: Patches
    divisor: int | None
    meets: int
    dilation: Pair


def paper_filter(conv: Geometry, patch: int) -> Filter:
    """Patches as in equation 2 of the paper.

    They begin in the first row and column of the output, and every sum is divided by r * r, even
    if a patch crosses the border. A patch of the input lies under the kernel's middle tap; if the
    kernel keeps the size, these patches begin in the first row and column too.

    The paper has strides of 1. With a stride of s a patch of the input is s times as high and
    wide, and a tap meets one in s * s of its elements: both gradients are divided by s * s.
    """
    count, size = _count(conv.y, patch), _input_size(conv, patch)
    middle = [d * ((k - 1) // 2) for k, d in zip(conv.kernel, conv.dilation, strict=True)]
    start = middle[0] - conv.padding[0], middle[1] - conv.padding[1]
    output = Patches((patch, patch), (0, 0), count)
    meets = conv.stride[0] * conv.stride[1]
    return Filter(output, Patches(size, start, count), patch**2, meets, _dilation(conv, size))


def reference_filter(conv: Geometry, patch: int) -> Filter:
    """Patches as in the operator that the paper's authors published.

    The zeros that fill up the last patches lie on both sides of the feature map, the odd one at
    the top and left. Averages are over the elements on the feature map. With a stride of s the
    gradients are s * s times as large as those of an ordinary convolution.
    """
    count, size = _count(conv.y, patch), _input_size(conv, patch)
    output = Patches((patch, patch), _centered((patch, patch), count, conv.y), count)
    below = Patches(size, _centered(size, count, conv.x), count)
    return Filter(output, below, None, 1, _dilation(conv, size))


def natural_filter(conv: Geometry, patch: int) -> Filter:
    """Patches as in `paper_filter`, averages over the elements on the feature map.

    Neither borders nor strides change the scale of a constant gradient. It is the rule with the
    least noise on average: benchmarks/results/filter_quality.md.
    """
    return paper_filter(conv, patch)._replace(divisor=None)


ALIGNMENTS: dict[str, Callable[[Geometry, int], Filter]] = {
    "natural": natural_filter,
    "paper": paper_filter,
    "reference": reference_filter,
}
"""The rules by name."""


def _count(y: Pair, patch: int) -> Pair:
    return -(-y[0] // patch), -(-y[1] // patch)


def _input_size(conv: Geometry, patch: int) -> Pair:
    return patch * conv.stride[0], patch * conv.stride[1]


def _centered(size: Pair, count: Pair, shape: Pair) -> Pair:
    top, left = ((n * c - d + 1) // 2 for n, c, d in zip(size, count, shape, strict=True))
    return -top, -left


def _dilation(conv: Geometry, size: Pair) -> Pair:
    """Taps a patch or more apart keep their places, as in the published operator."""
    far = all(d >= n for d, n in zip(conv.dilation, size, strict=True))
    if not far or max(conv.kernel) == 1 or any(k % 2 == 0 for k in conv.kernel):
        return 0, 0
    return conv.dilation[0] // size[0], conv.dilation[1] // size[1]
