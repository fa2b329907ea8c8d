"""What a run is resumed from: its last checkpoint, and the photos as they were."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.arrays import StrPath
from pocketune.device.train.checkpoint import Checkpoint
from pocketune.device.train.folder import complete
from pocketune.device.train.photos import Photos, mask_options
from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError, Remedy, counted
from pocketune.files import writing
from pocketune.kit.kit import Kit
from pocketune.kit.names import CACHE, LAST

if TYPE_CHECKING:
    from pocketune.data.masks.numbered import AfterMask


def open_checkpoint(kit: Kit, folder: Path) -> Checkpoint:
    """The last checkpoint of the run in `folder`, which is a run of `kit`.

    Features that a complete run has left, which was killed at its very end, are removed.

    Raises:
        PocketuneError: There is none, it belongs to another kit, or the run is complete.
    """
    checkpoint = Checkpoint.load(folder / LAST)
    checkpoint.require_fits(kit, folder / LAST)
    if checkpoint.counters.finished:
        with writing(folder / CACHE):
            (folder / CACHE).unlink(missing_ok=True)
        raise complete(folder, f" after {counted(checkpoint.counters.step, 'step')}")
    return checkpoint


def photos_path(checkpoint: Checkpoint, moved: StrPath | None) -> Path:
    """Where the photos of a run are: at `moved`, or else where they were in its training.

    Raises:
        PocketuneError: They are no longer there.
    """
    path = Path(moved or checkpoint.photos)
    if not moved and not path.exists():
        raise PocketuneError(
            f"the photos of the run are no longer at {path}",
            remedy=Remedy("photos moved", "give their new location"),
        )
    return path


def find_photos(
    checkpoint: Checkpoint,
    moved: StrPath | None,
    settings: TrainSettings,
    kit: Kit,
    after_mask: AfterMask,
) -> Photos:
    """The photos of a resumed run, at `moved` if they have moved.

    Raises:
        PocketuneError: They are missing, cannot be used, or have changed since the run started.
    """
    path = photos_path(checkpoint, moved)
    photos = Photos.open(
        path,
        settings,
        kit,
        classes=checkpoint.identity.classes,
        after_mask=after_mask,
        most=checkpoint.most,
        masks=mask_options(settings, checkpoint.identity.classes),
    )
    if photos.fingerprint() != checkpoint.identity.photos:
        raise PocketuneError(
            f"the photos in {photos.path} have changed since the run in {kit.path} started: "
            "restore them, or start a new run"
        )
    return photos.validated_on(checkpoint.validates)
