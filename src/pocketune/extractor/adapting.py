"""Adapt a feature extractor: choose the sub-network of a supernet that fits photos and device."""

from __future__ import annotations

import math
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketune.command import run_command
from pocketune.device.train.display import console
from pocketune.device.train.folder import check_new_run_folder
from pocketune.device.train.progress import Progress
from pocketune.device.train.settings import TrainSettings, command_options
from pocketune.errors import PocketuneError
from pocketune.extractor.clock import Clock
from pocketune.extractor.record import Record
from pocketune.extractor.search import Search
from pocketune.extractor.settings import ExtractorSettings
from pocketune.kit.writer import refuse_to_overwrite
from pocketune.methods import Method, TinyTL
from pocketune.options import takes_options, with_options

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
    so does one with other limits, which takes a minute.

    Args:
        photos: Labeled photos, as for `train`. Validation photos are not used.
        out: The kit to write: a folder or a .zip.
        settings: Limits and options.
        supernet: A file of `pretrain_supernet` or `save_supernet`.
        method: What the kit trains; by default TinyTL's biases and lite residual modules.
        work: Folder of what is measured; by default that of the kit with `.search` behind.
        run: Train the kit on all photos, into this run folder, in a process that is held to the
            budget.
        progress: The progress display; standard output by default.
        options: Fields of `ExtractorSettings`, which take precedence over `settings`.

    Returns:
        Everything that was measured, with the chosen sub-network.

    Raises:
        PocketuneError: There is something else than a kit at `out`, or a run in the folder for
            one; the limits are below what the smallest sub-network takes, which is named;
            the time is too short to build a kit; a class has too few photos; the supernet cannot be
            used, or does not have the size; or the folder has measurements of something else.

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
    if run is not None:
        check_new_run_folder(Path(run))
    clock = Clock(limit, 1.0 if run is None else 1 - RUN_SHARE, time.monotonic())
    folder = Path(work) if work is not None else _beside(Path(out))
    with closing(progress or console()) as shown:
        search = Search(
            Path(photos), chosen, Path(supernet), method or TinyTL(), folder, shown, clock
        )
        search.adapt()
        search.measure()
        search.choose()
        search.build(Path(out))
    if run is not None:
        _train(Path(photos), Path(out), Path(run), chosen, limit - clock.spent)
    return search.journal.record


def _beside(out: Path) -> Path:
    """The folder of a search beside its kit."""
    return out.with_name(f"{out.stem if out.suffix == '.zip' else out.name}.search")


def _train(photos: Path, kit: Path, run: Path, settings: ExtractorSettings, seconds: float) -> None:
    """Train the kit on all photos, in a process without PyTorch, in so many seconds."""
    options: list[object] = ["--kit", kit, "--out", run]
    options += command_options(TrainSettings(budget=settings.budget_bytes, seed=settings.seed))
    if math.isfinite(seconds):
        options += ["--time", max(1.0, seconds)]
    code, _ = run_command("train", photos, *options)
    if code:
        raise PocketuneError(f"the kit {kit} is built, but training it has failed")
