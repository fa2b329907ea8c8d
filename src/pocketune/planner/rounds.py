"""Rounds of short runs, in which the better half of the trials stays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pocketune.device.train.display import format_time
from pocketune.errors import PocketuneError
from pocketune.planner.halving import Pace, better_half, next_round
from pocketune.planner.probe import PHOTOS, TooSlow
from pocketune.planner.trial import Length

if TYPE_CHECKING:
    from pathlib import Path

    from pocketune.planner.evidence import Evidence
    from pocketune.planner.trial import Probe, Trial

MIN_SECONDS = 15.0
"""Seconds without which no candidate is tried: a kit is built, and a process starts."""
TIMING_IMAGES = 64
"""Images of the first few steps, which show how fast this machine is."""
TIMEOUT_FACTOR = 3.0
"""A probe is stopped after this many times its expected seconds."""
TIMEOUT_GRACE = 20.0
"""Seconds that a probe gets on top."""


class Rounds:
    """Probes the trials that are left.

    Args:
        evidence: The evidence of the plan.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._journal = evidence.journal
        self._images = evidence.training.images

    def run(self) -> None:
        """Probe and drop until one trial is left, or the time is over.

        A run without steps has nothing to probe: its frozen features say all.
        """
        if not self._images:
            return
        left = self._journal.left
        pace = self._pace(self._evidence.order(left))
        left = self._journal.left  # the first steps may have failed
        while pace is not None and len(left) > 1:
            seconds = self._evidence.seconds_left()
            planned = next_round(left, pace, seconds, self._images, self._evidence.training)
            if len(planned.trials) < 2:
                break
            self._evidence.drop(planned.out, "there is time to try more promising ones alone")
            for number, trial in enumerate(planned.trials, 1):
                place = f"{number} of {len(planned.trials)}"
                self._probe(trial, planned.images, pace, place)
            left = self._halved(planned.images)

    def _pace(self, trials: list[Trial]) -> Pace | None:
        """The pace of this machine, from a few steps of the first trial that trains.

        None if there is no time for them.
        """
        for trial in trials:
            if (
                self._journal.earlier_timing(trial) is None
                and self._evidence.seconds_left() < MIN_SECONDS
            ):
                return None
            kit = self._evidence.kit(trial)
            if kit is None or trial.cost is None:
                continue
            timing = self._timing(trial, kit)
            if timing is not None:
                self._journal.write(timing=timing, timed=trial.name)
                return Pace.of(
                    timing, trial.cost, self._evidence.current(trial).built_seconds or 0.0
                )
            if self._evidence.current(trial).late_seconds is not None:
                return None
        return None

    def _timing(self, trial: Trial, kit: Path) -> Probe | None:
        """A few steps of a trial, recalled or measured; None if they fail or take too long."""
        recalled = self._journal.earlier_timing(trial)
        if recalled is not None:
            return recalled
        earlier = self._journal.earlier(trial)
        if earlier is not None and earlier.late_seconds is not None:
            self._note_late(trial, earlier.late_seconds)
            return None
        if self._evidence.failed_earlier(trial):
            return None
        self._journal.say(f"timing {trial.name}")
        images = min(TIMING_IMAGES, self._images)
        length = self._length(trial, images, images, self._evidence.seconds_left())
        began = self._evidence.clock()
        try:
            return self._evidence.probe(trial, kit, length)
        except TooSlow as error:  # the others would be too slow as well
            self._journal.say(f"{trial.name}: {error}")
            self._note_late(trial, self._evidence.clock() - began)
        except PocketuneError as error:
            self._evidence.fail(trial, error, self._evidence.clock() - began)
        return None

    def _note_late(self, trial: Trial, seconds: float) -> None:
        self._journal.put(replace(self._evidence.current(trial), late_seconds=seconds))

    def _length(self, trial: Trial, images: int, photos: int, seconds: float) -> Length:
        """A probe on so many images, of so many photos at most, that may take these seconds."""
        return Length(
            steps=max(1, images // trial.candidate.step_images),
            most=photos,
            seconds=seconds + TIMEOUT_GRACE,
            share=images / self._images,
        )

    def _halved(self, images: int) -> list[Trial]:
        """Drop the worse half of a round; all but the best if its runs were whole runs."""
        kept, worse = better_half(self._journal.left, self._evidence.training)
        if images >= self._images:
            kept, worse = kept[:1], [*kept[1:], *worse]
        if kept:
            best = kept[0]
            for trial in worse:  # the estimates decide, which know more than the scores
                why = f"{best.name} reached {best.score} in as many steps"
                if best.rank < trial.rank:
                    why += ", and is expected to gain more from the rest"
                self._evidence.drop([trial], why)
        return kept

    def _probe(self, trial: Trial, images: int, pace: Pace, place: str) -> None:
        kit = self._evidence.kit(trial)
        if kit is None:
            return
        trial = self._evidence.current(trial)
        number, expected = len(trial.probes), pace.seconds(trial, images)
        length = self._length(trial, images, max(PHOTOS, images), TIMEOUT_FACTOR * expected)
        steps = length.steps
        left = format_time(max(0.0, self._evidence.seconds_left()))
        self._journal.say(f"trying {place}: {trial.name}, {steps} steps ({left} of planning left)")

        def recalled(earlier: Trial) -> Probe | None:
            again = len(earlier.probes) > number and earlier.probes[number].steps == steps
            return earlier.probes[number] if again else None

        self._evidence.known(
            trial,
            recalled,
            lambda: self._evidence.probe(trial, kit, length),
            lambda trial, probe: trial.probed(probe),
        )
