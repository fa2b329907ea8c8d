"""Walsh bases of low sequency on a grid of tokens or pixels.

The Walsh functions of a side of r = 2^n tokens are the rows of the Hadamard matrix by sequency, the
number of their sign changes. Products of two of them are the bases of a patch of r x r tokens.
"""

from functools import cache
from math import ceil, isqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST_EXTRA = 2
"""Tokens beside a square grid: a class token, and one of distillation."""


class Grid(NamedTuple):
    """Where tokens are: `extra` ones first, then `height` rows of `width`."""

    height: int
    width: int
    extra: int = 0

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.extra + self.height * self.width


def grid_of_tokens(tokens: int) -> Grid | None:
    """The square grid that so many tokens are, with up to two more in front; None for others.

    >>> grid_of_tokens(197)
    Grid(height=14, width=14, extra=1)
    """
    side = isqrt(tokens)
    extra = tokens - side * side
    return Grid(side, side, extra) if extra <= MOST_EXTRA else None


class Bases(NamedTuple):
    """Matrices (bases, tokens) that project tokens and rebuild them.

    With bases B, `sums` @ x are the sums of x B over each patch, `means` @ x their means. The
    transpose of `values` spreads a coefficient for each basis over the tokens again. The extra
    tokens are bases of their own, so that they stay as they are.
    """

    sums: NDArray[np.float64]
    means: NDArray[np.float64]
    values: NDArray[np.float64]


def walsh_matrix(side: int) -> NDArray[np.float64]:
    """The Walsh functions of a power of two, by sequency, as rows.

    >>> walsh_matrix(4).astype(int).tolist()
    [[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, -1, 1], [1, -1, 1, -1]]
    """
    matrix = np.ones((1, 1))
    while len(matrix) < side:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    changes = (np.diff(matrix, axis=1) != 0).sum(1)
    ordered: NDArray[np.float64] = matrix[np.argsort(changes)]
    return ordered


@cache
def walsh_bases(grid: Grid, order: int, rank: int) -> Bases | None:
    """The bases of sequencies i + j < `rank` of all patches; None if they are no fewer than tokens.

    A patch has `order` x `order` tokens, or as many along an axis as the next power of two of a
    smaller grid. A grid that patches do not divide is reflected at its borders, half of the added
    rows before it, and an odd one as well.
    """
    down, down_inside = _axis(grid.height, order)
    across, across_inside = _axis(grid.width, order)
    chosen = [(i, j) for i in range(len(down)) for j in range(len(across)) if i + j < rank]
    patches = len(down[0]) * len(across[0])
    if patches * len(chosen) >= grid.height * grid.width:
        return None
    sums = np.concatenate([np.kron(down[i], across[j]) for i, j in chosen])
    values = np.concatenate([np.kron(down_inside[i], across_inside[j]) for i, j in chosen])
    area = len(down) * len(across)
    return Bases(*(_beside(grid.extra, matrix) for matrix in (sums, sums / area, values)))


def _axis(size: int, order: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two tensors (bases, patches, size): with the reflections added, and without them."""
    side = 1
    while side < min(size, order):
        side *= 2
    patches = ceil(size / side)
    before = ceil((patches * side - size) / 2)
    after = patches * side - size - before
    whole = np.stack([np.kron(np.eye(patches), row) for row in walsh_matrix(side)])
    places = np.pad(np.arange(size), (before, after), mode="reflect")
    reflected = whole @ (places[:, None] == np.arange(size))
    return reflected, whole[:, :, before : before + size]


def _beside(extra: int, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    bases, tokens = matrix.shape
    larger = np.zeros((extra + bases, extra + tokens))
    larger[:extra, :extra] = np.eye(extra)
    larger[extra:, extra:] = matrix
    return larger
