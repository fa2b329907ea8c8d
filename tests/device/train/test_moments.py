"""Adam's sums in 8 bits: the error of the code, what rounding keeps on average, and a whole run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pocketune.device.train import moments
from pocketune.device.train.optimizer import BLOCK, Adam, Adam8, create_optimizer

ROUND = moments.SHARED


def coded_sums(values: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    code, scale = np.zeros(values.size, np.int8), np.zeros(values.size // ROUND, np.float32)
    out, spare = np.empty_like(values), np.empty_like(values)
    moments.write_sums(values, code, scale, threshold, spare)
    moments.read_sums(code, scale, out, spare)
    return out


def coded_squares(values: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    code, scale = np.zeros(values.size, np.uint8), np.zeros(values.size // ROUND, np.float32)
    out = np.empty_like(values)
    moments.write_squares(values.copy(), code, scale, threshold)
    assert code.min() >= 1
    moments.read_squares(code, scale, out)
    return out


finite = st.floats(np.float32(-1e4).item(), np.float32(1e4).item(), width=32)


@settings(max_examples=30, deadline=None)
@given(arrays(np.float32, 2 * ROUND, elements=finite), st.floats(moments.LEAST, 0.99))
def test_roots_are_at_most_a_step_off(values: np.ndarray, threshold: float) -> None:
    added = np.full(values.size, threshold, np.float32)

    def roots(of: np.ndarray, power: float) -> np.ndarray:
        return np.sign(of) * np.abs(of).astype(np.float64) ** power

    for found, given_values, power, steps in (
        (coded_sums(values, added), values, 1 / 2, 127),
        (coded_squares(np.abs(values), added), np.abs(values), 1 / 4, 255),
    ):
        exact = roots(given_values, power)
        most = np.abs(exact).reshape(-1, ROUND).max(axis=1).repeat(ROUND)
        assert (np.abs(roots(found, power) - exact) <= most / steps * 1.001 + 1e-12).all()
        assert np.isfinite(found).all()


def test_the_largest_of_a_group_is_kept() -> None:
    values = np.zeros(2 * ROUND, np.float32)
    values[5], values[ROUND + 9] = -3e-7, 41.0
    for threshold in (moments.LEAST, 0.99):
        found = coded_sums(values, np.full(values.size, threshold, np.float32))
        np.testing.assert_allclose(found[[5, ROUND + 9]], [-3e-7, 41], rtol=1e-5)


def test_a_slow_change_is_kept_on_average() -> None:
    """Sums that fall by a thousandth in a step, a sixth of a step of their code."""
    table, falls = moments.thresholds(ROUND), np.full(ROUND, 0.999, np.float32)
    falls[0] = 1
    values = np.linspace(0.2, 1, ROUND, dtype=np.float32)[::-1].copy()
    held = nearest = values
    for step in range(1000):
        held = coded_squares(held * falls, table[step : step + ROUND])
        nearest = coded_squares(nearest * falls, np.full(ROUND, 0.5, np.float32))
    exact = values * falls.astype(np.float64) ** 1000
    assert abs((held / exact).mean() - 1) < 0.02
    assert np.abs(held / exact - 1).max() < 0.3
    assert (nearest / exact).mean() > 2


def test_thresholds_are_spread_over_any_few_steps() -> None:
    table = moments.thresholds(1)
    assert ((table >= 0) & (table < 1)).all()
    for start in range(0, moments.SHIFTS - 21, 7):
        gaps = np.diff(np.sort(table[start : start + 21]))
        assert gaps.max() < 2.7 / 21


@pytest.mark.parametrize("size", [1, ROUND - 1, ROUND, BLOCK + 3])
def test_follows_adam(size: int) -> None:
    rng = np.random.default_rng(0)
    scales = 10.0 ** rng.uniform(-3, 0, size)
    start = {"w": rng.standard_normal((size, 1)).astype(np.float32)}
    values = {cls: {"w": start["w"].copy()} for cls in (Adam, Adam8)}
    made = {cls: cls(of) for cls, of in values.items()}
    for _ in range(25):
        gradients = (scales * (1 + rng.standard_normal(size))).astype(np.float32)[:, None]
        for optimizer in made.values():
            optimizer.step({"w": gradients}, lr=1e-3)
    moved = {cls: of["w"] - start["w"] for cls, of in values.items()}
    off = np.linalg.norm(moved[Adam8] - moved[Adam]) / np.linalg.norm(moved[Adam])
    assert off < 0.1
    assert np.abs(moved[Adam8]).max() < 3 * np.abs(moved[Adam]).max()


def test_a_weight_without_gradients_stays() -> None:
    values = np.ones((2, ROUND), np.float32)
    gradient = np.zeros_like(values)
    gradient[0, :3] = 1e-3, -5, 1e4
    optimizer = create_optimizer("adam8", {"w": values})
    for _ in range(3):
        optimizer.step({"w": gradient}, lr=0.1)
    assert (values[0, 3:] == 1).all()
    assert (values[1] == 1).all()
    assert (values[0, :3] != 1).all()


def test_its_state_takes_a_quarter() -> None:
    values = {"w": np.zeros((40, ROUND), np.float32), "b": np.zeros(5, np.float32)}
    sizes = {
        name: sum(array.nbytes for array in create_optimizer(name, values).state().values())
        for name in ("adam", "adam8")
    }
    assert sizes["adam8"] < 0.28 * sizes["adam"]
