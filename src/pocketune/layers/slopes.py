"""Derivatives of smooth activations in a few bits an element.

The input is rounded to 256 cells. A table says which of `2**bits` levels the derivative has in each
cell, and the number of the level is kept: eight bits are one cell each, and fewer bits join
neighbors. The cells are joined so that the mean squared error of the derivative is least over the
range of the table, which is the criterion of Few-bit Backward (Novikov et al., ICML 2023).

The operators are opaque to autograd and to tracing; see `pocketune.layers.bits`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pocketune.errors import PocketuneError
from pocketune.layers.autograd import register_operator
from pocketune.layers.bits import flat_elements, in_shape, memory_format

BITS = (1, 2, 4, 8)
"""Bits an element may keep: as many elements fill a byte."""

CELLS = 256
ZERO = 128
"""The cell of zero: those below are negative."""

_ACTIVATIONS: dict[str, tuple[Callable[[float], float], float]] = {
    "gelu": (lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2, 1 / 32),
    "silu": (lambda x: x / (1 + math.exp(-x)), 1 / 16),
    "hardswish": (lambda x: x * min(max(x + 3, 0), 6) / 6, 1 / 32),
    "normalized": (lambda x: x * x / 2, 1 / 8),
}
"""An activation, and the width of its cells: a power of two, so that they have exact borders.

The derivative of `normalized` is the input itself; see `pocketune.layers.few_bit_norm`.

Beyond the 256 cells the derivative is as in the last one. That of GELU and h-swish is within 0.001
of 0 or 1 from 4 on, that of SiLU within 0.003 from 8 on.
"""


@dataclass(frozen=True)
class Slopes:
    """The derivative of an activation as a table.

    Attributes:
        step: Width of a cell. The cell of x is `round(x / step) + 128`, with halves to the even
            number, from 0 to 255.
        codes: uint8 (256,), the level of each cell.
        levels: float64 (2**bits,), the derivative of each level.
        bits: Bits of a code.
    """

    step: float
    codes: NDArray[np.uint8]
    levels: NDArray[np.float64]
    bits: int

    @property
    def in_byte(self) -> int:
        """Codes that fill a byte."""
        return 8 // self.bits

    @property
    def places(self) -> NDArray[np.uint8]:
        """uint8 (in_byte,): what each code of a byte is multiplied by, the first one by 1."""
        return (1 << self.bits * np.arange(self.in_byte)).astype(np.uint8)

    @property
    def unpacked(self) -> NDArray[np.float64]:
        """float64 (256, in_byte): the levels of the codes in each byte."""
        codes = np.arange(256)[:, None] >> self.bits * np.arange(self.in_byte)
        levels: NDArray[np.float64] = self.levels[codes % 2**self.bits]
        return levels


def check_bits(bits: int) -> None:
    """Check a number of bits.

    Raises:
        PocketuneError: It is not one of `BITS`.
    """
    if isinstance(bits, bool) or bits not in BITS:
        raise PocketuneError(f"bits={bits!r} must be 1, 2, 4 or 8")


@lru_cache
def slopes(activation: str, bits: int) -> Slopes:
    """The best table of an activation: `gelu`, `silu`, `hardswish` or `normalized`.

    A cell's derivative is its mean over the cell, from the activation at both borders. A level is
    the mean of its cells.
    """
    function, step = _ACTIVATIONS[activation]
    borders = [function((cell - ZERO - 0.5) * step) for cell in range(CELLS + 1)]
    means = np.diff(np.array(borders)) / step
    starts = best_partition(means, 2**bits)
    codes = np.zeros(CELLS, np.uint8)
    codes[starts[1:]] = 1
    codes = codes.cumsum(dtype=np.uint8)
    levels = np.add.reduceat(means, starts) / np.diff([*starts, CELLS])
    return Slopes(step, codes, levels, bits)


def best_partition(values: NDArray[np.float64], parts: int) -> NDArray[np.int64]:
    """Where to start each of `parts` runs of values with the least squared distance from its mean.

    Dynamic programming: the best division of the first values in k runs is that of fewer values in
    k - 1 runs, and one more run.

    Args:
        values: (n,).
        parts: From 1 to n.

    Returns:
        int64 (parts,), ascending from 0.
    """
    count = len(values)
    sums, squares = (np.concatenate([[0.0], np.cumsum(v)]) for v in (values, values**2))
    ends = np.arange(count + 1)
    length = ends[None, :] - ends[:, None]  # of the run from a row to a column
    total = sums[None, :] - sums[:, None]
    error = squares[None, :] - squares[:, None] - total**2 / np.maximum(length, 1)
    error[length <= 0] = np.inf
    least, last = error[0], []
    for _ in range(parts - 1):
        candidates = least[:, None] + error
        last.append(candidates.argmin(0))
        least = candidates.min(0)
    starts, end = [], count
    for row in reversed(last):
        end = int(row[end])
        starts.append(end)
    return np.array([0, *reversed(starts)])


def _packed_shape(x: Tensor, activation: str, bits: int, channels_last: bool) -> Tensor:  # noqa: ARG001
    return x.new_empty(-(-x.numel() * bits // 8), dtype=torch.uint8)


def _scaled_shape(g: Tensor, packed: Tensor, activation: str, bits: int, last: bool) -> Tensor:  # noqa: ARG001
    return torch.empty_like(g, memory_format=memory_format(last))


@register_operator(
    "pack_slopes(Tensor x, str activation, int bits, bool channels_last) -> Tensor", _packed_shape
)
def pack_slopes(x: Tensor, activation: str, bits: int, channels_last: bool) -> Tensor:
    """The codes of the derivative at each element, packed, the first one in a byte's lowest bits.

    Args:
        x: float, n elements; (N, C, H, W) if `channels_last`.
        activation: As of `slopes`.
        bits: Of a code.
        channels_last: Pack in the order (N, H, W, C).

    Returns:
        uint8 (ceil(n * bits / 8),).
    """
    table = slopes(activation, bits)
    cells = (flat_elements(x, channels_last) / table.step).round().clamp(-ZERO, CELLS - 1 - ZERO)
    index = cells.to(torch.int32) + ZERO  # PyTorch would index by 64 bits
    codes = torch.from_numpy(table.codes).to(x.device).index_select(0, index)
    codes = torch.nn.functional.pad(codes, (0, -len(codes) % table.in_byte))
    places = torch.from_numpy(table.places).to(x.device)
    return (codes.view(-1, table.in_byte) * places).sum(1, dtype=torch.uint8)


@register_operator(
    "scale_by_slopes(Tensor gradient, Tensor packed, str activation, int bits, bool channels_last)"
    " -> Tensor",
    _scaled_shape,
)
def scale_by_slopes(
    gradient: Tensor, packed: Tensor, activation: str, bits: int, channels_last: bool
) -> Tensor:
    """`gradient` times the derivative that each code stands for.

    Args:
        gradient: float, n elements; (N, C, H, W) if `channels_last`.
        packed: Of `pack_slopes`, with the same other arguments.
        activation: See there.
        bits: Of a code.
        channels_last: The order of the codes, and the memory format of the result.

    Returns:
        A new tensor like `gradient`.
    """
    flat = flat_elements(gradient, channels_last)
    unpacked = torch.from_numpy(slopes(activation, bits).unpacked).to(flat)
    factors = unpacked.index_select(0, packed.to(torch.int32)).view(-1)
    return in_shape(flat * factors[: len(flat)], gradient.shape, channels_last)
