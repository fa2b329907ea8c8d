"""Views: where an image lies in a square, and random squares and colors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.tasks.views import (
    LARGEST_CHANGE,
    ZOOM,
    Box,
    Place,
    View,
    random_colors,
    random_square,
    whole_view,
)

sides = st.integers(1, 5000)
sizes = st.integers(1, 512)
seeds = st.integers(0, 2**32 - 1)


class TestPlaced:
    @given(width=sides, height=sides, size=sizes, seed=seeds)
    def test_the_part_and_its_place_have_one_scale(self, width, height, size, seed):
        view = View(random_square(width, height, np.random.default_rng(seed)), size)
        box, place = view.placed(width, height)
        assert 0 <= place.left < place.right <= size
        assert 0 <= place.top < place.bottom <= size
        assert -1e-6 <= box.left <= box.left + box.width <= width * (1 + 1e-5)
        assert -1e-6 <= box.top <= box.top + box.height <= height * (1 + 1e-5)
        scale = size / view.box.width
        assert abs(box.width * scale - (place.right - place.left)) <= 1.001
        assert abs((box.left - view.box.left) * scale - place.left) <= 1.001

    def test_a_box_inside_fills_the_square(self):
        box = Box(1.25, 0.0, 3.5, 7.0)
        assert View(box, 8).placed(10, 7) == (box, Place(0, 0, 8, 8))

    def test_a_box_beyond_the_image(self):
        box, place = View(Box(-5, 2, 20, 20), 40).placed(10, 12)
        assert box == Box(0, 2, 10, 10)
        assert place == Place(10, 0, 30, 20)


class TestWholeView:
    @given(width=sides, height=sides, size=sizes)
    def test_all_of_the_image_in_its_proportions(self, width, height, size):
        view = whole_view(width, height, size)
        box, place = view.placed(width, height)
        assert box == pytest.approx((0, 0, width, height))
        across, down = place.right - place.left, place.bottom - place.top
        assert max(across, down) == size
        assert abs(across - size * width / max(width, height)) <= 1
        assert abs(down - size * height / max(width, height)) <= 1

    def test_the_place_is_exact(self):
        """Each pixel of the square is as large in the image as the box says."""
        view = whole_view(240, 180, 176)
        _, place = view.placed(240, 180)
        assert place == Place(0, 22, 176, 154)
        assert view.box.height / 176 == pytest.approx(180 / 132)
        assert -view.box.top / 180 * 132 == pytest.approx(22)


@given(width=sides, height=sides, seed=seeds)
def test_random_squares_are_scaled_by_a_half_to_two(width, height, seed):
    box = random_square(width, height, np.random.default_rng(seed))
    assert box.width == box.height
    assert ZOOM[0] - 1e-9 <= min(width, height) / box.width <= ZOOM[1] + 1e-9
    for start, length in ((box.left, width), (box.top, height)):
        if box.width <= length:
            assert -1e-6 <= start <= length - box.width + 1e-6
        else:
            assert length - box.width - 1e-6 <= start <= 1e-6


def test_about_half_of_the_views_change_each_color():
    rng = np.random.default_rng(0)
    drawn = np.array([random_colors(rng) for _ in range(400)], float)
    changes = np.abs(drawn - [0, 1, 1, 0, 0])
    assert (changes > 0).mean(0) == pytest.approx([0.5] * 5, abs=0.1)
    assert (changes[:, :4].max(0) <= LARGEST_CHANGE).all()
    assert (changes[:, :4].max(0) > 0.95 * np.array(LARGEST_CHANGE)).all()
