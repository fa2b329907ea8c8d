"""How steep a computed classifier is in the first steps."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pocketune.data import Batch
from pocketune.device.engine.base import Gradients
from pocketune.device.train.adjustment import Adjustment
from pocketune.device.train.temper import BATCHES, LEAST, temper
from pocketune.tasks import Classification

CLASSES = ("a", "b", "c")
OFFSETS = np.float32([0.5, 0, -0.5])


class Engine:
    """Its loss follows from the factor on its classifier; a step changes its statistics."""

    def __init__(self, loss: Callable[[float], float], offsets: Any = 0.0) -> None:
        self.parameters = {
            "fc.weight": np.arange(6, dtype=np.float32).reshape(3, 2),
            "fc.bias": np.float32([1, 2, 3]) + np.float32(offsets),
            "below": np.ones(2, np.float32),
        }
        self.statistics = {"mean": np.zeros(2, np.float32)}
        self.calls = 0
        self._loss, self._offsets = loss, offsets

    def gradients(self, _: Any, __: Any, rng: np.random.Generator) -> Gradients:
        assert not self.statistics["mean"].any()
        self.statistics["mean"] += 1
        self.calls += 1
        factor = self.parameters["fc.weight"][0, 1]
        expected = np.float32([1, 2, 3]) * factor + np.float32(self._offsets)
        np.testing.assert_allclose(self.parameters["fc.bias"], expected, rtol=1e-6)
        return Gradients(self._loss(float(factor)) + 1e-9 * rng.random(), {}, {})


def run(adjustment: Adjustment | None = None, batches: int = 10) -> Any:
    def epoch(_: int) -> Iterator[Batch]:
        return (SimpleNamespace(images=[0, 0], labels=[0, 0]) for _ in range(batches))  # type: ignore[misc]

    task = Classification(CLASSES, head=("fc.weight", "fc.bias"))
    photos = SimpleNamespace(task=task, training=SimpleNamespace(epoch=epoch))
    return SimpleNamespace(photos=photos, settings=SimpleNamespace(seed=0), adjustment=adjustment)


def nothing(_: int) -> None: ...


@pytest.mark.parametrize(
    ("loss", "factor"),
    [
        (lambda f: abs(f - 1), 1.0),
        (lambda f: abs(f - 0.06), 1 / 16),
        (lambda f: np.inf if f > 0.01 else 2.0 + f, LEAST),
        (lambda f: np.nan if f > 0.3 else 1 / f, 1 / 4),
    ],
)
@pytest.mark.parametrize("offsets", [None, OFFSETS])
def test_the_outputs_are_divided_while_the_loss_falls(
    loss: Callable[[float], float], factor: float, offsets: Any
) -> None:
    adjustment = None if offsets is None else Adjustment("fc.bias", offsets)
    engine = Engine(loss, 0.0 if offsets is None else offsets)
    seen: list[int] = []
    assert temper(run(adjustment), engine, seen.append) == factor  # type: ignore[arg-type]
    added = 0.0 if offsets is None else offsets
    np.testing.assert_allclose(engine.parameters["fc.weight"][1], np.float32([2, 3]) * factor)
    np.testing.assert_allclose(
        engine.parameters["fc.bias"], np.float32([1, 2, 3]) * np.float32(factor) + added, rtol=1e-6
    )
    assert engine.parameters["below"].all() and not engine.statistics["mean"].any()
    assert engine.calls % BATCHES == 0
    assert seen == [2 * (i + 1) for i in range(engine.calls)]


def test_a_short_epoch_is_enough() -> None:
    engine = Engine(lambda f: f)
    assert temper(run(batches=1), engine, nothing) == LEAST  # type: ignore[arg-type]


def test_a_classifier_whose_steps_see_the_features_of_evaluation_stays_as_it_is() -> None:
    engine = Engine(lambda f: f)
    engine.statistics = {}
    assert temper(run(), engine, nothing) == 1  # type: ignore[arg-type]
    assert engine.calls == 0
