"""What notebooks show of results."""

from pathlib import Path

import numpy as np
import pytest

from pocketune.comparison import Comparison
from pocketune.device.train.run import TrainResult
from pocketune.device.use.delta import Delta
from pocketune.device.use.model import Model
from pocketune.planner.candidate import Candidate, Cost
from pocketune.planner.trial import HeadScore, Trial
from pocketune.tasks import Score
from pocketune.tasks.classification import ClassEvaluation, ClassPrediction, Guess

from .device.runs import write_run

SCORE = Score("accuracy", 0.875, loss=0.3)
RESULT = TrainResult(
    run=Path("runs/a"),
    classes=("cat", "dog"),
    steps=18,
    reason="steps",
    best_step=12,
    best=SCORE,
    peak_memory=94_000_000,
    skipped=(),
    head="LDA",
    estimate=SCORE,
)


def shown(value: object) -> str:
    """What IPython shows of the last line of a cell."""
    texts: list[str] = []

    class Printer:
        def text(self, text: str) -> None:
            texts.append(text)

    for cls in type(value).__mro__:  # the rule of `IPython.lib.pretty`
        if method := vars(cls).get("_repr_pretty_"):
            method(value, Printer(), False)
            return "".join(texts)
        if "__repr__" in vars(cls):
            break
    return repr(value)


def test_a_run() -> None:
    peak = "peak memory 94 MB"
    expected = f"runs/a: 18 steps, validation accuracy 87.5% at step 12, {peak}"
    assert shown(RESULT) == str(RESULT) == expected
    small = TrainResult(**{**vars(RESULT), "best": None})
    assert shown(small) == f"runs/a: 18 steps, cross-validated accuracy 87.5%, {peak}"


def test_predictions_and_evaluations() -> None:
    guesses = (Guess("dog", 0.98), Guess("cat", 0.02))
    assert shown(ClassPrediction("a.jpg", guesses)) == "a.jpg: dog 98.0%, cat 2.0%"
    assert shown(ClassPrediction("", guesses)) == "dog 98.0%, cat 2.0%"
    evaluation = ClassEvaluation(("cat", "dog"), np.array([[0, 0, 3]]), 3, ())
    assert shown(evaluation) == str(evaluation)


def test_a_candidate() -> None:
    candidate = Candidate(
        name="blocks",
        group="a",
        kit=None,
        network={},
        weights=None,
        method={},
        size=128,
        batch=8,
        accumulate=1,
        frozen_bits=32,
    )
    cost = Cost(
        optimizer="adam",
        memory=75_000_000,
        least_memory=60_000_000,
        step_seconds=0.019,
        step_flops=1,
        parameters=1,
    )
    trial = Trial(candidate=candidate)
    assert shown(trial) == "blocks"
    known = Trial(
        candidate=candidate, cost=cost, heads=(HeadScore(score=SCORE, seconds=1.0, photos=48),)
    )
    assert shown(known) == "blocks: accuracy 87.5%, 75 MB, 19 ms a step"
    assert shown(known.drop("behind")) == "blocks: accuracy 87.5%, 75 MB, 19 ms a step, behind"


def test_a_comparison_is_a_table() -> None:
    assert Comparison(())._repr_markdown_() == str(Comparison(()))
    assert str(Comparison(())).startswith("| ")


@pytest.mark.parametrize("kind", [Model, Delta])
def test_values_of_a_model_are_not_listed(kind: type, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    opened = Model.open(run) if kind is Model else Delta.of(run)
    name = f"<{kind.__name__} {run}: "
    assert repr(opened) == f"{name}3 classes, step 5, accuracy 50.0%>"
