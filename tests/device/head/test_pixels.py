"""A classifier of pixels in closed form, against weighted least squares."""

import numpy as np

from pocketune.device.head.pixels import PixelRidge, cell_classes, known_cells
from pocketune.tasks import Box
from pocketune.tasks.maps import IGNORED, Truth

WEIGHTS = np.array([0.5, 1.0, 3.0])
STRENGTH = 1e-3


def test_the_class_at_the_center_of_each_cell():
    mask = np.arange(24, dtype=np.uint8).reshape(4, 6)
    assert cell_classes(Truth(mask, Box(0, 0, 6, 4)), 2, 3).tolist() == [[7, 9, 11], [19, 21, 23]]
    beyond = cell_classes(Truth(mask, Box(0, -1, 6, 6)), 3, 3)
    assert beyond.tolist() == [[1, 3, 5], [13, 15, 17], [IGNORED] * 3]


def test_it_is_weighted_least_squares_with_a_penalty():
    rng = np.random.default_rng(0)
    maps = rng.standard_normal((5, 4, 3, 6)).astype(np.float32)
    masks = rng.integers(0, 3, (5, 3, 6)).astype(np.uint8)
    masks[:, 0, :2] = IGNORED
    ridge = PixelRidge(4, WEIGHTS)
    for each, mask in zip(maps, masks, strict=True):
        ridge.add(*known_cells(each, Truth(mask, Box(0, 0, 6, 3))))
    weight, bias = ridge.layer(STRENGTH)

    rows = np.moveaxis(maps, 1, -1).reshape(-1, 4).astype(np.float64)
    cells = masks.reshape(-1)
    known = cells != IGNORED
    rows, cells = rows[known], cells[known]
    own = WEIGHTS[cells] / WEIGHTS[cells].sum()
    targets = np.eye(3)[cells]
    centered, wanted = rows - own @ rows, targets - own @ targets
    spread = centered.T @ (own[:, None] * centered)
    penalty = STRENGTH * np.trace(spread) / 4
    expected = np.linalg.solve(spread + penalty * np.eye(4), centered.T @ (own[:, None] * wanted)).T
    np.testing.assert_allclose(weight, expected, rtol=1e-6)
    np.testing.assert_allclose(bias, own @ targets - expected @ (own @ rows), rtol=1e-6)
