"""Dropping the elements of small magnitude: their values are gone, and one bit an element is kept.

Of each image, the elements survive whose magnitude is larger than a threshold. The threshold is an
element's magnitude itself, chosen so that a given number of elements is larger. Fewer survive if
several elements are as large as the threshold, and an element that is zero never survives, unless
nothing is dropped.

The values of the survivors are kept in the order of their bits, in a tensor whose size does not
depend on the values, so that the memory of a step is known before it runs.

The operators are opaque to autograd and to tracing; see `pocketune.layers.bits`.
"""

import math

import numpy as np
import torch
from torch import Tensor

from pocketune.layers.autograd import register_operator
from pocketune.layers.bits import (
    flat_elements,
    in_numpy,
    in_shape,
    is_channels_last,
    mask_gradient,
    memory_format,
    pack_array,
    pack_bits,
    packed_shape,
    shape_of_map,
    unpack_bits,
)


def survivor_count(elements: int, ratio: float) -> int:
    """How many of an image's elements may survive if the share `ratio` is dropped.

    >>> survivor_count(10, 0.25)
    8
    """
    return elements - math.floor(elements * ratio)


def threshold(x: Tensor, count: int) -> Tensor:
    """The magnitude that at most `count` elements of an image exceed, in PyTorch's own operators.

    Args:
        x: (N, ...), n elements an image.
        count: From 1 to n; with n, the threshold is -1.

    Returns:
        (N,).
    """
    dropped = math.prod(x.shape[1:]) - count
    if dropped == 0:
        return x.new_full((len(x),), -1.0)
    magnitude = x.abs().flatten(1)
    if dropped <= count:
        return magnitude.topk(dropped, largest=False, sorted=False).values.amax(1)
    return -(-magnitude).topk(count + 1, largest=False, sorted=False).values.amax(1)


def drop_small(x: Tensor, count: int) -> Tensor:
    """(N, ...) with all but `count` elements of each image set to zero, in PyTorch's operators."""
    limit = threshold(x, count).view(-1, *(1,) * (x.dim() - 1))
    return x * (x.abs() > limit)


def _threshold_shape(x: Tensor, _: int) -> Tensor:
    return x.new_empty(len(x))


def _kept_shape(x: Tensor, _: Tensor, count: int, channels_last: bool) -> Tensor:  # noqa: ARG001
    return x.new_empty(len(x) * count)


def _restored_shape(values: Tensor, _: Tensor, shape: list[int], channels_last: bool) -> Tensor:
    return torch.empty(
        shape, dtype=values.dtype, device=values.device, memory_format=memory_format(channels_last)
    )


@register_operator("magnitude_threshold(Tensor x, int count) -> Tensor", _threshold_shape)
def magnitude_threshold(x: Tensor, count: int) -> Tensor:
    """As `threshold`; NumPy selects several times as fast as PyTorch sorts."""
    elements = math.prod(x.shape[1:])
    if count == elements or not in_numpy(x):
        return threshold(x, count)
    flat = flat_elements(x, is_channels_last(x)).view(len(x), elements)  # in any order
    magnitude = flat.abs().numpy()
    limits = np.zeros(len(x), magnitude.dtype)  # of an image that has few elements but zeros
    rows = np.flatnonzero(np.count_nonzero(magnitude, axis=1) > count)
    place = elements - count - 1
    limits[rows] = np.partition(magnitude[rows], place, axis=1)[:, place]
    return torch.from_numpy(limits)


@register_operator("pack_above(Tensor x, Tensor limit, bool channels_last) -> Tensor", packed_shape)
def pack_above(x: Tensor, limit: Tensor, channels_last: bool) -> Tensor:
    """Packed `abs(x) > limit`; see `pocketune.layers.bits.pack_nonnegative`.

    Args:
        x: (N, C, H, W).
        limit: (N,), or (1,) for all images.
        channels_last: Pack in the order (N, H, W, C).
    """
    above = x.detach().abs() > limit.view(-1, 1, 1, 1)
    flat = flat_elements(above, channels_last)
    return pack_array(flat.numpy()) if flat.device.type == "cpu" else pack_bits(flat)


@register_operator(
    "zero_dropped(Tensor x, Tensor packed, bool channels_last) -> Tensor", shape_of_map
)
def zero_dropped(x: Tensor, packed: Tensor, channels_last: bool) -> Tensor:
    """`mask_gradient` in the forward pass, where a compiled step need not unpack the bits."""
    return mask_gradient(x.detach(), packed, channels_last)


@register_operator(
    "survivors(Tensor x, Tensor packed, int count, bool channels_last) -> Tensor", _kept_shape
)
def survivors(x: Tensor, packed: Tensor, count: int, channels_last: bool) -> Tensor:
    """The elements whose bit is set, in the order of the bits, then zeros.

    Args:
        x: (N, C, H, W).
        packed: Of `pack_above`, with the same `channels_last`.
        count: Most survivors of an image.
        channels_last: The order of the bits.

    Returns:
        (N * count,).
    """
    flat = flat_elements(x, channels_last)
    mask, values = _unpacked(packed, len(flat)), flat.new_zeros(len(x) * count)
    if in_numpy(flat):  # PyTorch would make indices of 64 bits
        kept = flat.numpy()[mask.numpy()]
        values.numpy()[: len(kept)] = kept
    else:
        kept = flat[mask]
        values[: len(kept)] = kept
    return values


@register_operator(
    "restore(Tensor values, Tensor packed, int[] shape, bool channels_last) -> Tensor",
    _restored_shape,
)
def restore(values: Tensor, packed: Tensor, shape: list[int], channels_last: bool) -> Tensor:
    """The tensor of this shape (N, C, H, W) that `survivors` were taken from, with zeros."""
    flat = values.new_zeros(math.prod(shape))
    mask = _unpacked(packed, len(flat))
    if in_numpy(flat):
        np.place(flat.numpy(), mask.numpy(), values.detach().numpy())
    else:
        flat[mask] = values[: int(mask.sum())]
    return in_shape(flat, shape, channels_last)


def _unpacked(packed: Tensor, count: int) -> Tensor:
    if packed.device.type != "cpu":
        return unpack_bits(packed, (count,))
    mask = np.unpackbits(packed.numpy(), count=count, bitorder="little")
    return torch.from_numpy(mask.view(np.bool_))
