"""How sub-networks share weights: the part of each stored tensor that a sub-network uses.

Cai et al., Once for All, ICLR 2020, section 3.3, and its public code. Everything is differentiable,
so gradients arrive in the stored tensors.
"""

import torch
from torch import Tensor


def leading(stored: Tensor, shape: torch.Size) -> Tensor:
    """The first channels of each dimension: `stored` (N, M, ...) cut to `shape`.

    A vector of statistics stays a view of the stored one, so that updating it in place updates
    that one.
    """
    return stored[tuple(slice(n) for n in shape)].contiguous()


def smaller_kernel(stored: Tensor, kernel: int, matrices: dict[int, Tensor]) -> Tensor:
    """Depthwise kernels (C, 1, K, K) as smaller ones (C, 1, kernel, kernel).

    A smaller kernel is a learned matrix times the center of the next larger one, one matrix for
    all channels: a 5x5 comes from a 7x7, and a 3x3 from that 5x5.

    Args:
        stored: The largest kernels.
        kernel: The kernel to have.
        matrices: (k * k, k * k) for each smaller kernel k, row by row.
    """
    for size in sorted(matrices, reverse=True):
        if size >= kernel:
            center = _center(stored, size)
            taps = center.flatten(1) @ matrices[size].t()
            stored = taps.view_as(center)
    return stored


def module_kernel(stored: Tensor, shape: torch.Size) -> Tensor:
    """The grouped kernels of a lite residual module (out, in / groups, K, K), cut to `shape`.

    A smaller kernel is the center. With more groups than are stored, each part of the outputs reads
    a part of the inputs that its stored group reads: part q of the outputs reads part q of the
    inputs.
    """
    outputs, width = shape[:2]
    stored = _center(stored, shape[2])
    parts = stored.shape[1] // width
    if parts > 1:
        groups = outputs // width  # the convolution has as many inputs as outputs
        blocks = stored.view(groups, width, parts, width, *shape[2:])
        stored = torch.cat([blocks[q, :, q % parts] for q in range(groups)])
    return stored.contiguous()


def _center(stored: Tensor, size: int) -> Tensor:
    """The middle of kernels (N, M, K, K): (N, M, size, size)."""
    start = (stored.shape[-1] - size) // 2
    return stored[..., start : start + size, start : start + size]
