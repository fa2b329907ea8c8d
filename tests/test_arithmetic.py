"""What a program has numpy do about overflow and underflow."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pocketune import Predictor, evaluate, predict, resume, train
from pocketune.arithmetic import usual_arithmetic, usually_computed
from pocketune.device import Silent

from .device.runs import write_photos

TINY = np.float32(1e-38)


@pytest.fixture(autouse=True)
def _raising() -> Iterator[None]:
    with np.errstate(all="raise"):
        yield


def test_a_function_computes_as_usual() -> None:
    @usual_arithmetic
    def squared(value: np.float32) -> np.float32:
        return value * value

    assert squared(TINY) == 0
    with pytest.raises(FloatingPointError):
        _ = TINY * TINY


def test_items_are_computed_as_usual_and_the_program_is_not() -> None:
    closed = []

    def squares() -> Iterator[np.float32]:
        try:
            for _ in range(3):
                yield TINY * TINY
        finally:
            closed.append(True)

    items = usually_computed(squares())  # type: ignore[arg-type]
    assert next(items) == 0
    with pytest.raises(FloatingPointError):
        _ = TINY * TINY
    assert list(items) == [0, 0]
    assert closed == [True]


def test_a_program_whose_numpy_raises(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", ("cat", "dog"), each=12)
    result = train("last", photos, tmp_path / "run", epochs=1, progress=Silent())
    assert result.steps
    assert evaluate(result.run).images
    assert len(list(predict(result.run, photos, unknown=True))) == 24
    assert Predictor(result.run).predict(np.zeros((9, 9, 3), np.uint8))
    assert np.geterr()["under"] == "raise"
    with pytest.raises(Exception, match="is complete"):
        resume(result.run)
