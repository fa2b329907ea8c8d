"""Whether a run keeps features between its epochs, where, and how many draws of each photo."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pocketune.device.cache.code import EXACT, Code
from pocketune.device.cache.loader import Part
from pocketune.device.cache.records import HELD
from pocketune.device.memory.budget import BudgetExceeded
from pocketune.device.memory.sizes import format_size
from pocketune.device.train.defaults import DRAWS
from pocketune.errors import PocketuneError, counted

if TYPE_CHECKING:
    from pathlib import Path

    from pocketune.data import Loader
    from pocketune.device.train.photos import Photos
    from pocketune.device.train.settings import TrainSettings
    from pocketune.kit.manifest import Manifest

BITS = 8
FEW_BITS, FEW = 16, 4096
"""Bits of features of at most so many values, which take little room anyway."""
MOST, MOST_OF_FREE = 4_000_000_000, 0.25
"""The largest file that is written unless the user asks for one: in bytes, and as a share of the
free disk."""


@dataclass(frozen=True)
class Parts:
    """The records of a run: of draws of its training photos, and of photos as they are evaluated.

    The latter are exact, so that a score is that of the network as it will be used.

    Attributes:
        training: Of the crops that steps see.
        validation: Of the validation photos; None if they are not kept.
        sample: Of the training photos as they are evaluated, for the classifier and for what is
            known of the classes; None if they are not kept.
    """

    training: Part
    validation: Part | None = None
    sample: Part | None = None

    @classmethod
    def of(cls, photos: Photos, manifest: Manifest, draws: int, *, sample: bool = False) -> Parts:
        """The records of so many draws of the photos; the kit has a frozen part.

        `sample` says whether the training photos are also kept as they are evaluated.
        """
        few = Code(_shape(manifest), BITS).values <= FEW
        training = _part(photos.training, manifest, FEW_BITS if few else BITS, draws)
        if photos.task.dense:  # the truth of a mask is as large as its photo
            return cls(training)
        end = training.end
        parts: dict[str, Part] = {}
        for name, loader in (
            ("validation", photos.validation),
            ("sample", photos.sample if sample else None),
        ):
            if loader is not None:
                parts[name] = replace(_part(loader, manifest, EXACT, 1), start=end)
                end = parts[name].end
        return cls(training, **parts)

    @property
    def _kept(self) -> list[Part]:
        every = (self.training, self.validation, self.sample)
        return [part for part in every if part is not None]

    @property
    def records(self) -> int:
        """Number of all records."""
        return sum(part.draws * part.images for part in self._kept)

    @property
    def size(self) -> int:
        """Bytes of all records."""
        return self._kept[-1].end


def parts_of(settings: TrainSettings, photos: Photos, manifest: Manifest) -> Parts:
    """The records of a run with chosen settings.

    In memory, where room is dear, photos that few passes see as they are evaluated are not kept.
    """
    on_disk = settings.cache == "disk"
    return Parts.of(photos, manifest, settings.draws or DRAWS, sample=on_disk)


def _part(loader: Loader, manifest: Manifest, bits: int, draws: int) -> Part:
    task, classes = loader.dataset.labeled, len(loader.dataset.classes)
    return Part(
        code=Code(_shape(manifest), bits),
        label_shape=task.label_shape(manifest.size, classes),
        label_type=np.dtype(task.label_type),
        images=loader.turns * len(loader.dataset),
        draws=draws,
    )


def _shape(manifest: Manifest) -> tuple[int, ...]:
    assert manifest.features is not None
    return manifest.features


def cache_bytes(settings: TrainSettings, photos: Photos, manifest: Manifest) -> int:
    """Bytes of memory that the features of a run take, with chosen settings."""
    if settings.cache == "off":
        return 0
    parts = parts_of(settings, photos, manifest)
    # Features that wait for the step do so in place of pixels; a batch is put together of them.
    batch = 2 * photos.training.batch * parts.training.record
    if settings.cache != "memory":
        return batch
    kept = parts.training.draws * parts.training.images
    seen = settings.total_steps(len(photos.training)) * photos.training.batch
    never = max(0, kept - seen) * parts.training.record  # places that a short run does not fill
    return batch + parts.size - never + HELD * parts.records


def choose(
    settings: TrainSettings,
    photos: Photos,
    manifest: Manifest,
    folder: Path,
    *,
    prepares: bool,
    room: int | None,
) -> tuple[TrainSettings, str]:
    """Settings that say where features are kept and in how many draws, and a line about it.

    The line is empty if there is nothing to say.

    Args:
        settings: The settings of the run, with its length.
        photos: The photos of the run.
        manifest: Of the kit.
        folder: The run folder, which need not exist.
        prepares: Whether the engine computes the frozen part on its own.
        room: Bytes that the budget leaves; None for no limit.

    Raises:
        BudgetExceeded: The user asks for a cache in memory, and the budget leaves no room for it.
        PocketuneError: The user asks for a cache that is impossible.
    """
    per_epoch = len(photos.training)
    epochs = settings.total_steps(per_epoch) / per_epoch
    if settings.cache == "off" or (settings.cache == "auto" and not epochs):
        return replace(settings, cache="off"), ""
    reason = _impossible(manifest, prepares=prepares) if epochs else "no steps are made"
    if reason:
        return _without(settings, reason)
    draws = settings.draws or DRAWS
    where = "memory" if settings.cache == "memory" else "disk"
    chosen = replace(settings, cache=where, draws=draws)
    size, free = parts_of(chosen, photos, manifest).size, _free(folder)
    needed = cache_bytes(chosen, photos, manifest)
    what = f"features of {counted(len(photos.training.dataset), 'photo')}"
    takes = f"{what} in {counted(draws, 'draw')} take {format_size(size)}"
    if settings.cache == "auto":
        if photos.task.dense:  # how many crops of masks are enough was not measured
            return _without(settings, "photos with masks get new crops in every epoch")
        if epochs < 2 * draws:
            return _without(
                settings,
                f"keeping {counted(draws, 'crop')} of each photo pays from {2 * draws} epochs on",
            )
        if size > min(MOST, MOST_OF_FREE * free):
            return _without(settings, f"{takes}, and {format_size(free)} of disk are free")
        if room is not None and needed > room:
            return _without(settings, "the budget leaves no room for it")
    _check_room(where, folder, size=size, free=free, needed=needed, room=room)
    return chosen, f"cache  {takes} of {where}; later epochs read them"


def _check_room(
    where: str, folder: Path, *, size: int, free: int, needed: int, room: int | None
) -> None:
    if where == "disk" and size > free:
        raise PocketuneError(
            f"cache='disk' takes {format_size(size)} in {folder}, where {format_size(free)} are "
            "free: make room, give fewer draws, or leave cache out"
        )
    if room is not None and needed > room:
        raise BudgetExceeded(
            f"cache={where!r} takes {format_size(needed)} of memory, of which the budget leaves "
            f"{format_size(max(0, room))}: leave cache out, or give a larger budget"
        )


def _without(settings: TrainSettings, reason: str) -> tuple[TrainSettings, str]:
    """The settings without a cache, which the user must not have asked for."""
    if settings.cache != "auto":
        raise PocketuneError(f"cache={settings.cache!r} has no effect: {reason}; leave it out")
    return replace(settings, cache="off"), f"cache  off: {reason}"


def _impossible(manifest: Manifest, *, prepares: bool) -> str:
    """Why there are no features that could be kept, in words; empty if there are."""
    if manifest.features is None:
        method = manifest.method_name
        return f"no features are frozen, because the kit's method, {method}, trains early layers"
    return "" if prepares else "the engine computes the network as a whole"


def _free(folder: Path) -> int:
    """Free bytes of the disk on which a folder is, or will be."""
    places = (folder, *folder.absolute().parents)
    existing = next(place for place in places if os.path.exists(place))  # noqa: PTH110 - never fails
    return shutil.disk_usage(existing).free
