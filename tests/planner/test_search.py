"""The search over candidates whose cost and accuracy are known."""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketune.data.images.cost import Decoding
from pocketune.data.images.headers import Header
from pocketune.errors import PocketuneError
from pocketune.planner.candidate import Candidate
from pocketune.planner.journal import Journal
from pocketune.planner.plan import LeftOut, Plan
from pocketune.planner.probe import TooSlow
from pocketune.planner.trial import Probe

from .fakes import IMAGES, MANY, MB, THREE, Facts, FakeSource, Killed, asked, search

facts = st.builds(
    Facts,
    memory=st.integers(20, 200),
    value=st.floats(0.1, 1),
    step=st.floats(0.001, 0.1),
    features=st.floats(0.1, 1),
    broken=st.booleans(),
)


@pytest.mark.parametrize(
    ("budget", "choice"), [(None, "large"), (120, "large"), (119, "middle"), (60, "small")]
)
def test_chooses_the_best_that_fits(tmp_path: Path, budget: int | None, choice: str) -> None:
    assert search(tmp_path, FakeSource(THREE), budget).choice == choice


def test_short_runs_know_their_share_of_a_whole_one(tmp_path: Path) -> None:
    source = FakeSource(THREE)
    search(tmp_path, source)
    assert len(source.lengths) > 2
    for length in source.lengths:
        assert length.steps == int(length.share * IMAGES / 8)


def test_says_why_each_candidate_was_dropped(tmp_path: Path) -> None:
    plan = search(tmp_path, FakeSource(THREE), budget=80)
    reasons = {trial.name: trial.dropped for trial in plan.trials}
    assert reasons["middle"] is None
    assert reasons["large"] == "needs 120 MB, 40 MB over the budget"
    assert str(reasons["small"]).startswith("middle reached accuracy ")


def test_a_candidate_that_scored_more_is_not_said_to_be_beaten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep_the_worst(trials: Any, _: Any) -> Any:
        ordered = sorted(trials, key=lambda trial: trial.rank)
        return ordered[:1], ordered[1:]

    monkeypatch.setattr("pocketune.planner.rounds.better_half", keep_the_worst)
    plan = search(tmp_path, FakeSource(THREE))
    scores = {trial.name: trial.rank for trial in plan.trials if trial.probes}
    told = [trial for trial in plan.trials if "is expected to gain more" in (trial.dropped or "")]
    assert told
    assert all(trial.rank > scores[str(plan.choice)] for trial in told)


def test_what_cannot_fit_is_never_built_or_run(tmp_path: Path) -> None:
    source = FakeSource(THREE)
    search(tmp_path, source, budget=80)
    assert [call for call in source.calls if call.endswith("large")] == ["cost large"]


def test_nothing_fits(tmp_path: Path) -> None:
    with pytest.raises(PocketuneError) as caught:
        search(tmp_path, FakeSource(THREE), budget=20)
    assert str(caught.value) == (
        "nothing fits the budget of 20 MB; the smallest that something fits is 50 MB, for small"
    )
    assert Plan.read(tmp_path).trials[0].dropped == "needs 50 MB, 30 MB over the budget"


def test_fallbacks_are_looked_at_where_nothing_fits(tmp_path: Path) -> None:
    smaller = ({"less": Facts(memory=45)}, {"least": Facts(memory=30), "other": Facts(memory=90)})
    source = FakeSource(THREE, smaller=smaller)
    assert search(tmp_path / "usual", source, budget=60).choice == "small"
    assert "cost less" not in source.calls
    assert search(tmp_path / "less", FakeSource(THREE, smaller=smaller), budget=48).choice == "less"
    plan = search(tmp_path / "least", FakeSource(THREE, smaller=smaller), budget=40)
    assert plan.choice == "least"
    assert (
        search(tmp_path / "least", again := FakeSource(THREE, smaller=smaller), budget=40) == plan
    )
    assert not [call for call in again.calls if call.startswith("cost")]
    with pytest.raises(
        PocketuneError, match="the smallest that something fits is 30 MB, for least"
    ):
        search(tmp_path / "none", FakeSource(THREE, smaller=smaller), budget=20)


def test_a_kit_that_takes_more_than_predicted_leaves_the_next_fallback(tmp_path: Path) -> None:
    class Rounded(FakeSource):
        def kit(self, candidate: Candidate, optimizer: str) -> Path:
            if candidate.name == "less":
                raise PocketuneError("its kit needs 50 MB")
            return super().kit(candidate, optimizer)

    smaller = ({"less": Facts(memory=45)}, {"least": Facts(memory=30)})
    assert search(tmp_path / "some", Rounded(THREE, smaller=smaller), budget=48).choice == "least"
    with pytest.raises(PocketuneError, match="no candidate could be trained: less: its kit needs"):
        search(tmp_path / "none", Rounded(THREE, smaller=smaller[:1]), budget=48)


@pytest.mark.parametrize(("most", "named"), [(28_000_000, True), (1_000_000, False)])
def test_nothing_fits_because_of_a_large_photo(tmp_path: Path, most: int, named: bool) -> None:
    header = Header("WEBP", "RGB", 1710, 960)
    decoding = Decoding("daisy/a.webp", header, most=most, others=0)
    with pytest.raises(PocketuneError) as caught:
        search(tmp_path, FakeSource(THREE), budget=20, decoding=decoding)
    told = (
        "for small: decoding daisy/a.webp (WEBP, 1710 x 960) takes about 28 MB; write small "
        "copies of all photos with pocketune prepare, or leave out the largest with max_pixels"
    )
    assert str(caught.value).endswith(told if named else "for small")


def test_the_only_candidate_needs_no_run(tmp_path: Path) -> None:
    source = FakeSource(THREE)
    assert search(tmp_path, source, budget=60).choice == "small"
    assert not [call for call in source.calls if call.startswith("probe")]


def test_a_broken_candidate_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    source = FakeSource({**THREE, "large": Facts(value=0.99, broken=True)})
    plan = search(tmp_path, source)
    assert plan.choice == "middle"
    broken = next(trial for trial in plan.trials if trial.name == "large")
    assert broken.dropped == "the loss is not finite"


def test_only_broken_candidates(tmp_path: Path) -> None:
    source = FakeSource(
        {"a": Facts(broken=True), "b": Facts(broken=True)},
        left_out=(LeftOut(name="c.zip", reason="it is damaged"),),
    )
    with pytest.raises(PocketuneError, match=r"no candidate could be trained: a: the loss.*c\.zip"):
        search(tmp_path, source)


def test_no_candidates(tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match="nothing to choose from: there are no kits"):
        search(tmp_path, FakeSource({}))


@pytest.mark.parametrize(
    ("budget", "drafted", "choice"),
    [
        (None, True, "large"),
        (110, True, "middle"),
        (72, True, "small"),  # a kit that has yet to be built may take more than was predicted
        (72, False, "middle"),
    ],
)
def test_too_little_time_for_one_probe(
    tmp_path: Path, budget: int | None, drafted: bool, choice: str
) -> None:
    facts = {n: Facts(f.memory, features=f.value) for n, f in THREE.items()}
    source = FakeSource(facts, drafted=drafted)
    plan = search(tmp_path, source, budget, time=20.0)
    assert plan.choice == choice
    assert not [call for call in source.calls if call.startswith("probe")]
    reasons = {trial.dropped for trial in plan.trials}
    assert f"{choice} promises more, and there was no time to try it" in reasons


def test_a_few_measured_steps_show_that_the_budget_suffices(tmp_path: Path) -> None:
    slow = {n: Facts(f.memory, features=f.value, step=1.0) for n, f in THREE.items()}
    plan = search(tmp_path, FakeSource(slow), budget=72, time=120.0)
    assert (plan.timed, plan.choice) == ("middle", "middle")
    assert plan.chosen.probes == ()


def test_a_run_that_takes_too_long_says_nothing_about_a_candidate(tmp_path: Path) -> None:
    class Slow(FakeSource):
        def probe(self, *of: Any) -> Probe:
            super().probe(*of)
            raise TooSlow("8 steps took longer than 20 s")

    for number in range(2):  # and a plan that was stopped decides in the same way
        source = Slow(THREE)
        plan = search(tmp_path, source, budget=100, time=600.0)
        assert plan.choice == "small"
        assert len([c for c in source.calls if c.startswith("probe")]) == 1 - number


@pytest.mark.parametrize("fast", [0, 1, 2])
def test_a_plan_with_slow_runs_stays_the_same_however_often_it_is_repeated(
    tmp_path: Path, fast: int
) -> None:
    class Slow(FakeSource):
        def probe(self, *of: Any) -> Probe:
            if len(self.lengths) < fast:
                return super().probe(*of)
            raise TooSlow("8 steps took longer than 20 s")

    ticks = count(0.0)
    plans = [
        search(tmp_path, Slow(THREE), budget=100, time=600.0, clock=lambda: next(ticks))
        for _ in range(4)
    ]
    assert any(trial.late_seconds for trial in plans[0].trials)
    assert plans[1:] == plans[:1] * 3


def test_a_plan_whose_choice_was_slow_always_says_why_a_trial_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(FakeSource):
        def probe(self, *of: Any) -> Probe:
            if not self.lengths:
                return super().probe(*of)
            raise TooSlow("8 steps took longer than 20 s")

    def write(plan: Plan, path: Path) -> None:
        assert "" not in {trial.dropped for trial in plan.trials}  # it could not be read again
        keep(plan, path)

    keep = Plan.write
    monkeypatch.setattr(Plan, "write", write)
    ticks = count(0.0)
    plans = [search(tmp_path, Slow(THREE), time=600.0, clock=lambda: next(ticks)) for _ in range(2)]
    assert plans[0].chosen.late_seconds
    assert plans[0] == plans[1]


def test_a_kit_that_cannot_be_built_leaves_the_next(tmp_path: Path) -> None:
    class Broken(FakeSource):
        def kit(self, candidate: Candidate, optimizer: str) -> Path:
            path = super().kit(candidate, optimizer)
            if candidate.name != "small":
                raise PocketuneError("it cannot be built")
            return path

    assert search(tmp_path / "short", Broken(THREE), time=1.0).choice == "small"
    source, again = Broken(THREE), Broken(THREE)
    plan = search(tmp_path, source, time=600.0)
    assert plan.choice == "small"
    assert search(tmp_path, again, time=600.0).to_dict() == plan.to_dict()
    assert source.calls.count("kit middle") == 1
    assert again.calls.count("kit middle") == 0


def test_time_for_a_few_candidates_alone(tmp_path: Path) -> None:
    plan = search(tmp_path, FakeSource(MANY), time=30.0)
    assert [t for t in plan.trials if str(t.dropped).startswith("there was no time to ")]
    assert plan.seconds <= 1.2 * plan.asked.limits.planning


def test_probes_grow_and_fewer_candidates_have_them(tmp_path: Path) -> None:
    plan = search(tmp_path, FakeSource(MANY))
    for trial in plan.trials:
        steps = [probe.steps for probe in trial.probes]
        assert steps == sorted(set(steps))
    counts = sorted(len(trial.probes) for trial in plan.trials)
    assert counts[-1] == len(plan.chosen.probes)
    assert counts[0] < counts[-1]


@settings(max_examples=40)
@given(st.dictionaries(st.text("abc", min_size=1), facts, max_size=9), st.integers(10, 210))
def test_the_choice_is_never_above_the_budget(known: dict[str, Facts], budget: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            plan = search(Path(folder), FakeSource(known), budget)
        except PocketuneError:
            sound = [f for f in known.values() if f.memory <= budget and not f.broken]
            assert len(sound) == 0
            return
        assert plan.chosen.memory <= budget * MB
        assert plan.chosen.dropped is None
        assert all(trial.dropped for trial in plan.trials if trial.name != plan.choice)
        assert Plan.read(folder) == plan


@pytest.mark.parametrize("known", [THREE, {**MANY, "a3": Facts(broken=True)}], ids=["few", "many"])
def test_a_kill_at_any_moment_leaves_the_same_plan(tmp_path: Path, known: dict[str, Facts]) -> None:
    whole = FakeSource(known)
    plan = search(tmp_path / "whole", whole, budget=100, time=300.0)
    for moment in range(len(whole.calls)):
        folder = tmp_path / str(moment)
        with pytest.raises(Killed):
            search(folder, FakeSource(known, dies=moment), budget=100, time=300.0)
        rest = FakeSource(known)
        assert search(folder, rest, budget=100, time=300.0) == plan
        measured = [call for call in whole.calls[:moment] if not call.startswith("kit")]
        again = [call for call in rest.calls if not call.startswith("kit")]
        assert len(again) == len([c for c in whole.calls if not c.startswith("kit")]) - len(
            measured
        )


def test_a_second_kill_loses_nothing_that_was_measured_before_the_first(tmp_path: Path) -> None:
    whole = FakeSource(THREE)
    search(tmp_path / "whole", whole, budget=100, time=300.0)
    with pytest.raises(Killed):
        search(tmp_path, FakeSource(THREE, dies=len(whole.calls) - 1), budget=100, time=300.0)
    measured = Plan.read(tmp_path)
    journal = Journal(tmp_path, asked(100, 300.0), say=lambda _: None)
    journal.write(process=1)  # before anything is recalled
    journal.open(*FakeSource(THREE).find())
    journal.write()
    assert Plan.read(tmp_path) == measured


def test_a_finished_plan_measures_nothing_again(tmp_path: Path) -> None:
    plan = search(tmp_path, FakeSource(THREE), budget=100)
    again = FakeSource(THREE)
    assert search(tmp_path, again, budget=100) == plan
    assert not [call for call in again.calls if not call.startswith("kit")]


def test_another_budget_is_planned_anew(tmp_path: Path) -> None:
    search(tmp_path, FakeSource(THREE), budget=100)
    assert search(tmp_path, FakeSource(THREE), budget=60).choice == "small"
