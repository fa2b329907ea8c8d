"""The largest elements of each image: which they are, their values and their places."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pocketune.layers.bits import unpack_bits
from pocketune.layers.survivors import (
    drop_small,
    magnitude_threshold,
    pack_above,
    restore,
    survivor_count,
    survivors,
    threshold,
    zero_dropped,
)


def selected(x: Tensor, count: int) -> Tensor:
    """One image at a time, by sorting."""
    rows = []
    for image in x:
        magnitude = image.abs().flatten()
        ordered = magnitude.sort(descending=True).values
        limit = ordered[count] if count < len(ordered) else -1.0
        rows.append((magnitude > limit).view(image.shape))
    return torch.stack(rows)


@st.composite
def maps(draw: st.DrawFn) -> tuple[Tensor, int]:
    """Feature maps of few different values, so that there are ties, and a number of survivors."""
    shape = draw(st.tuples(*(st.integers(1, 4) for _ in range(4))))
    size = torch.Size(shape)
    numbers = draw(st.lists(st.integers(-3, 3), min_size=size.numel(), max_size=size.numel()))
    x = torch.tensor(numbers, dtype=torch.float64).view(size)
    if draw(st.booleans()):
        x = x.contiguous(memory_format=torch.channels_last)
    return x, draw(st.integers(1, x[0].numel()))


@settings(max_examples=60, deadline=None)
@given(maps(), st.booleans())
def test_values_and_bits_give_the_selected_elements(
    chosen: tuple[Tensor, int], channels_last: bool
) -> None:
    x, count = chosen
    mask = selected(x, count)
    assert torch.equal(magnitude_threshold(x, count), threshold(x, count))
    packed = pack_above(x, magnitude_threshold(x, count), channels_last)
    order = (0, 2, 3, 1) if channels_last else (0, 1, 2, 3)
    expected = mask.permute(order).flatten()
    assert torch.equal(unpack_bits(packed, tuple(expected.shape)), expected)
    values = survivors(x, packed, count, channels_last)
    assert values.shape == (len(x) * count,)
    assert values[expected.sum() :].eq(0).all()
    for found in (
        restore(values, packed, list(x.shape), channels_last),
        zero_dropped(x, packed, channels_last),
        drop_small(x, count),
    ):
        assert torch.equal(found, x * mask)


@pytest.mark.parametrize(
    ("elements", "ratio", "count"), [(10, 0.5, 5), (10, 0.25, 8), (1, 0.9, 1), (7, 0.0, 7)]
)
def test_the_share_that_is_dropped_is_rounded_down(elements: int, ratio: float, count: int) -> None:
    assert survivor_count(elements, ratio) == count


def test_each_image_has_its_own_threshold() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0], [10.0, -20.0, 30.0, -40.0]]).view(2, 1, 2, 2)
    assert drop_small(x, 2).flatten(1).tolist() == [[0, 0, 3, 4], [0, 0, 30, -40]]
