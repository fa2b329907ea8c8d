"""A plan: what was asked, what is known about each candidate, and the choice."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketune.device.machine import Machine
from pocketune.errors import PocketuneError
from pocketune.files import reading, regular, replacing
from pocketune.notebook import Readable
from pocketune.planner.limits import Limits
from pocketune.planner.trial import Probe, Trial
from pocketune.resumable import PLAN
from pocketune.schema import Positive, parse_object, read_versioned

if TYPE_CHECKING:
    from pocketune.arrays import StrPath

SCHEMA = 3
"""Version of the plan's fields; a reader refuses all others."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a plan was asked for; two equal ones have the same plan.

    Attributes:
        version: The pocketune that makes the plan.
        machine: The machine that the plan is for.
        photos: Name of the photos' folder or file.
        fingerprint: Hash of their names and labels, training and validation apart.
        training: Number of training photos.
        validation: Number of validation photos.
        classes: Number of classes or attributes.
        task: Name of the task of the labels.
        limits: The limits of memory and time.
        settings: The settings of the runs, with the seed.
    """

    version: str
    machine: Machine
    photos: str
    fingerprint: str
    training: int
    validation: int
    classes: int
    task: str
    limits: Limits
    settings: dict[str, Any]

    def difference(self, other: Asked) -> str | None:
        """What differs, in words; None if nothing does."""
        mine, theirs = asdict(self), asdict(other)
        strange = next((name for name in mine if mine[name] != theirs[name]), None)
        return None if strange is None else _WORDS.get(strange, f"other {strange}")


_WORDS = {
    "version": "another version of Pocketune",
    "machine": "another machine",
    "photos": "other photos",
    "fingerprint": "other photos",
    "training": "other photos",
    "validation": "other photos",
    "classes": "other classes",
    "task": "another task",
}


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A kit or a file of weights that gives no candidate, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Plan(Readable):
    """A plan, finished or not; its file is `plan.json`.

    Example:
        >>> plan = Plan.read("runs/photos.plan/plan.json")  # doctest: +SKIP
        >>> plan.chosen.name, plan.chosen.memory  # doctest: +SKIP
        ('blocks', 71_000_000)

    Attributes:
        asked: What was asked for.
        process: Resident bytes of a training process before it opens a kit.
        preparing: Seconds before the first candidate: finding photos, kits and weights.
        trials: Everything that is known about each candidate.
        left_out: Kits and weights that give no candidate.
        timing: The first probe, of few steps, which shows how fast the machine is; None if there
            was no need for one.
        timed: Name of the candidate of that probe.
        choice: Name of the chosen candidate; None while planning, or if nothing can be chosen.
        kit: Path of the kit of the choice; None without a choice.
        schema: Version of these fields.
    """

    asked: Asked
    process: int
    trials: tuple[Trial, ...]
    left_out: tuple[LeftOut, ...] = ()
    preparing: float = 0.0
    timing: Probe | None = None
    timed: str | None = None
    choice: str | None = None
    kit: str | None = None
    schema: Positive = SCHEMA

    def __str__(self) -> str:
        """The choice, and below it the candidates, each with what is known about it."""
        first = sorted(self.trials, key=lambda trial: trial.name != self.choice)
        choice = f"the choice is {self.choice}" if self.choice else "no choice yet"
        return "\n".join([f"planned in {self.seconds:.0f} s: {choice}", *map(str, first)])

    @property
    def chosen(self) -> Trial:
        """The trial of the choice.

        Raises:
            PocketuneError: There is no choice.
        """
        for trial in self.trials:
            if trial.name == self.choice:
                return trial
        raise PocketuneError("the plan has no choice: it was not finished, or nothing fits")

    @property
    def seconds(self) -> float:
        """Seconds that planning took, over all processes."""
        timing = self.timing.seconds if self.timing else 0.0
        return self.preparing + timing + sum(trial.seconds for trial in self.trials)

    @property
    def seconds_left(self) -> float | None:
        """Seconds of the time limit that are left for training; None without a limit."""
        time = self.asked.limits.time
        return None if time is None else max(0.0, time - self.seconds)

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: object, where: str) -> Plan:
        """A plan from the object of `to_dict`.

        Raises:
            FieldError: A field is missing, unknown or of the wrong type, or the plan was written by
                another version of Pocketune.
        """
        return read_versioned(cls, data, where, SCHEMA, "plan again")

    def write(self, path: Path) -> None:
        """Replace the file of the plan, atomically.

        Raises:
            PocketuneError: It cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n"
        with replacing(path) as file:
            file.write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, path: StrPath) -> Plan:
        """The plan in a file, or in `plan.json` of a folder.

        Raises:
            PocketuneError: There is no such file, or it is damaged or of another version.
        """
        file = Path(path)
        with reading(file, remedy="give the folder of a plan"):
            file = file / PLAN if file.is_dir() else file
            text = regular(file).read_bytes()
        return cls.from_dict(parse_object(text, str(file)), str(file))
