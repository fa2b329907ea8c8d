"""Gradient filtering written out plainly: one matrix an axis says which place is in which patch."""

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from pocketune.filtering.patches import Patches


@dataclass(frozen=True)
class Case:
    """A convolution with filtered gradients; all but `alignment` and counts are (down, across)."""

    alignment: str
    patch: int
    batch: int
    groups: int
    inputs: int
    outputs: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    def output_size(self) -> tuple[int, int]:
        """Height and width of the output."""
        rows = [
            (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
            for size, pad, dilation, kernel, stride in zip(
                self.size, self.padding, self.dilation, self.kernel, self.stride, strict=True
            )
        ]
        return rows[0], rows[1]


def grid(down: tuple[int, ...], across: tuple[int, ...]) -> Patches:
    """Of the axes (length, size, first, count)."""
    return Patches(*((d, a) for d, a in zip(down[1:], across[1:], strict=True)))


def membership(length: int, size: int, first: int, count: int) -> Tensor:
    """(count, length): 1 where a place of the map is in a patch; patch 0 begins at `first`."""
    matrix = torch.zeros(count, length, dtype=torch.float64)
    for place in range(length):
        patch = (place - first) // size
        if 0 <= patch < count:
            matrix[patch, place] = 1
    return matrix


def memberships(case: Case, axis: int) -> tuple[Tensor, Tensor]:
    """Of the output's and of the input's rows (axis 0) or columns (axis 1)."""
    r, s = case.patch, case.stride[axis]
    y, x = case.output_size()[axis], case.size[axis]
    count = ceil(y / r)
    if case.alignment != "reference":
        middle_tap = case.dilation[axis] * ((case.kernel[axis] - 1) // 2) - case.padding[axis]
        first_y, first_x = 0, middle_tap
    else:
        first_y = -ceil((count * r - y) / 2)
        first_x = -ceil((count * r * s - x) / 2)
    return membership(y, r, first_y, count), membership(x, r * s, first_x, count)


def rounded_to_8_bits(x: Tensor) -> Tensor:
    """One scale for the tensor, whole numbers up to 127."""
    scale = x.abs().max() / 127
    return x if scale == 0 else torch.round(x / scale) * scale


def filtered_gradients(
    case: Case, x: Tensor, w: Tensor, g: Tensor, *, bits: int = 32
) -> tuple[Tensor, Tensor]:
    """Gradients of input and kernel, from the formulas, in float64."""
    x, w, g = x.double(), w.double(), g.double()
    (down_y, down_x), (across_y, across_x) = memberships(case, 0), memberships(case, 1)
    average = torch.einsum("pi,qj,noij->nopq", down_y, across_y, g)
    if case.alignment == "paper":
        average = average / case.patch**2
    else:
        average = average / torch.outer(down_y.sum(1), across_y.sum(1))
    if case.alignment != "reference":
        average = average / (case.stride[0] * case.stride[1])
    sums = torch.einsum("pi,qj,ncij->ncpq", down_x, across_x, x)
    if bits == 8:
        average, sums = rounded_to_8_bits(average), rounded_to_8_bits(sums)
    small = torch.zeros_like(sums)
    of_kernel = torch.zeros_like(w)
    for o in range(case.outputs):
        group = o // (case.outputs // case.groups)
        for i in range(w.shape[1]):
            channel = group * w.shape[1] + i
            of_kernel[o, i] = (average[:, o] * sums[:, channel]).sum()  # the same in every tap
            small[:, channel] += through_taps(case, w[o, i], average[:, o])
    return torch.einsum("pi,qj,ncpq->ncij", down_x, across_x, small), of_kernel


def through_taps(case: Case, taps: Tensor, average: Tensor) -> Tensor:
    """One channel's gradient (N, P, Q) through one kernel (k, k)."""
    steps = [d // (case.patch * s) for d, s in zip(case.dilation, case.stride, strict=True)]
    odd = all(k % 2 for k in case.kernel)
    if min(steps) == 0 or not odd or max(case.kernel) == 1:
        return taps.sum() * average
    total = torch.zeros_like(average)
    rows, columns = average.shape[1:]
    for u in range(case.kernel[0]):
        for v in range(case.kernel[1]):
            down = (u - case.kernel[0] // 2) * steps[0]
            across = (v - case.kernel[1] // 2) * steps[1]
            for p in range(max(down, 0), min(rows, rows + down)):
                for q in range(max(across, 0), min(columns, columns + across)):
                    total[:, p, q] += taps[u, v] * average[:, p - down, q - across]
    return total
