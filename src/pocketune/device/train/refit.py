"""The classifier of the trained features, computed as that of the start is.

Steps see random crops with dropout, and predictions the middle of a photo without. Touvron et al.
(2019) correct the difference by training the classifier again on photos as they are evaluated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pocketune.device.head import fit_head
from pocketune.device.head.embeddings import embedded, write_embeddings
from pocketune.device.memory.process import reclaim
from pocketune.device.train.limit import HEAD_SECONDS
from pocketune.device.train.photos import has_closed_form
from pocketune.device.train.progress import PhotosReport
from pocketune.device.train.start import head_room
from pocketune.heap import freed_at_once
from pocketune.kit.names import EMBEDDINGS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pocketune.device.engine.base import Engine
    from pocketune.device.head import Head
    from pocketune.device.train.folder import Run
    from pocketune.tasks import Labels

_PURPOSE = "classifier from the trained features"


def is_refitted(run: Run) -> bool:
    """Whether a run computes its classifier again after the last step.

    It does so if steps change the features, if validation photos can tell which classifier is
    better, and if there is time for all photos.
    """
    manifest = run.manifest
    return (
        run.settings.head_start != "random"
        and run.photos.validation is not None
        and run.refit_seconds > 0
        and has_closed_form(manifest, run.photos.splits.train)
        and any(spec.name not in manifest.task.head for spec in manifest.parameters)
    )


def refit(run: Run, engine: Engine, show: Callable[[PhotosReport], None]) -> Head | None:
    """The best closed form for the features that an engine computes now.

    The graphs of the engine are closed meanwhile.
    """
    photos, size = run.photos.sample, run.manifest.embeddings or 0

    def report(done: int, seconds_left: float) -> None:
        show(PhotosReport(_PURPOSE, done, len(photos.dataset), seconds_left))

    def write(path: Path) -> Labels:
        seconds = min(HEAD_SECONDS, run.refit_seconds)
        return write_embeddings(engine, photos, path, report, seconds)

    with embedded(run.folder / EMBEDDINGS, size, write) as embeddings:
        engine.release()
        reclaim()
        with freed_at_once():
            return fit_head(embeddings.blocks, run.photos.task, room=head_room(run))
