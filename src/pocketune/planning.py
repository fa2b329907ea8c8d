"""Plan: choose what to train on photos, within limits of memory and time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

import pocketune
from pocketune.arithmetic import usual_arithmetic
from pocketune.data import Splits
from pocketune.device.machine import Machine
from pocketune.device.train.folder import first_run, plan_folder
from pocketune.device.train.photos import load_photos, makes_no_steps
from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError, author_half
from pocketune.options import takes_options, with_options
from pocketune.planner.context import PlanContext
from pocketune.planner.evidence import Evidence
from pocketune.planner.journal import Journal
from pocketune.planner.kits import KitSource, least_memory
from pocketune.planner.limits import Limits, make_limits
from pocketune.planner.plan import Asked, Plan
from pocketune.planner.process import process_bytes
from pocketune.planner.search import Search
from pocketune.planner.source import Source, Sources
from pocketune.resumable import PLAN, own_folder

if TYPE_CHECKING:
    from pocketune.arrays import StrPath

MakeDrafts = Callable[[PlanContext], Source]
COMPARED = 0.2
"""Fraction of very few photos that candidates are compared on."""
BATCH = 8
"""Images in a step, for the number of images of a whole run."""


@takes_options(TrainSettings)
@usual_arithmetic
def plan(
    photos: StrPath,
    out: StrPath | None = None,
    settings: TrainSettings | None = None,
    *,
    time: str | float | None = None,
    kits: StrPath | None = None,
    weights_dir: StrPath | None = None,
    networks: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    say: Callable[[str], None] = print,
    **options: Any,
) -> Plan:
    """Choose the network, method and resolution that learn the photos best within limits.

    Candidates are kits, and networks whose pretrained weights are to be had; these need PyTorch.
    For masks, the networks are decode heads over backbones with weights.

    Candidates whose predicted memory exceeds the budget are dropped. The others are ranked by their
    frozen features, and the most promising are tried on the photos in short runs, each a process
    that is held to the budget; the better half goes on to longer runs. With too little time for
    runs, the ranking decides. Everything that is measured is kept in `plan.json`, and a plan that
    was stopped goes on where it was.

    Example:
        >>> plan("photos/", budget="96MB", time="10m").chosen.name  # doctest: +SKIP
        'blocks'

    Args:
        photos: Labeled photos, as for `train`.
        out: Folder of the plan; by default `runs/`, the name of the photos and `.plan`.
        settings: The settings of every run; its budget is the limit of memory.
        time: Limit for planning and training together, such as `10m` or a number of seconds.
            Planning takes at most 15 % of it, under a short limit at most 40 % or 30 seconds, and
            two minutes without a limit.
        kits: A folder of kits to choose from besides the bundled ones; by default the folder that
            the environment variable `POCKETUNE_KITS` names. With networks to choose from, the
            bundled kits are left out.
        weights_dir: A folder of pretrained weights, whose networks are candidates too; by default
            the cache of `torch.hub`, if PyTorch is installed and weights are there.
        networks: Names of the networks to choose from; by default all that have weights.
        methods: Names of the methods to choose from; by default a few that differ in memory.
        say: Receives a line about each thing that happens.
        options: Fields of `TrainSettings`, which take precedence over `settings`.

    Raises:
        PocketuneError: Nothing fits, a limit contradicts another, the photos or the kits cannot
            be used, or the folder is another process's.
    """
    began = monotonic()
    chosen = with_options(settings or TrainSettings(), options)
    limits = make_limits(chosen.budget, time)
    splits = load_photos(Path(photos), chosen)
    if makes_no_steps(splits, chosen) and np.bincount(splits.train.groups).max() > 1:
        # The run computes its classifier from all photos, so the features of all decide.
        chosen = replace(chosen, epochs=0, val_fraction=0.0)
        splits = load_photos(Path(photos), chosen)
    elif not len(splits.val) and chosen.epochs != 0 and chosen.val_fraction != 0:
        # A run of so few photos validates on none of them; candidates are compared on some.
        chosen = replace(chosen, val_fraction=COMPARED)
        splits = load_photos(Path(photos), chosen)
    asked = _asked(Path(photos), splits, chosen, limits)
    folder = Path(out or plan_folder(first_run(photos)))
    with own_folder(folder, PLAN):
        journal = Journal(folder, asked, say)
        process = journal.plan.process or process_bytes(Path(photos), chosen)
        least = least_memory(asked.task, process=process, classes=asked.classes)
        limits.check_process(process, least)
        drafts = _drafts(weights_dir, networks, methods, say)
        decoding = cache(lambda size: load_photos(Path(photos), chosen, size=size).decoding)
        context = PlanContext(Path(photos), splits.train, chosen, process, folder, decoding)
        own = KitSource(context, kits=_path(kits), bundled=drafts is None)
        sources: list[Source] = [own]
        if drafts is not None:
            sources.append(drafts(context))
        journal.write(process=process, preparing=journal.plan.preparing or monotonic() - began)
        images = _images(asked, chosen)
        made = Search(Evidence(Sources(sources), context.probe, journal, images, decoding)).run()
        if journal.is_recalled:
            say(f"the plan in {folder} is complete: nothing was measured again")
    return made


def _path(given: StrPath | None) -> Path | None:
    return None if given is None else Path(given)


def _asked(photos: Path, splits: Splits, settings: TrainSettings, limits: Limits) -> Asked:
    task = splits.train.labeled
    if not task.larger_is_better:
        raise PocketuneError(
            "a plan compares scores of which larger ones are better, and smaller ones are of the "
            f"{task.metric_name} of the task {task.name}: name a kit"
        )
    if not len(splits.val) and settings.epochs != 0:
        raise PocketuneError(
            "a plan compares candidates on validation photos, and there are none: "
            + ("set val_fraction above 0" if settings.val_fraction == 0 else "add photos")
            + ", or name a kit"
        )
    return Asked(
        version=pocketune.__version__,
        machine=Machine.current(),
        photos=photos.resolve().name or "photos",
        fingerprint=splits.fingerprint(),
        training=len(splits.train),
        validation=len(splits.val),
        classes=len(splits.classes),
        task=task.name,
        limits=limits,
        settings=asdict(settings),
    )


def _images(asked: Asked, settings: TrainSettings) -> int:
    """Images that a whole run trains on."""
    per_epoch = max(1, asked.training // (BATCH * settings.accumulate))
    return settings.total_steps(per_epoch) * BATCH * settings.accumulate


def _drafts(
    weights_dir: StrPath | None,
    networks: Sequence[str] | None,
    methods: Sequence[str] | None,
    say: Callable[[str], None],
) -> MakeDrafts | None:
    """What makes the candidates of networks; None if there are no weights.

    Raises:
        PocketuneError: PyTorch is missing, or there are no weights of a network that was named.
    """
    if networks or methods:
        with author_half("choosing among networks"):
            from pocketune.proposals.choice import check_names
        check_names(networks, methods)
    folder = Path(weights_dir) if weights_dir is not None else cached_weights()
    if folder is None:
        if networks or methods:
            raise PocketuneError(
                "choosing among networks and methods needs pretrained weights, and none were "
                "found: give a folder of weights as weights_dir, or leave out networks and "
                "methods to choose among the bundled kits"
            )
        if find_spec("torch") is not None:
            say("no pretrained weights were found, so only kits are candidates")
        return None
    with author_half("choosing among networks"):
        from pocketune.proposals.choice import drafts_in
    return drafts_in(folder, networks, methods)


def cached_weights() -> Path | None:
    """The folder in which `torch.hub` keeps downloads, if PyTorch is installed and any are there.

    PyTorch itself is not imported.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "torch"
    folder = Path(os.environ.get("TORCH_HOME", cache)) / "hub" / "checkpoints"
    files = chain(folder.glob("*.pth"), folder.glob("hf-hub/*/*/*.safetensors"))
    there = find_spec("torch") is not None and folder.is_dir() and any(files)
    return folder if there else None
