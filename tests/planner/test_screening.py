"""What is looked at, in which order, and what is dropped before anything is tried."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pocketune.errors import PocketuneError
from pocketune.planner.candidate import Candidate
from pocketune.planner.plan import LeftOut
from pocketune.planner.screening import FINALISTS
from pocketune.planner.trial import HeadScore

from .fakes import MANY, THREE, Facts, FakeSource, search


def test_no_time_to_look_at_more_than_one_that_fits(tmp_path: Path) -> None:
    source = FakeSource({"large": Facts(memory=200), **MANY})
    plan = search(tmp_path, source, budget=100, time=0.001)
    assert plan.choice == "a0"
    assert source.calls == ["cost large", "cost a0", "kit a0"]


def test_many_candidates_are_ranked_by_their_features_first(tmp_path: Path) -> None:
    source = FakeSource(MANY)
    assert len(MANY) > FINALISTS
    plan = search(tmp_path, source)
    assert plan.choice in ("a4", "b4")
    assert len({call for call in source.calls if call.startswith("head")}) == len(MANY)


def test_features_that_cannot_be_scored_drop_nothing(tmp_path: Path) -> None:
    class Headless(FakeSource):
        def head(self, candidate: Candidate, count: int) -> HeadScore:
            raise PocketuneError("every class has one photo")

    assert search(tmp_path, Headless(THREE), budget=100).choice == "middle"


def test_a_network_that_is_far_behind_is_not_tried_unless_the_others_fail(tmp_path: Path) -> None:
    known = {**MANY, "best": Facts(features=0.9, value=0.99), "bad": Facts(features=0.1)}
    plan = search(tmp_path / "sound", FakeSource(known))
    assert plan.choice == "best"
    reasons = {trial.name: str(trial.dropped) for trial in plan.trials}
    assert reasons["bad"] == "its frozen features give accuracy 10.0%, and accuracy 90.0% with best"
    broken = {**known, "best": Facts(features=0.9, broken=True)}
    assert search(tmp_path / "broken", FakeSource(broken), time=300.0).choice in ("a4", "b4")


def test_a_second_look_takes_as_many_photos_as_there_is_time_for(tmp_path: Path) -> None:
    counts = {}
    for seconds in (12.0, 600.0, 6000.0):
        plan = search(tmp_path / str(seconds), FakeSource(THREE), time=seconds)
        counts[seconds] = [head.photos for head in plan.chosen.heads]
        looked = sum(head.seconds for trial in plan.trials for head in trial.heads)
        assert looked <= 0.7 * plan.asked.limits.planning
    assert counts[12.0] == [240]
    assert counts[600.0] == counts[6000.0] == [240, 800]  # all training photos


def test_the_most_promising_candidate_is_predicted_though_looks_took_longer(tmp_path: Path) -> None:
    class Slow(FakeSource):
        """Two methods for each network, and second looks of twice as long as first ones."""

        def find(self) -> tuple[list[Candidate], list[LeftOut]]:
            networks, _ = super().find()
            return [
                replace(each, name=f"{each.name} {name}", method={"name": name})
                for each in networks
                for name in ("last", "blocks")
            ], []

        def head(self, candidate: Candidate, count: int) -> HeadScore:
            return replace(super().head(candidate, count), seconds=0.5 if count == 240 else 1.0)

        def _called(self, what: str, candidate: Candidate) -> Facts:
            return super()._called(what, replace(candidate, name=candidate.group))

    plan = search(tmp_path, Slow({name: Facts() for name in "abcdef"}), time=25.0)
    assert plan.choice == "a blocks"
    reasons = {trial.name: trial.dropped for trial in plan.trials}
    assert reasons["b blocks"] == "there was no time to predict its memory"
