"""A run within a limit of time: its number of steps, from a short run of the same kit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.data import load_splits
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.planner.probe import run_probe

if TYPE_CHECKING:
    from pocketune.arrays import StrPath
    from pocketune.device.train.settings import TrainSettings
    from pocketune.planner.trial import Probe

SAFETY = 0.9
"""Share of the time that the steps are planned for; a busy machine may take the rest."""
VALIDATION = 0.5
"""Seconds that validation takes for a photo, relative to those of a training step."""
TIMED = 8
"""Steps of the run that shows how long a step takes."""


def time_steps(
    kit: Path, photos: StrPath, settings: TrainSettings, folder: Path
) -> tuple[Probe, int, int]:
    """Time a short run of a kit in a process of its own.

    Args:
        kit: The kit.
        photos: The photos.
        settings: The settings of the run.
        folder: An existing folder for the short run, which is removed.

    Returns:
        The short run, and the numbers of training and validation photos.

    Raises:
        PocketuneError: The kit cannot be trained on the photos with these settings.
    """
    probe = run_probe(kit, photos, settings, folder, steps=TIMED)
    task = Kit.open(kit, verify=False).manifest.task
    splits = load_splits(
        Path(photos), val_fraction=settings.val_fraction, seed=settings.seed, task=task
    )
    return probe, len(splits.train), len(splits.val)


def limited(
    settings: TrainSettings,
    seconds: float,
    probe: Probe,
    *,
    step_images: int,
    training: int,
    validation: int,
) -> TrainSettings:
    """The settings of a run that ends in time, its learning rate decayed to zero.

    A limit shortens a run; it never makes one longer than its settings do.

    Args:
        settings: The settings of the run.
        seconds: Seconds of the whole run, validation included.
        probe: A short run of the same kit.
        step_images: Images in a step.
        training: Number of training photos.
        validation: Number of validation photos.

    Raises:
        PocketuneError: There is no time for one step.
    """
    per_epoch = max(1, training // step_images)
    each = probe.step_seconds * (1 + VALIDATION * validation / max(1, training))
    fitting = int((SAFETY * seconds - probe.fixed_seconds) / max(each, 1e-9))
    if fitting < 1:
        needed = (probe.fixed_seconds + each) / SAFETY
        raise PocketuneError(
            f"{seconds:.0f} s are left for training, and one step takes {needed:.0f} s with "
            "starting and validation; give more time, or a smaller kit"
        )
    if fitting >= settings.total_steps(per_epoch):
        return settings
    return replace(settings, steps=fitting, epochs=None)
