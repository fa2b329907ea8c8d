"""What a context gives to the short run of a candidate."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pocketune.data import unlabeled
from pocketune.device.train.settings import TrainSettings
from pocketune.planner import context as context_module
from pocketune.planner.candidate import Cost
from pocketune.planner.context import PlanContext
from pocketune.planner.trial import Length, Trial

from .fakes import candidate


def test_a_short_run_has_the_settings_of_the_plan_and_of_its_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(context_module, "run_probe", lambda *of: given.extend(of))
    settings, length = TrainSettings(budget="96MB", seed=3), Length(steps=5, most=40, seconds=9.0)
    context = PlanContext(tmp_path, unlabeled([]), settings, 0, tmp_path / "plan", lambda _: None)
    cost = Cost(
        optimizer="sgd", memory=1, least_memory=1, step_seconds=0.1, step_flops=1, parameters=1
    )
    trial = Trial(candidate=replace(candidate("a"), accumulate=4), cost=cost)
    context.probe(trial, Path("a.zip"), length)
    run = replace(settings, accumulate=4, optimizer="sgd")
    assert given == [Path("a.zip"), tmp_path, run, tmp_path / "plan", length]
