"""Linear layers with a backward pass on Walsh bases, beside the paper's formulas patch by patch."""

import itertools
from math import ceil

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pocketune.errors import PocketuneError
from pocketune.layers import LowRankConv2d, LowRankLinear
from pocketune.layers.walsh import Grid, grid_of_tokens, walsh_bases, walsh_matrix

from .kept import kept_bytes


def test_walsh_functions_are_orthogonal_and_sorted_by_their_sign_changes() -> None:
    matrix = walsh_matrix(8)
    assert np.array_equal(matrix @ matrix.T, 8 * np.eye(8))
    assert [(np.diff(row) != 0).sum() for row in matrix] == list(range(8))


@pytest.mark.parametrize(
    ("tokens", "grid"),
    [(49, Grid(7, 7)), (50, Grid(7, 7, 1)), (198, Grid(14, 14, 2)), (12, None), (1, Grid(1, 1))],
)
def test_the_grid_of_tokens(tokens: int, grid: Grid | None) -> None:
    assert grid_of_tokens(tokens) == grid


def by_patches(maps: Tensor, order: int) -> tuple[Tensor, tuple[int, int]]:
    """(N, C, P, Q, order, order) of maps that are reflected at their borders, and the pads."""
    height, width = maps.shape[2:]
    rows, columns = ceil(height / order), ceil(width / order)
    down, across = rows * order - height, columns * order - width
    top, left = ceil(down / 2), ceil(across / 2)
    maps = F.pad(maps, (left, across - left, top, down - top), mode="reflect")
    cut = maps.reshape(*maps.shape[:2], rows, order, columns, order)
    return cut.permute(0, 1, 2, 4, 3, 5), (top, left)


def reference(x: Tensor, g: Tensor, weight: Tensor, order: int, rank: int) -> list[Tensor]:
    """The gradients of the weight (out, in) and of maps x (N, in, H, W), basis by basis."""
    functions = torch.from_numpy(walsh_matrix(order))
    x_patches, (top, left) = by_patches(x, order)
    g_patches, _ = by_patches(g, order)
    of_weight, of_x = torch.zeros_like(weight), torch.zeros_like(x_patches)
    for i, j in itertools.product(range(order), repeat=2):
        if i + j < rank:
            basis = functions[i][:, None] * functions[j][None]
            sums = (x_patches * basis).sum((-1, -2))
            means = (g_patches * basis).mean((-1, -2))
            of_weight += torch.einsum("nopq,nipq->oi", means, sums)
            of_x += torch.einsum("nopq,oi->nipq", means, weight)[..., None, None] * basis
    whole = of_x.permute(0, 1, 2, 4, 3, 5)
    whole = whole.reshape(*x.shape[:2], whole.shape[2] * order, -1)
    height, width = x.shape[2:]
    return [of_weight, whole[:, :, top : top + height, left : left + width]]


KINDS = ("convolution", "map", "tokens", "class token")


def arranged(maps: Tensor, kind: str) -> Tensor:
    """Maps as a layer reads them; the class token is that of zeros."""
    if kind == "convolution":
        return maps
    last = maps.permute(0, 2, 3, 1)
    if kind == "map":
        return last
    return F.pad(last.flatten(1, 2), (0, 0, int(kind == "class token"), 0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("height", "width", "order", "rank"),
    [(8, 8, 8, 3), (7, 7, 8, 6), (9, 6, 4, 3), (6, 6, 2, 2), (5, 5, 4, 1)],
)
def test_gradients_are_those_of_the_paper(
    kind: str, height: int, width: int, order: int, rank: int
) -> None:
    if height != width and kind in ("tokens", "class token"):
        pytest.skip("tokens are a square grid")
    torch.manual_seed(0)
    x, g = (torch.randn(2, c, height, width, dtype=torch.float64) for c in (5, 4))
    made = nn.Conv2d(5, 4, 1) if kind == "convolution" else nn.Linear(5, 4)
    make = LowRankConv2d.from_pointwise if kind == "convolution" else LowRankLinear.from_linear
    layer: nn.Module = make(made.double(), order, rank)  # type: ignore[arg-type]
    weight = layer.weight.detach().flatten(1)

    given = arranged(x, kind).clone().requires_grad_()
    y = layer(given)
    torch.testing.assert_close(y, made(given))
    found = torch.autograd.grad(y, [layer.weight, given, layer.bias], arranged(g, kind))
    of_weight, of_x = reference(x, g, weight, order, rank)
    torch.testing.assert_close(found[0].flatten(1), of_weight)
    torch.testing.assert_close(found[1], arranged(of_x, kind))
    torch.testing.assert_close(found[2], g.sum((0, 2, 3)))


@pytest.mark.parametrize("shape", [(3, 6), (2, 12, 6), (2, 2, 3, 4, 6), (2, 4, 6)])
def test_other_shapes_are_exact(shape: tuple[int, ...]) -> None:
    """Vectors, tokens that are no square grid, and grids of no more tokens than bases."""
    torch.manual_seed(0)
    linear, x = nn.Linear(6, 5), torch.randn(shape, requires_grad=True)
    layer = LowRankLinear.from_linear(linear, 2, 3)
    inputs = [x, linear.weight]
    for ours, exact in zip(
        torch.autograd.grad(layer(x).square().sum(), inputs),
        torch.autograd.grad(linear(x).square().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours, exact)


def test_gradients_are_exact_for_the_lowest_sequencies() -> None:
    torch.manual_seed(0)
    bases = walsh_bases(Grid(8, 8), 8, 3)
    assert bases is not None
    values, numbers = torch.from_numpy(bases.values), torch.randn(2, 6, 9, dtype=torch.float64)
    x, g = torch.einsum("kt,nkc->ntc", values, numbers).split([5, 4], 2)
    linear = nn.Linear(5, 4).double()
    layer, x = LowRankLinear.from_linear(linear, 8, 3), x.clone().requires_grad_()
    inputs = [x, linear.weight]
    for ours, exact in zip(
        torch.autograd.grad(layer(x), inputs, g),
        torch.autograd.grad(linear(x), inputs, g),
        strict=True,
    ):
        torch.testing.assert_close(ours, exact)


@pytest.mark.parametrize("trained", [True, False])
def test_a_number_for_each_basis_and_channel_is_kept(trained: bool) -> None:
    layer = LowRankLinear(6, 5, order=8, rank=3)
    layer.weight.requires_grad_(trained)
    x = torch.randn(2, 65, 6, requires_grad=True)
    assert kept_bytes(layer, x) == (4 * 2 * (1 + 6) * 6 if trained else 0)


@pytest.mark.parametrize(
    ("order", "rank", "message"),
    [(6, 2, "order=6 must be a power of two"), (1, 1, "order=1"), (4, 8, "rank=8 .* from 1 to 7")],
)
def test_bases_that_do_not_exist(order: int, rank: int, message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        LowRankLinear(4, 4, order=order, rank=rank)


def test_second_derivatives_are_refused() -> None:
    layer, x = LowRankLinear(3, 3, rank=2), torch.randn(1, 64, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    with pytest.raises(PocketuneError, match=r"of low rank.* no second derivatives"):
        gradient.sum().backward()
