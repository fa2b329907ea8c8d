"""Windows of maps as slices, and maps as sums of windows.

PyTorch's own decompositions of these lead to tensors of indices.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

aten = torch.ops.aten

Pair = Sequence[int]


def _windows(x: Tensor, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Tensor:
    """(N, C, H, W) -> (N, C x kernel pixels, windows): the pixels of each window, below another."""
    rows, columns = padding
    x = functional.pad(x, (columns, columns, rows, rows))
    places = _places(x.shape[2:], kernel, dilation, stride)
    pieces = [x[:, :, down, across] for down, across in places]
    return torch.stack(pieces, 2).reshape(x.shape[0], x.shape[1] * len(pieces), -1)


def _from_windows(
    x: Tensor, size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair
) -> Tensor:
    """The sum of windows in maps of this size: the transpose of `_windows`."""
    padded = [side + 2 * pad for side, pad in zip(size, padding, strict=True)]
    places = _places(padded, kernel, dilation, stride)
    channels = x.shape[1] // len(places)
    counts = [len(range(*part.indices(side))) for part, side in zip(places[0], padded, strict=True)]
    pieces = x.reshape(x.shape[0], channels, len(places), *counts).unbind(2)
    total: Tensor | None = None
    for piece, (down, across) in zip(pieces, places, strict=True):
        rows = aten.slice_backward(
            piece, [*piece.shape[:3], padded[1]], 3, across.start, across.stop, across.step
        )
        whole = aten.slice_backward(
            rows, [*piece.shape[:2], *padded], 2, down.start, down.stop, down.step
        )
        total = whole if total is None else total + whole
    assert total is not None
    return total[:, :, padding[0] : padding[0] + size[0], padding[1] : padding[1] + size[1]]


def _places(size: Pair, kernel: Pair, dilation: Pair, stride: Pair) -> list[tuple[slice, slice]]:
    """For each pixel of a window, the rows and the columns where all windows have it."""
    counts = [
        (side - apart * (width - 1) - 1) // step + 1
        for side, width, apart, step in zip(size, kernel, dilation, stride, strict=True)
    ]

    def part(axis: int, pixel: int) -> slice:
        first = pixel * dilation[axis]
        return slice(first, first + stride[axis] * (counts[axis] - 1) + 1, stride[axis])

    return [(part(0, i), part(1, j)) for i in range(kernel[0]) for j in range(kernel[1])]


WINDOWS: dict[Any, Callable[..., Any]] = {
    aten.col2im.default: _from_windows,
    aten.im2col.default: _windows,
}
