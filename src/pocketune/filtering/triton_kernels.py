"""`patch_pool` and `patch_spread` on GPUs, one Triton kernel each.

Both are bound by memory. If patches cross the borders of the feature map, PyTorch's operators pad,
crop and count in a pass each; a kernel here reads and writes every element once. The rest of a
filtered backward pass is products of small matrices, which cuBLAS computes.

A program writes a block of consecutive elements: in channels-last of a row with all its channels,
otherwise of a channel's plane. Neighboring threads then write neighboring elements, and in
channels-last also read them, and each finds its place with a single division.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


def pool(
    x: Tensor, size: Sequence[int], start: Sequence[int], count: Sequence[int], divisor: int | None
) -> Tensor:
    """The operator `patch_pool` of `pocketune.filtering.patches`."""
    y = _dense((*x.shape[:2], *count), like=x)
    _launch(pool_kernel, x, y, size, start, divisor=divisor or 0)
    return y


def spread(
    values: Tensor, size: Sequence[int], start: Sequence[int], shape: Sequence[int]
) -> Tensor:
    """The operator `patch_spread` of `pocketune.filtering.patches`."""
    y = _dense((*values.shape[:2], *shape), like=values)
    _launch(spread_kernel, values, y, size, start)
    return y


def _dense(shape: Sequence[int], like: Tensor) -> Tensor:
    last = like.is_contiguous(memory_format=torch.channels_last)
    layout = torch.channels_last if last else torch.contiguous_format
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=layout)


def _launch(
    kernel: triton.JITFunction,
    x: Tensor,
    y: Tensor,
    size: Sequence[int],
    start: Sequence[int],
    **constants: int,
) -> None:
    if y.numel() == 0:
        return
    images, channels, height, width = y.shape
    channels_last = not y.is_contiguous()
    lines, line = (height, width * channels) if channels_last else (channels, height * width)
    block = min(_BLOCK, triton.next_power_of_2(line))
    with torch.cuda.device_of(x):
        kernel[images * lines, triton.cdiv(line, block)](
            x,
            y,
            *y.shape[1:],
            *x.shape[2:],
            *x.stride(),
            *start,
            rows=size[0],
            columns=size[1],
            channels_last=channels_last,
            block=block,
            **constants,
        )


@triton.jit
def place(channels, height, width, channels_last: tl.constexpr, block: tl.constexpr):
    """Image, channel, row and column of a program's elements, their index and which ones exist."""
    line = tl.program_id(0).to(tl.int64)
    element = tl.program_id(1) * block + tl.arange(0, block)
    if channels_last:
        length = width * channels
        image, row = line // height, tl.broadcast_to(line % height, (block,))
        column, channel = element // channels, element % channels
    else:
        length = height * width
        image, channel = line // channels, line % channels
        row, column = element // width, element % width
    return image, channel, row, column, line * length + element, element < length


@triton.jit
def pool_kernel(
    x,
    y,
    channels,
    y_height,
    y_width,
    height,
    width,
    image_stride,
    channel_stride,
    row_stride,
    column_stride,
    top,
    left,
    rows: tl.constexpr,
    columns: tl.constexpr,
    channels_last: tl.constexpr,
    block: tl.constexpr,
    divisor: tl.constexpr,  # 0 for the number of elements on the feature map
):
    """Write the sum of each patch of `x` over the divisor to `y` (N, C, P, Q), which is dense."""
    image, channel, down, across, index, exists = place(
        channels, y_height, y_width, channels_last, block
    )
    row, column = down * rows + top, across * columns + left
    first = x + image * image_stride + channel * channel_stride
    first += row * row_stride + column * column_stride
    wide = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    total = tl.full((block,), 0, wide)
    for i in range(rows):
        on_row = exists & (row + i >= 0) & (row + i < height)
        for j in range(columns):
            on_map = on_row & (column + j >= 0) & (column + j < width)
            total += tl.load(first + i * row_stride + j * column_stride, on_map, 0).to(wide)
    if divisor:
        total = total / divisor
    else:
        real_rows = tl.minimum(row + rows, height) - tl.maximum(row, 0)
        real_columns = tl.minimum(column + columns, width) - tl.maximum(column, 0)
        real = tl.maximum(real_rows, 0) * tl.maximum(real_columns, 0)
        total = total / tl.maximum(real, 1).to(wide)
    tl.store(y + index, total, exists)


@triton.jit
def spread_kernel(
    x,
    y,
    channels,
    y_height,
    y_width,
    height,
    width,
    image_stride,
    channel_stride,
    row_stride,
    column_stride,
    top,
    left,
    rows: tl.constexpr,
    columns: tl.constexpr,
    channels_last: tl.constexpr,
    block: tl.constexpr,
):
    """Fill the patches of `y` (N, C, H, W), which is dense, with the values of `x`, else zero."""
    image, channel, row, column, index, exists = place(
        channels, y_height, y_width, channels_last, block
    )
    row, column = row - top, column - left
    covered = (row >= 0) & (row < height * rows) & (column >= 0) & (column < width * columns)
    value = x + image * image_stride + channel * channel_stride
    value += row // rows * row_stride + column // columns * column_stride
    tl.store(y + index, tl.load(value, exists & covered, 0), exists)
