"""Adapt a feature extractor: choose the sub-network of a supernet that fits photos and device."""

from __future__ import annotations

import math
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketune.device.train.defaults import default_epochs
from pocketune.device.train.display import console
from pocketune.device.train.folder import check_new_run_folder
from pocketune.device.train.photos import makes_no_steps
from pocketune.device.train.progress import Progress
from pocketune.device.train.settings import TrainSettings, command_options
from pocketune.errors import PocketuneError
from pocketune.extractor.clock import Clock
from pocketune.extractor.record import Record
from pocketune.extractor.search import Search
from pocketune.extractor.settings import ExtractorSettings
from pocketune.kit.kit import Kit
from pocketune.kit.names import LAST, RESULT
from pocketune.kit.writer import refuse_to_overwrite
from pocketune.methods import Method, TinyTL
from pocketune.options import takes_options, with_options
from pocketune.processes.command import run_command

if TYPE_CHECKING:
    from pocketune.arrays import StrPath

RUN_SHARE = 0.5
"""Share of the time limit for the run, if there is one."""


@takes_options(ExtractorSettings)
def adapt_extractor(
    photos: StrPath,
    out: StrPath,
    settings: ExtractorSettings | None = None,
    *,
    supernet: StrPath,
    method: Method | None = None,
    work: StrPath | None = None,
    run: StrPath | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Record:
    """Choose the sub-network of a supernet that learns the photos best, and build its kit.

    TinyTL's feature extractor adaptation, in three phases: the supernet is adapted to four fifths
    of the training photos, a random sub-network a step; sub-networks are measured on the others, an
    accuracy predictor learns from them, and an evolutionary search finds the best one within the
    limits; this one becomes a kit, which is trained on all photos.

    The kit's initial values are the adapted ones, with its classifier for the classes of the
    photos. All that was measured is kept in a folder, and a search that was stopped goes on there;
    so does one with other limits, which takes a minute. A kit that was built is not built again,
    and its run is resumed.

    Args:
        photos: Labeled photos, as for `train`. Validation photos are not used.
        out: The kit to write: a folder or a .zip.
        settings: Limits and options.
        supernet: A file of `pretrain_supernet` or `save_supernet`.
        method: What the kit trains; by default TinyTL's biases and lite residual modules.
        work: Folder of what is measured; by default that of the kit with `.search` behind.
        run: Train the kit on all photos, into this run folder, in a process that is held to the
            budget. Few photos are trained on, too, where `train` would make no steps by default.
        progress: The progress display; standard output by default, where the process that trains
            the kit then writes, too.
        options: Fields of `ExtractorSettings`, which take precedence over `settings`.

    Returns:
        Everything that was measured, with the chosen sub-network.

    Raises:
        PocketuneError: There is something else than a kit at `out`, or a run of another kit in the
            folder for one; the limits are below what the smallest sub-network takes, which is
            named; the time is too short to build a kit; a class has too few photos; the supernet
            cannot be used, or does not have the size; or the folder has measurements of something
            else.

    Example:
        >>> found = adapt_extractor(
        ...     "photos/", "kit/", supernet="supernet.safetensors", budget="96MB", time="1h"
        ... )  # doctest: +SKIP
        >>> found.chosen.forecast.memory  # doctest: +SKIP
        93_800_000
    """
    chosen = with_options(settings or ExtractorSettings(), options)
    limit = math.inf if chosen.seconds is None else chosen.seconds
    refuse_to_overwrite(Path(out))
    if run is not None and not _is_run_of(Path(run), Path(out)):
        check_new_run_folder(Path(run))
    clock = Clock(limit, 1.0 if run is None else 1 - RUN_SHARE, time.monotonic())
    folder = Path(work) if work is not None else _beside(Path(out))
    with closing(progress or console()) as shown:
        search = Search(
            Path(photos), chosen, Path(supernet), method or TinyTL(), folder, shown, clock
        )
        if not search.has_built(Path(out)):
            if run is not None:  # that of an earlier kit is not this one's
                check_new_run_folder(Path(run))
            search.adapt()
            search.measure()
            search.choose()
            search.build(Path(out))
    if run is not None:
        seconds, quiet = limit - clock.spent, progress is not None
        _train(Path(photos), Path(out), Path(run), search, seconds, quiet=quiet)
    return search.journal.record


def _beside(out: Path) -> Path:
    """The folder of a search beside its kit."""
    return out.with_name(f"{out.stem if out.suffix == '.zip' else out.name}.search")


def _is_run_of(run: Path, kit: Path) -> bool:
    """Whether the folder has a run of this kit, finished or not."""
    if not any((run / name).is_file() for name in (LAST, RESULT)):
        return False
    with suppress(PocketuneError):
        return Kit.open(run, verify=False).identity == Kit.open(kit, verify=False).identity
    return False


def _train(
    photos: Path, kit: Path, run: Path, search: Search, seconds: float, *, quiet: bool
) -> None:
    """Train the kit on all photos, in a process without PyTorch, in so many seconds.

    A run that was stopped is resumed, and one that is finished stays as it is.
    """
    if (run / RESULT).exists():
        return
    options: list[object] = [photos, "--kit", kit, "--out", run]
    if (run / LAST).exists():
        options = ["--resume", run]
    else:
        options += command_options(_run_settings(search))
        if math.isfinite(seconds):
            options += ["--time", max(1.0, seconds)]
    code, _ = run_command("train", *options, quiet=quiet)
    if code:
        raise PocketuneError(f"the kit {kit} is built, but training it has failed")


def _run_settings(search: Search) -> TrainSettings:
    """Settings of a run that makes steps.

    `train` makes none by default on few photos, where the classifier that is computed from all of
    them is as good. The sub-network was adapted to a part of the photos and together with all
    others: it is fine-tuned on all of them as many epochs as `train` has for a set of this size.
    """
    asked = search.settings
    settings = TrainSettings(budget=asked.budget_bytes, seed=asked.seed)
    if not makes_no_steps(search.splits, settings):
        return settings
    return replace(settings, epochs=default_epochs(math.ceil(len(search.photos) / asked.batch)))
