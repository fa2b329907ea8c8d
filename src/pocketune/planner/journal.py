"""The plan while it is made: every piece of evidence is written before the next is sought."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pocketune.errors import PocketuneError
from pocketune.files import make_folder_of, reading
from pocketune.planner.plan import Plan
from pocketune.planner.trial import Trial
from pocketune.resumable import PLAN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pocketune.planner.candidate import Candidate
    from pocketune.planner.plan import Asked, LeftOut
    from pocketune.planner.trial import Probe


class Journal:
    """The trials of a plan, kept in `plan.json`.

    A search that was killed starts again from the beginning, and what it had measured is recalled
    instead of being measured again. It therefore decides as it would have decided.

    Args:
        folder: Folder of the plan; created when the plan is first written.
        asked: What the plan is asked for.
        say: Receives a sentence about what happens.
    """

    def __init__(self, folder: Path, asked: Asked, say: Callable[[str], None]) -> None:
        self.say = say
        self._path = folder / PLAN
        self._earlier = self._read(asked)
        known = self._earlier or Plan(asked=asked, process=0, trials=())
        self.plan = Plan(asked=asked, process=known.process, preparing=known.preparing, trials=())

    def open(self, candidates: Sequence[Candidate], left_out: Sequence[LeftOut]) -> None:
        """Begin with these candidates."""
        self.plan = replace(self.plan, left_out=tuple(left_out))
        self.add(candidates)

    def add(self, candidates: Sequence[Candidate]) -> None:
        """Go on with these candidates, too."""
        trials = tuple(Trial(candidate=each) for each in candidates)
        self.plan = replace(self.plan, trials=(*self.plan.trials, *trials))

    @property
    def left(self) -> list[Trial]:
        """The trials that may still be chosen, in the order of the candidates."""
        return [trial for trial in self.plan.trials if trial.dropped is None]

    @property
    def is_recalled(self) -> bool:
        """Whether the plan is the one that was there already."""
        return self.plan == self._earlier

    def earlier(self, trial: Trial) -> Trial | None:
        """The same trial in the plan that was stopped."""
        trials = self._earlier.trials if self._earlier else ()
        return next((each for each in trials if each.candidate == trial.candidate), None)

    def earlier_timing(self, trial: Trial) -> Probe | None:
        """The first probe of the plan that was stopped, if it was of this trial."""
        earlier = self._earlier
        return earlier.timing if earlier is not None and earlier.timed == trial.name else None

    def put(self, *trials: Trial) -> None:
        """Replace trials by their names."""
        new = {trial.name: trial for trial in trials}
        kept = tuple(new.get(trial.name, trial) for trial in self.plan.trials)
        self.plan = replace(self.plan, trials=kept)

    def write(self, **changes: object) -> Plan:
        """Change fields of the plan and write it.

        What a plan that was stopped knows stays in the file until all of it is recalled: another
        kill loses nothing.
        """
        self.plan = replace(self.plan, **changes)  # type: ignore[arg-type]
        earlier = _measured(self._earlier) if self._earlier else 0
        if self.plan.choice is not None or _measured(self.plan) >= earlier:
            make_folder_of(self._path)
            self.plan.write(self._path)
        return self.plan

    def _read(self, asked: Asked) -> Plan | None:
        """The plan that stands in the folder, if it was asked for the same."""
        with reading(self._path):
            if not self._path.exists():
                return None
        try:
            earlier = Plan.read(self._path)
        except PocketuneError as error:
            self.say(f"planning anew: {error}")
            return None
        strange = asked.difference(earlier.asked)
        if strange is not None:
            self.say(f"planning anew: {self._path} was made with {strange}")
            return None
        return earlier


def _measured(plan: Plan) -> int:
    """The number of measurements in a plan."""
    own = ("cost", "built_seconds", "failed_seconds", "late_seconds")
    return (plan.timing is not None) + sum(
        len(trial.heads) + len(trial.probes) + sum(getattr(trial, name) is not None for name in own)
        for trial in plan.trials
    )
