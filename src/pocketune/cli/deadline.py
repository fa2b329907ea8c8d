"""The time limit of `pocketune train`, and the plan that it makes first."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.cli.author import run_or_exit, typed_options

if TYPE_CHECKING:
    from pocketune.cli.plan import ChoiceOptions
    from pocketune.device.train.settings import TrainSettings


@dataclass(frozen=True)
class Deadline:
    """When a command has to end.

    Attributes:
        end: In seconds of `time.monotonic`; None for never.
    """

    end: float | None

    @classmethod
    def of(cls, limit: str | None) -> Deadline:
        """The deadline of a limit that begins now.

        Raises:
            PocketuneError: The limit is not a time.
        """
        from pocketune.planner.limits import parse_time

        return cls(None if limit is None else time.monotonic() + parse_time(limit))

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return float("inf") if self.end is None else max(0.0, self.end - time.monotonic())


def planned(
    photos: str | Path,
    out: Path | None,
    settings: TrainSettings,
    choice: ChoiceOptions,
) -> tuple[Path, TrainSettings]:
    """Make a plan with `pocketune plan`: the kit to train, and the settings of the run.

    It is made in another process, because what it imports would stay in the memory of this one,
    which the budget limits. The plan is kept beside the run `out`; by default, it is the plan of
    the photos, which is made once for all of their runs.

    Raises:
        click.exceptions.Exit: There is no plan, and the command has printed why.
    """
    from pocketune.device.train.folder import first_run, plan_folder
    from pocketune.device.train.settings import command_options
    from pocketune.planner.plan import Plan

    folder = plan_folder(out or first_run(photos))
    typed = typed_options({"out": folder, **asdict(choice)})
    run_or_exit("plan", photos, *typed, *command_options(settings))
    plan = Plan.read(folder)
    return Path(str(plan.kit)), plan.chosen.settings(settings)
