"""Masks of one bit an element, eight elements in a byte.

The backward pass of a piecewise linear activation needs one bit an element: whether the gradient
passes. PyTorch keeps 32 (the whole tensor), and a tensor of bools would take 8.

The operators are opaque to autograd and to tracing. A compiled step stores the mask in the form
that takes the least memory there (`pocketune.compiler.lower.activation`). `pack_bits` and
`unpack_bits` are the reference. On the CPU the operators run NumPy's comparisons, `packbits` and
`unpackbits`, which are several times as fast as PyTorch's operators.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pocketune.layers.autograd import register_operator
from pocketune.torch_private import in_transform

_NUMPY_TYPES = (torch.float16, torch.float32, torch.float64)
_PLACES = 1 << np.arange(8, dtype=np.uint8)  # the bit of element i of eight, lowest first


def pack_bits(mask: Tensor) -> Tensor:
    """bool, n elements of any shape -> uint8 (ceil(n / 8),), in row-major order.

    Element i is bit i % 8, the lowest first, of byte i // 8; the last byte is filled with zeros.
    """
    bits = mask.reshape(-1).to(torch.uint8)
    bits = torch.nn.functional.pad(bits, (0, -len(bits) % 8)).view(-1, 8)
    places = torch.from_numpy(_PLACES).to(mask.device)
    return (bits * places).sum(1, dtype=torch.uint8)


def unpack_bits(packed: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The inverse of `pack_bits`: uint8 (ceil(n / 8),) -> bool of `shape`, n elements."""
    places = torch.from_numpy(_PLACES).to(packed.device)
    bits = (packed.view(-1, 1) & places).ne(0).view(-1)
    return bits[: torch.Size(shape).numel()].view(shape)


def packed_shape(x: Tensor, *_: object) -> Tensor:
    """The shape of one bit for each element of `x`, packed in bytes."""
    return x.new_empty((x.numel() + 7) // 8, dtype=torch.uint8)


def shape_of_map(x: Tensor, _: Tensor, channels_last: bool) -> Tensor:
    """A result like the map `x`, in the memory format of the bits."""
    return torch.empty_like(x, memory_format=memory_format(channels_last))


@register_operator("pack_nonnegative(Tensor x, bool channels_last) -> Tensor", packed_shape)
def pack_nonnegative(x: Tensor, channels_last: bool) -> Tensor:
    """Packed `x >= 0`; zero counts, whatever its sign.

    Args:
        x: float, n elements; (N, C, H, W) if `channels_last`.
        channels_last: Pack in the order (N, H, W, C).

    Returns:
        uint8 (ceil(n / 8),).
    """
    flat = flat_elements(x, channels_last)
    if in_numpy(flat):
        return pack_array(flat.numpy() >= 0)
    return pack_bits(flat >= 0)


@register_operator(
    "pack_between(Tensor x, float low, float high, bool channels_last) -> Tensor", packed_shape
)
def pack_between(x: Tensor, low: float, high: float, channels_last: bool) -> Tensor:
    """Packed `low < x < high`, where `high` may be infinite; see `pack_nonnegative`."""
    flat = flat_elements(x, channels_last)
    if in_numpy(flat):
        array: NDArray[Any] = flat.numpy()
        inside = array > low
        if high != np.inf:
            inside &= array < high
        return pack_array(inside)
    return pack_bits((flat > low) & (flat < high))


@register_operator(
    "mask_gradient(Tensor gradient, Tensor packed, bool channels_last) -> Tensor", shape_of_map
)
def mask_gradient(gradient: Tensor, packed: Tensor, channels_last: bool) -> Tensor:
    """`gradient` where its bit is set, zero elsewhere.

    Args:
        gradient: float, n elements; (N, C, H, W) if `channels_last`.
        packed: uint8 (ceil(n / 8),), packed with the same `channels_last`.
        channels_last: The order of the bits, and the memory format of the result.

    Returns:
        A new tensor like `gradient`. It is not a view, so that what a layer returns may be changed
        in place.
    """
    flat = flat_elements(gradient, channels_last)
    order = memory_format(channels_last)
    masked = torch.empty_like(gradient, memory_format=order, requires_grad=False)
    if in_numpy(flat):
        mask = np.unpackbits(packed.numpy(), count=flat.numel(), bitorder="little")
        out = flat_elements(masked, channels_last).numpy()
        np.multiply(flat.numpy(), mask.view(np.bool_), out=out)
    else:
        kept = flat * unpack_bits(packed, tuple(flat.shape))
        flat_elements(masked, channels_last).copy_(kept)
    return masked


def is_channels_last(x: Tensor) -> bool:
    """Whether a feature map is stored as (N, H, W, C), and not also as (N, C, H, W)."""
    return (
        not in_transform()  # `vmap` hides the memory format
        and x.dim() == 4
        and x.is_contiguous(memory_format=torch.channels_last)
        and not x.is_contiguous()
    )


def memory_format(channels_last: bool) -> torch.memory_format:
    """The memory format of the bits of a map."""
    return torch.channels_last if channels_last else torch.contiguous_format


def flat_elements(x: Tensor, channels_last: bool) -> Tensor:
    """The elements in the order of their bits: (n,), without a gradient."""
    x = x.detach()
    return (x.permute(0, 2, 3, 1) if channels_last else x).reshape(-1)


def in_shape(flat: Tensor, shape: Sequence[int], channels_last: bool) -> Tensor:
    """The inverse of `flat_elements`, a view."""
    if not channels_last:
        return flat.view(tuple(shape))
    batch, channels, height, width = shape
    return flat.view(batch, height, width, channels).permute(0, 3, 1, 2)


def in_numpy(x: Tensor) -> bool:
    """Whether NumPy can compute with a tensor where it lies."""
    return x.device.type == "cpu" and x.dtype in _NUMPY_TYPES


def pack_array(mask: NDArray[np.bool_]) -> Tensor:
    """`pack_bits` of a vector in NumPy."""
    return torch.from_numpy(np.packbits(mask, bitorder="little"))
