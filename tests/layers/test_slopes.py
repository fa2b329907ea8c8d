"""Tables of derivatives: the best levels, packing, agreement with the plain formula."""

from itertools import combinations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.layers.bits import is_channels_last
from pocketune.layers.slopes import (
    BITS,
    best_partition,
    check_bits,
    pack_slopes,
    scale_by_slopes,
    slopes,
)

EXACT = {"gelu": functional.gelu, "silu": functional.silu, "hardswish": functional.hardswish}
each = pytest.mark.parametrize("activation", EXACT)
with_bits = pytest.mark.parametrize("bits", BITS)


def derivative(activation: str, x: Tensor) -> Tensor:
    x = x.double().requires_grad_()
    (found,) = torch.autograd.grad(EXACT[activation](x).sum(), x)
    return found


def inputs(activation: str, count: int = 25600) -> Tensor:
    """Evenly over the range of the table."""
    reach = 128 * slopes(activation, 8).step
    return torch.linspace(-reach, reach, count, dtype=torch.float64)


def by_definition(x: Tensor, activation: str, bits: int) -> Tensor:
    """The derivative that each element gets, one by one in Python's own numbers."""
    table = slopes(activation, bits)
    cells = [min(max(round(value / table.step) + 128, 0), 255) for value in x.flatten().tolist()]
    return torch.tensor([table.levels[table.codes[cell]] for cell in cells]).view(x.shape)


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 9])
def test_the_best_partition_is_that_of_all_which_is_best(parts: int) -> None:
    values = np.random.default_rng(parts).standard_normal(9)

    def error(starts: tuple[int, ...]) -> float:
        return sum(run.var() * len(run) for run in np.split(values, starts))

    best = min(combinations(range(1, 9), parts - 1), key=error)
    assert best_partition(values, parts).tolist() == [0, *best]


@each
def test_more_bits_have_less_error(activation: str) -> None:
    x = inputs(activation)
    ones = torch.ones_like(x)
    errors = []
    for bits in BITS:
        found = scale_by_slopes(
            ones, pack_slopes(x, activation, bits, False), activation, bits, False
        )
        errors.append(float((found - derivative(activation, x)).square().mean().sqrt()))
    assert errors == sorted(errors, reverse=True)
    assert errors[0] < 0.3
    assert errors[2] < 0.06
    assert errors[3] < 0.03  # that of h-swish jumps inside two cells


@each
@with_bits
def test_the_levels_are_as_good_as_any_other_border(activation: str, bits: int) -> None:
    """Moving one border by a cell does not lower the error: the table is at its best."""
    cells = slopes(activation, 8).levels
    codes = slopes(activation, bits).codes
    starts = np.flatnonzero(np.diff(codes)) + 1
    assert len(starts) == 2**bits - 1

    def error(starts: np.ndarray) -> float:
        return sum(run.var() * len(run) for run in np.split(cells, starts))

    least = error(starts)
    for place in range(len(starts)) if bits < 8 else ():
        for move in (-1, 1):
            moved = starts.copy()
            moved[place] += move
            if np.all(np.diff(moved) > 0):
                assert error(moved) > least - 1e-12


@each
@with_bits
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (17,), (8,), (1,), (0, 3), ()])
def test_the_operators_follow_their_definition(
    activation: str, bits: int, shape: tuple[int, ...]
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 4
    g = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    packed = pack_slopes(x, activation, bits, False)
    assert packed.dtype == torch.uint8
    assert packed.shape == (-(-x.numel() * bits // 8),)
    expected = g * by_definition(x, activation, bits)
    found = scale_by_slopes(g, packed, activation, bits, False)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@with_bits
def test_borders_and_what_is_beyond_the_table(bits: int) -> None:
    """Halves between cells go to the even one; the ends have the first and the last level."""
    step = slopes("gelu", bits).step
    x = torch.tensor(
        [-1e30, float("-inf"), 1e30, float("inf"), *(step * (n + 0.5) for n in (-2, -1, 0, 1))]
    )
    table = slopes("gelu", bits)
    cells = [0, 0, 255, 255, 126, 128, 128, 130]
    packed = pack_slopes(x, "gelu", bits, False)
    found = scale_by_slopes(torch.ones_like(x), packed, "gelu", bits, False)
    expected = torch.from_numpy(table.levels[table.codes[cells]]).float()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_one_bit_is_the_sign() -> None:
    for activation in EXACT:
        table = slopes(activation, 1)
        assert abs(int(np.flatnonzero(np.diff(table.codes))[0]) - 127) <= 1
        np.testing.assert_allclose(table.levels, [0, 1], atol=0.02)


def test_the_first_code_is_in_the_lowest_bits() -> None:
    table = slopes("gelu", 4)
    first, second = (int(code) for code in table.codes[[0, 255]])
    packed = pack_slopes(torch.tensor([-9.0, 9.0, 9.0]), "gelu", 4, False)
    assert packed.tolist() == [first + 16 * second, second]


@with_bits
@pytest.mark.parametrize("stored_as", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_gradient_of_another_memory_format(
    stored_as: torch.memory_format, channels_last: bool, bits: int
) -> None:
    x, gradient = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    packed = pack_slopes(x, "silu", bits, channels_last)
    found = scale_by_slopes(
        gradient.to(memory_format=stored_as), packed, "silu", bits, channels_last
    )
    expected = (gradient * by_definition(x, "silu", bits)).float()
    torch.testing.assert_close(found, expected)
    assert is_channels_last(found) == channels_last


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_operators_are_what_tracing_takes_them_for(channels_last: bool) -> None:
    order = torch.channels_last if channels_last else torch.contiguous_format
    x = torch.randn(2, 3, 4, 5).to(memory_format=order)
    packed = pack_slopes(x, "gelu", 4, channels_last)
    torch.library.opcheck(pack_slopes, (x, "gelu", 4, channels_last))
    torch.library.opcheck(scale_by_slopes, (x, packed, "gelu", 4, channels_last))


@pytest.mark.parametrize("bits", [0, 3, 16, True, 2.5, "4", None])
def test_other_numbers_of_bits_are_refused(bits: object) -> None:
    with pytest.raises(PocketuneError, match="must be 1, 2, 4 or 8"):
        check_bits(bits)  # type: ignore[arg-type]
