"""Where patches lie, pixel by pixel: by loops over every output, tap and input."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from pocketune.filtering.geometry import (
    ALIGNMENTS,
    Geometry,
    convolution_geometry,
    natural_filter,
    paper_filter,
    reference_filter,
)
from pocketune.filtering.patches import (
    Patches,
    before_and_after,
    patch_elements,
    patch_mean,
    patch_spread,
    patch_sum,
)

pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def geometries(draw: st.DrawFn, *, keeps_size: bool = False) -> Geometry:
    kernel = draw(st.tuples(st.sampled_from([1, 3, 5]), st.sampled_from([1, 3, 5])))
    dilation = draw(pairs)
    stride, padding = draw(pairs), draw(st.tuples(st.integers(0, 4), st.integers(0, 4)))
    if keeps_size:
        stride = 1, 1
        padding = tuple(d * (k // 2) for k, d in zip(kernel, dilation, strict=True))
    least = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    x = tuple(draw(st.integers(n, n + 12)) for n in least)
    return convolution_geometry(kernel, stride, padding, dilation, x)


def inside(patches: Patches, p: int, axis: int, length: int) -> set[int]:
    """Places of the map, along one axis, that are in patch number `p`."""
    first = patches.start[axis] + p * patches.size[axis]
    return set(range(first, first + patches.size[axis])) & set(range(length))


@given(geometries())
def test_the_output_is_as_large_as_pytorch_makes_it(geo: Geometry) -> None:
    y = functional.conv2d(
        torch.empty(1, 1, *geo.x, device="meta"),
        torch.empty(1, 1, *geo.kernel, device="meta"),
        None, geo.stride, geo.padding, geo.dilation,
    )  # fmt: skip
    assert tuple(y.shape[2:]) == geo.y


@given(geometries(), st.integers(1, 4), st.sampled_from(sorted(ALIGNMENTS)))
def test_every_output_is_in_exactly_one_patch(geo: Geometry, patch: int, rule: str) -> None:
    found = ALIGNMENTS[rule](geo, patch)
    for axis in (0, 1):
        count = found.output.count[axis]
        places = [inside(found.output, p, axis, geo.y[axis]) for p in range(count)]
        assert sum(map(len, places)) == geo.y[axis] == len(set.union(*places))
        assert all(places)  # and no patch lies outside
        assert found.input.count[axis] == count


@given(geometries(), st.integers(1, 4), st.sampled_from(["natural", "paper"]))
def test_the_middle_tap_of_every_output_reads_in_the_input_s_patch_below_it(
    geo: Geometry, patch: int, rule: str
) -> None:
    found = ALIGNMENTS[rule](geo, patch)
    for axis in (0, 1):
        middle = geo.dilation[axis] * (geo.kernel[axis] // 2) - geo.padding[axis]
        for p in range(found.output.count[axis]):
            for y in inside(found.output, p, axis, geo.y[axis]):
                x = y * geo.stride[axis] + middle
                if 0 <= x < geo.x[axis]:
                    assert x in inside(found.input, p, axis, geo.x[axis])


@given(geometries(), st.integers(1, 4), st.sampled_from(["natural", "paper"]))
def test_a_tap_meets_so_many_elements_of_a_patch_as_is_said(
    geo: Geometry, patch: int, rule: str
) -> None:
    """The tap of the middle reads one in `meets` elements of each patch of the input."""
    found = ALIGNMENTS[rule](geo, patch)
    met = elements = 1
    for axis in (0, 1):
        middle = geo.dilation[axis] * ((geo.kernel[axis] - 1) // 2) - geo.padding[axis]
        read = {y * geo.stride[axis] + middle for y in range(patch)}  # as if there were no border
        first = found.input.start[axis]
        assert read <= set(range(first, first + found.input.size[axis]))
        met, elements = met * len(read), elements * found.input.size[axis]
    assert elements == met * found.meets


@given(geometries(keeps_size=True), st.integers(1, 5))
def test_a_convolution_that_keeps_the_size_has_the_same_patches_on_both_maps(
    geo: Geometry, patch: int
) -> None:
    for rule in (natural_filter, paper_filter, reference_filter):
        found = rule(geo, patch)
        assert found.input == found.output
        assert found.meets == 1


@given(st.tuples(st.integers(1, 30), st.integers(1, 30)), st.integers(1, 7))
def test_the_published_operator_s_zeros_lie_on_both_sides_the_odd_one_first(
    size: tuple[int, int], patch: int
) -> None:
    geo = convolution_geometry((1, 1), (1, 1), (0, 0), (1, 1), size)
    found = reference_filter(geo, patch).output
    first, last = before_and_after(found.size, found.start, found.count, size)
    for before, after in zip(first, last, strict=True):
        assert before - after in (0, 1)
        assert 0 <= before + after < patch


@pytest.mark.parametrize(
    ("kernel", "dilation", "stride", "patch", "expected"),
    [
        ((3, 3), (1, 1), (1, 1), 2, (0, 0)),  # taps within a patch
        ((3, 3), (2, 2), (1, 1), 2, (1, 1)),
        ((3, 3), (6, 4), (1, 1), 2, (3, 2)),
        ((3, 3), (4, 4), (2, 2), 2, (1, 1)),  # a patch of the input is 4 x 4
        ((3, 3), (4, 3), (2, 2), 2, (0, 0)),  # across the taps are too close
        ((1, 1), (6, 6), (1, 1), 2, (0, 0)),  # one tap has no distance
        ((2, 3), (6, 6), (1, 1), 2, (0, 0)),  # an even kernel has no middle
        ((1, 3), (2, 2), (1, 1), 2, (1, 1)),
    ],
)
def test_taps_a_patch_apart_keep_their_places(kernel, dilation, stride, patch, expected) -> None:
    geo = convolution_geometry(kernel, stride, (9, 9), dilation, (20, 20))
    assert {ALIGNMENTS[rule](geo, patch).dilation for rule in ALIGNMENTS} == {expected}


@pytest.mark.parametrize(
    ("rule", "divisor", "meets"), [("natural", None, 6), ("paper", 9, 6), ("reference", None, 1)]
)
def test_what_each_rule_divides_by(rule: str, divisor: int | None, meets: int) -> None:
    geo = convolution_geometry((3, 3), (2, 3), (1, 1), (1, 1), (11, 13))
    found = ALIGNMENTS[rule](geo, 3)
    assert (found.divisor, found.meets) == (divisor, meets)
    assert found.output.size == (3, 3)
    assert found.input.size == (6, 9)


grids = st.builds(
    Patches,
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.integers(-6, 6), st.integers(-6, 6)),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
shapes = st.tuples(st.integers(1, 9), st.integers(1, 9))


def pixels(patches: Patches, p: int, q: int, shape: tuple[int, int]) -> list[tuple[int, int]]:
    """Every place of the map in patch (p, q)."""
    return list(product(inside(patches, p, 0, shape[0]), inside(patches, q, 1, shape[1])))


@settings(max_examples=60)
@given(grids, shapes)
def test_elements_are_counted_pixel_by_pixel(patches: Patches, shape: tuple[int, int]) -> None:
    found = patch_elements(patches, shape, torch.empty(0, dtype=torch.float64))
    rows, columns = patches.count
    expected = [[len(pixels(patches, p, q, shape)) for q in range(columns)] for p in range(rows)]
    if isinstance(found, int):
        assert expected == [[found] * columns] * rows
    else:
        assert found.shape == (1, 1, *patches.count)
        assert found.dtype == torch.float64
        assert found[0, 0].tolist() == expected


@settings(max_examples=60)
@given(grids, shapes)
def test_spreading_and_summing_are_each_other_s_transpose(
    patches: Patches, shape: tuple[int, int]
) -> None:
    """<sum(x), v> = <x, spread(v)>, so that one is the other's gradient."""
    x = torch.randn(2, 3, *shape, dtype=torch.float64)
    v = torch.randn(2, 3, *patches.count, dtype=torch.float64)
    left = (patch_sum(x, patches) * v).sum()
    right = (x * patch_spread(v, patches, shape)).sum()
    torch.testing.assert_close(left, right)


@settings(max_examples=60)
@given(grids, shapes)
def test_the_mean_of_what_was_spread_is_what_it_was(
    patches: Patches, shape: tuple[int, int]
) -> None:
    v = torch.randn(1, 2, *patches.count, dtype=torch.float64)
    back = patch_mean(patch_spread(v, patches, shape), patches)
    rows, columns = patches.count
    for p, q in product(range(rows), range(columns)):
        here = pixels(patches, p, q, shape)
        torch.testing.assert_close(back[..., p, q], v[..., p, q] if here else 0 * v[..., p, q])


@given(grids, shapes)
def test_a_map_is_the_sum_of_its_patches_where_they_cover_it(
    patches: Patches, shape: tuple[int, int]
) -> None:
    size = patches.size
    count = -(-shape[0] // size[0]), -(-shape[1] // size[1])
    whole = Patches(size, (0, 0), count)
    x = torch.randn(2, 2, *shape, dtype=torch.float64)
    torch.testing.assert_close(patch_sum(x, whole).sum((2, 3)), x.sum((2, 3)))


@pytest.mark.parametrize("last", [False, True])
def test_maps_keep_their_memory_format(last: bool) -> None:
    form = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(2, 3, 7, 5).to(memory_format=form)
    patches = Patches((2, 2), (0, 0), (4, 3))
    pooled = patch_mean(x, patches)
    assert pooled.is_contiguous(memory_format=form)
    assert patch_spread(pooled, patches, (7, 5)).shape == x.shape
