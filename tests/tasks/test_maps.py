"""Logits at an image's own size against PyTorch, and comparisons against plain loops."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from pocketune.tasks import maps
from pocketune.tasks.maps import Truth, cells_inside, class_map, compare, strips
from pocketune.tasks.views import Box, Seen, whole_view


def logits(seed: int, classes: int, height: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 3 * rng.standard_normal((classes, height, width), np.float32)


def resized(output: np.ndarray, seen: Seen) -> np.ndarray:
    return np.concatenate([strip.logits for strip in strips(output, seen)], axis=1)


def whole(width: int, height: int) -> Seen:
    return Seen(width, height, Box(0, 0, width, height))


small = st.integers(1, 9)


@given(seed=st.integers(0, 99), classes=small, h=small, w=small, height=small, width=small)
def test_it_is_pytorchs_bilinear_interpolation(seed, classes, h, w, height, width):
    output = logits(seed, classes, h, w)
    expected = functional.interpolate(
        torch.from_numpy(output).double()[None], (height, width), mode="bilinear"
    )[0]
    np.testing.assert_allclose(resized(output, whole(width, height)), expected, atol=1e-5)


def test_a_letterboxed_image_is_the_middle_of_the_square():
    """In a square of 8 x 8 cells, an image of 40 x 20 pixels covers rows 2 to 6."""
    output = logits(0, 3, 8, 8)
    view = whole_view(40, 20, 64)
    found = resized(output, Seen(40, 20, view.box))
    square = functional.interpolate(torch.from_numpy(output)[None], (40, 40), mode="bilinear")[0]
    np.testing.assert_allclose(found, square[:, 10:30], atol=1e-5)


@pytest.mark.parametrize(
    ("width", "height", "rows"),
    [(4, 4, slice(8)), (4, 2, slice(2, 6)), (64, 56, slice(1, 7)), (4000, 120, slice(3, 4))],
)
def test_the_cells_inside_a_letterboxed_image_are_never_none(width, height, rows):
    seen = Seen(width, height, whole_view(width, height, 224).box)
    output = np.arange(64, dtype=np.float32).reshape(1, 8, 8)
    np.testing.assert_array_equal(cells_inside(output, seen), output[:, rows])


def test_strips_change_nothing(monkeypatch):
    output, seen = logits(1, 4, 5, 6), whole(31, 23)
    expected = class_map(output, seen)
    monkeypatch.setattr(maps, "STRIP", 4 * 31 * 2)
    assert len(list(strips(output, seen))) == 12
    np.testing.assert_array_equal(class_map(output, seen), expected)


@pytest.mark.parametrize("classes", [1, 2, 7])
def test_the_class_of_the_largest_logit(classes):
    output = logits(2, classes, 4, 6)
    np.testing.assert_array_equal(class_map(output, whole(6, 4)), output.argmax(0))


@settings(max_examples=30)
@given(seed=st.integers(0, 999), classes=st.integers(1, 6), ignored=st.sampled_from([0, 0.3, 1]))
def test_a_comparison_counts_each_pixel(seed, classes, ignored):
    rng = np.random.default_rng(seed)
    output = logits(seed, classes, 5, 7)
    mask = rng.integers(0, classes, (5, 7)).astype(np.uint8)
    mask[rng.random((5, 7)) < ignored] = 255
    found = compare(output, mask)
    expected, loss = np.zeros((classes, classes), int), 0.0
    exact = output.astype(np.float64)
    for (y, x), label in np.ndenumerate(mask):
        if label != 255:
            expected[label, exact[:, y, x].argmax()] += 1
            loss += np.log(np.exp(exact[:, y, x]).sum()) - exact[label, y, x]
    np.testing.assert_array_equal(found.confusion, expected)
    assert found.loss == pytest.approx(loss, rel=1e-5, abs=1e-5)
    assert found.pixels == (mask != 255).sum()


def test_large_logits_do_not_overflow():
    output = np.zeros((2, 1, 1), np.float32)
    output[1] = 1e4
    assert compare(output, np.zeros((1, 1), np.uint8)).loss == pytest.approx(1e4)


def test_a_truth_says_which_part_the_output_is_for():
    output = np.zeros((2, 4, 4), np.float32)
    output[1, :, 2:] = 9
    mask = np.array([[0, 1]], np.uint8)
    box = whole_view(2, 1, 4).box
    assert compare(output, Truth(mask, box)).confusion.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (7, 9)])
def test_values_are_counted_in_parts(shape, monkeypatch):
    monkeypatch.setattr(maps, "STRIP", 10)
    mask = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    expected = np.bincount(mask.ravel(), minlength=256)
    np.testing.assert_array_equal(maps.count_values(mask), expected)
