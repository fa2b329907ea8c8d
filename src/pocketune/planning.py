"""Plan: choose what to train on photos, within limits of memory and time."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pocketune
from pocketune.data import load_splits
from pocketune.device.machine import Machine
from pocketune.device.train.folder import next_run
from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.options import takes_options
from pocketune.planner.journal import Journal
from pocketune.planner.kits import KitSource
from pocketune.planner.limits import Limits, make_limits
from pocketune.planner.plan import Asked, Plan
from pocketune.planner.process import process_bytes
from pocketune.planner.search import Search

if TYPE_CHECKING:
    from collections.abc import Callable

    from pocketune.arrays import StrPath

BATCH = 8
"""Images in a step, for the number of images of a whole run."""


@takes_options(TrainSettings)
def plan(
    photos: StrPath,
    out: StrPath | None = None,
    settings: TrainSettings | None = None,
    *,
    time: str | float | None = None,
    kits: StrPath | None = None,
    say: Callable[[str], None] = print,
    **options: Any,
) -> Plan:
    """Choose the kit that learns the photos best within limits of memory and time.

    Candidates whose predicted memory exceeds the budget are dropped. The others are tried on the
    photos in short runs, each a process that is held to the budget; the better half goes on to
    longer runs. Everything that is measured is kept in ``plan.json``, and a plan that was stopped
    goes on where it was.

    Example:
        >>> plan("photos/", budget="96MB", time="10m").chosen.name  # doctest: +SKIP
        'blocks'

    Args:
        photos: Labeled photos, as for ``train``.
        out: Folder of the plan; by default ``runs/``, the name of the photos and ``.plan``.
        settings: The settings of every run; its budget is the limit of memory.
        time: Limit for planning and training together, such as ``10m`` or a number of seconds.
            Planning takes at most 15 % of it, and at most two minutes without a limit.
        kits: A folder of kits to choose from besides the bundled ones; by default the folder that
            the environment variable ``POCKETUNE_KITS`` names.
        say: Receives a line about each thing that happens.
        options: Fields of :class:`TrainSettings`, which take precedence over ``settings``.

    Raises:
        PocketuneError: Nothing fits, there is no time for one probe, a limit contradicts another,
            or the photos or the kits cannot be used.
    """
    chosen = replace(settings or TrainSettings(), **options)
    limits = make_limits(chosen.budget, time)
    asked = _asked(Path(photos), chosen, limits)
    folder = Path(out or plan_folder(next_run(photos)))
    journal = Journal(folder, asked, say)
    process = journal.plan.process or process_bytes()
    limits.check_process(process)
    journal.write(process=process)
    source = KitSource(
        Path(photos),
        asked,
        chosen,
        process=process,
        folder=folder,
        kits=None if kits is None else Path(kits),
    )
    return Search(source, journal, _images(asked, chosen)).run()


def plan_folder(run: Path) -> Path:
    """The folder of the plan of a run, beside the run."""
    return run.with_name(f"{run.name}.plan")


def _asked(photos: Path, settings: TrainSettings, limits: Limits) -> Asked:
    splits = load_splits(photos, val_fraction=settings.val_fraction, seed=settings.seed)
    if not len(splits.val):
        raise PocketuneError(
            "a plan compares candidates on validation photos, and there are none: set "
            "val_fraction above 0, or name a kit"
        )
    return Asked(
        version=pocketune.__version__,
        machine=Machine.current(),
        photos=photos.resolve().name or "photos",
        fingerprint=splits.fingerprint(),
        training=len(splits.train),
        validation=len(splits.val),
        classes=len(splits.classes),
        task=splits.train.labeled.name,
        limits=limits,
        settings=asdict(settings),
    )


def _images(asked: Asked, settings: TrainSettings) -> int:
    """Images that a whole run trains on."""
    per_epoch = max(1, asked.training // (BATCH * settings.accumulate))
    return settings.total_steps(per_epoch) * BATCH * settings.accumulate
