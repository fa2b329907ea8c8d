"""Which pixels polygons and run-length codes cover, against their definitions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketune.data.masks.polygons import area, check_runs, fill_polygon, fill_runs, parse_runs
from pocketune.data.masks.shapes import Shapes

HEIGHT, WIDTH = 7, 9
SQUARE = [(1, 1), (5, 1), (5, 4), (1, 4)]


def drawn(corners, value=1):
    pixels = np.zeros((HEIGHT, WIDTH), np.uint8)
    fill_polygon(pixels, np.array(corners, np.float32).reshape(-1, 2), value)
    return pixels


def contains(corners, x, y):
    """Whether a ray to the left crosses an odd number of edges, in exact arithmetic."""
    inside = False
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        if (y0 <= y) != (y1 <= y):
            inside ^= x0 + (y - y0) * Fraction(x1 - x0) / (y1 - y0) <= x
    return inside


class TestPolygon:
    def test_a_rectangle_covers_its_own_size(self):
        assert drawn(SQUARE).sum() == 4 * 3 == area(np.array(SQUARE))
        assert drawn(SQUARE)[1:4, 1:5].all()

    @settings(max_examples=40)
    @given(
        st.lists(
            st.tuples(*(st.integers(-12, 44).map(lambda n: Fraction(n, 4)) for _ in range(2))),
            max_size=7,
        )
    )
    def test_the_centers_inside_are_covered(self, corners):
        half = Fraction(1, 2)
        expected = [
            [contains(corners, column + half, row + half) for column in range(WIDTH)]
            for row in range(HEIGHT)
        ]
        # Quarters are exact in float32; where an edge meets a center, a quotient may be rounded.
        pixels = drawn([(float(x), float(y)) for x, y in corners]).astype(bool)
        wrong = np.argwhere(pixels != np.array(expected))
        assert all(_is_near(corners, column + half, row + half) for row, column in wrong.tolist())

    def test_only_what_is_inside_changes(self):
        pixels = np.full((HEIGHT, WIDTH), 3, np.uint8)
        fill_polygon(pixels, np.array(SQUARE, np.float32), 9)
        assert (pixels == np.where(drawn(SQUARE), 9, 3)).all()

    def test_neighbors_share_no_pixel(self):
        left, right = [(0, 0), (3.3, 0), (4.7, 7), (0, 7)], [(3.3, 0), (9, 0), (9, 7), (4.7, 7)]
        assert (drawn(left) + drawn(right) == 1).all()

    def test_a_large_polygon_fills_the_image_and_one_beyond_it_nothing(self):
        assert drawn(np.array(SQUARE) * 1000 - 2000).all()
        assert not drawn(np.array(SQUARE) + 1000).any()
        assert not drawn(np.array(SQUARE) - 1000).any()
        assert not drawn([(1, 1), (5, 5)]).any()


def _is_near(corners, x, y) -> bool:
    return any(
        abs((x1 - x0) * (y - y0) - (x - x0) * (y1 - y0)) < Fraction(1, 10**6)
        for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True)
    )


class TestRuns:
    def test_columns_come_first(self):
        pixels = np.zeros((3, 2), np.uint8)
        fill_runs(pixels, np.array([1, 3, 2]), 7)
        assert pixels.tolist() == [[0, 7], [7, 0], [7, 0]]

    def test_a_code_of_cocos_own_tools(self):
        """Made with pycocotools 2.0.11 from a mask of 7 x 9 pixels."""
        assert parse_runs("5211c00D4OJO") == [5, 2, 1, 3, 20, 3, 8, 7, 7, 1, 6]

    def test_of_another_size(self):
        with pytest.raises(ValueError, match="not of 2 x 3 pixels"):
            fill_runs(np.zeros((3, 2), np.uint8), np.array([1, 3]), 7)

    @pytest.mark.parametrize("code", ["o", "0\u20ac", "o" * 99, " "])
    def test_a_damaged_code(self, code):
        with pytest.raises(ValueError, match="damaged"):
            check_runs(parse_runs(code))

    @pytest.mark.parametrize("runs", [[-1], [2**32], [1.5], ["1"]])
    def test_runs_that_are_no_numbers_of_pixels(self, runs):
        with pytest.raises(ValueError, match="damaged"):
            check_runs(runs)


def test_larger_objects_are_drawn_first():
    shapes = Shapes()
    shapes.add_polygons(1, 0, [np.array([(2, 2), (4, 2), (4, 4), (2, 4)], np.float32)])
    shapes.add_runs(1, 1, np.array([0, HEIGHT * WIDTH], np.uint32))
    shapes.add_polygons(0, 0, [np.array(SQUARE, np.float32)])
    order = shapes.order().tolist()
    assert order == [2, 1, 0]
    pixels = np.zeros((HEIGHT, WIDTH), np.uint8)
    shapes.fill(pixels, order[1:], [5, 6])
    assert pixels[2, 2] == 5
    assert np.bincount(pixels.ravel(), minlength=7)[5:].tolist() == [4, HEIGHT * WIDTH - 4]
