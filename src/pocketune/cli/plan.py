"""`pocketune plan`."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.cli.author import run_or_exit, typed_options
from pocketune.cli.command import command
from pocketune.cli.errors import print_error
from pocketune.cli.options import LABELED, JsonOption, argument
from pocketune.device.train.settings import RUN_PANEL, TrainSettings
from pocketune.options import option
from pocketune.processes.child import is_child
from pocketune.threads import wait_asleep

if TYPE_CHECKING:
    from rich.table import Table

    from pocketune.planner.plan import Plan
    from pocketune.planner.trial import Trial

PLAN_PANEL = "What to choose from"
_SHOWN = 12
"""Number of dropped candidates that have a row of their own."""


@dataclass(frozen=True, kw_only=True)
class ChoiceOptions:
    """The limit of time, and what a plan chooses from."""

    time: str | None = option(
        "Time limit for planning and training together, such as 10m. It shortens a run that would "
        "take longer.",
        default=None,
        metavar="TIME",
        unset="no limit",
        panel=RUN_PANEL,
    )
    kits: Path | None = option(
        "Folder of kits to choose from, besides the bundled ones.",
        default=None,
        metavar="DIR",
        unset="the environment variable POCKETUNE_KITS",
        panel=PLAN_PANEL,
    )
    weights_dir: Path | None = option(
        "Folder of pretrained weights, whose networks to choose from. Needs PyTorch.",
        default=None,
        metavar="DIR",
        unset="downloads of torch.hub, if there are any",
        panel=PLAN_PANEL,
    )


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The photos and the folder of the plan."""

    photos: str | Path = argument(LABELED, metavar="PHOTOS")
    out: Path | None = option(
        "Folder of the plan. A plan that was stopped goes on there.",
        default=None,
        metavar="DIR",
        unset="runs/, the name of PHOTOS and .plan",
        panel=RUN_PANEL,
    )
    network: list[str] | None = option(
        "Network to choose from; can be repeated.",
        default=None,
        metavar="NAME",
        unset="every network with weights",
        panel=PLAN_PANEL,
    )
    method: list[str] | None = option(
        "Method to choose from; can be repeated.",
        default=None,
        metavar="NAME",
        unset="last, mobiletl, blocks and tinytl",
        panel=PLAN_PANEL,
    )


@command(
    "pocketune plan photos/ --budget 96MB",
    "pocketune plan photos/ --budget 96MB --time 10m --weights-dir weights/",
    "pocketune plan photos/ --budget 96MB --kits kits/ --json | jq .choice",
    goes_on=True,
)
def plan(
    asked: PlanOptions, choice: ChoiceOptions, settings: TrainSettings, output: JsonOption
) -> None:
    """Choose what to train on the photos, within limits of memory and time.

    Candidates that cannot fit the budget are dropped by prediction. The others are tried in short
    runs, each in a process that is held to the budget.

    With --json: one object, the content of plan.json plus "runners_up", "pareto_front",
    "smallest_budget" and "seconds".
    """
    from pocketune.device.train.folder import first_run, plan_folder
    from pocketune.planning import plan as make_plan

    wait_asleep()

    made = make_plan(
        asked.photos,
        asked.out,
        settings,
        time=choice.time,
        kits=choice.kits,
        weights_dir=choice.weights_dir,
        networks=asked.network,
        methods=asked.method,
        say=print_error,
    )
    if output.json:
        print(json.dumps(_values(made)))
        return
    _show(made)
    folder = asked.out or plan_folder(first_run(asked.photos))
    print(f"saved in {folder}", flush=True)
    if not is_child():  # else `train` trains it at once
        print_error(f"to train the choice: {_training(made, asked.photos, settings)}")


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


def _training(plan: Plan, photos: str | Path, settings: TrainSettings) -> str:
    """The command that trains the choice, in the time that planning has left or should have."""
    from pocketune.device.train.settings import command_options
    from pocketune.kit.bundled import bundled_kit, list_kits

    kit = next((name for name in list_kits() if str(bundled_kit(name)) == plan.kit), plan.kit)
    time = []
    if (left := plan.seconds_left) is not None:
        seconds = max(1, left, plan.asked.limits.training)
        time = ["--time", f"{seconds:.0f}s"]
    options = command_options(plan.chosen.settings(settings))
    words = ["pocketune", "train", photos, "--kit", kit, *time, *options]
    return shlex.join(map(str, words))


def _values(plan: Plan) -> dict[str, object]:
    from pocketune.planner.alternatives import pareto_front, runners_up, smallest_budget

    return {
        **plan.to_dict(),
        "runners_up": [trial.name for trial in runners_up(plan)],
        "pareto_front": [trial.name for trial in pareto_front(plan)],
        "smallest_budget": smallest_budget(plan),
        "seconds": plan.seconds,
    }


def _show(plan: Plan) -> None:
    from rich.console import Console

    from pocketune.planner.alternatives import sentences

    console = Console()
    console.print(_table(plan))
    for each in plan.left_out:
        console.print(f"{each.name} is no candidate: {each.reason}", highlight=False, markup=False)
    for sentence in sentences(plan):
        console.print(sentence, highlight=False, markup=False)


def _table(plan: Plan) -> Table:
    from rich.markup import escape
    from rich.table import Table

    from pocketune.planner.alternatives import runners_up

    others = runners_up(plan)
    rest = [t for t in plan.trials if t.name != plan.choice and t not in others]
    table = Table(title=f"planned in {plan.seconds:.0f} s", title_justify="left")
    for name in ("candidate", "memory", "step", "score", "verdict"):
        right = name in ("memory", "step", "score")
        table.add_column(name, justify="right" if right else "left", no_wrap=right)
    known = [trial for trial in rest if trial.cost is not None][:_SHOWN]
    for trial in (plan.chosen, *others, *known):
        table.add_row(*_cells(trial, _verdict(plan, trial)))
    unknown = Counter(_verdict(plan, trial) for trial in rest if trial not in known)
    for verdict, count in unknown.items():
        table.add_row(f"{count} more", "", "", "", escape(verdict))
    return table


def _verdict(plan: Plan, trial: Trial) -> str:
    """Why a trial was dropped, without repeating the name of the choice."""
    verdict, choice = trial.dropped or "chosen", f"{plan.choice} "
    return "the choice " + verdict[len(choice) :] if verdict.startswith(choice) else verdict


def _cells(trial: Trial, verdict: str) -> tuple[str, ...]:
    from rich.markup import escape

    from pocketune.device.memory.sizes import format_size

    score = trial.score
    return (
        escape(trial.name),
        format_size(trial.memory) if trial.memory else "",
        f"{1000 * trial.step_seconds:.0f} ms" if trial.step_seconds else "",
        "" if score is None else f"{score.value:{score.style}}",
        escape(verdict),
    )
