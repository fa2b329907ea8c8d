"""How a run reads masks: as it is told, and otherwise as the run that it begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pocketune.data import MaskOptions
from pocketune.kit.names import LAST
from pocketune.kit.tensors import read_tensors

if TYPE_CHECKING:
    from pocketune.device.train.settings import TrainSettings
    from pocketune.kit.kit import Kit


def mask_options(settings: TrainSettings) -> MaskOptions:
    """How a run with these settings reads masks."""
    return MaskOptions(ignore=settings.ignore, class_names=settings.class_names)


def masks_of(kit: Kit, given: MaskOptions) -> MaskOptions:
    """The given options, and for those that are not given the ones of the run that a kit is.

    A checkpoint of another version will do: only these two settings are read.

    Raises:
        PocketuneError: The run's checkpoint is damaged.
    """
    last = kit.find(LAST)
    if last is None or not kit.manifest.task.dense:
        return given
    _, metadata = read_tensors(last, kind="checkpoint", codes=True)
    own = metadata.get("settings", {})
    return MaskOptions(
        ignore=given.ignore or own.get("ignore"),
        class_names=given.class_names or own.get("class_names"),
    )
