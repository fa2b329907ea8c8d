"""Closed forms on trial."""

from collections.abc import Iterator

import numpy as np
import pytest

from pocketune.arrays import FloatArray
from pocketune.device.head.sums import Exact, add_up
from pocketune.device.head.trial import lowest, try_out
from pocketune.tasks import Classification, Labels, numbered

from . import brute

FACTORS = 2.0 ** np.arange(-3, 4)


class Certain:
    """A form that predicts every photo correctly, by a margin of 1."""

    name = "certain"
    strengths = np.ones(1)

    def left_out(self, rows: FloatArray, labels: Labels) -> Iterator[Exact]:
        """The same outputs at any strength."""
        yield np.eye(2)[labels]

    def layer(self, index: int) -> tuple[Exact, Exact]:
        """Not read."""
        raise NotImplementedError


def test_classes_that_are_far_apart_do_not_make_the_weights_infinite() -> None:
    """Of 20 correct photos, a loss below 1 / 22 is no evidence: a factor of 4 is enough."""
    labels = np.repeat(np.arange(2), 10)
    blocks = brute.blocks(np.random.default_rng(0).normal(size=(20, 3)), labels)
    verdict = try_out(Certain(), blocks, add_up(blocks, Classification(numbered(2))))
    assert verdict is not None
    assert verdict.factor == 4
    assert verdict.score.value == 1


@pytest.mark.parametrize("at", [-0.4, 0.0, 0.3])
def test_the_lowest_point_of_a_parabola(at: float) -> None:
    losses = 2 + 3 * (np.log2(FACTORS) - at) ** 2
    factor, loss = lowest(FACTORS, losses, int(losses.argmin()))
    assert factor == pytest.approx(2.0**at)
    assert loss == pytest.approx(2)


def test_a_loss_that_is_lowest_at_an_end_has_no_parabola() -> None:
    assert lowest(FACTORS, np.arange(7.0), 0) == (FACTORS[0], 0.0)
    assert lowest(FACTORS, -np.arange(7.0), 6) == (FACTORS[6], -6.0)
