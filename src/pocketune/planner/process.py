"""The memory of a training process before it opens a kit, measured in such a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from pocketune.device.train.settings import TrainSettings


COMMAND = 1_200_000
"""Bytes of `pocketune train` that the process below lacks: the command line, and the plan.
It took 1.0 MB."""


def process_bytes(photos: Path, settings: TrainSettings) -> int:
    """Resident bytes of `pocketune train` once it has found the photos, before it opens a kit.

    It is measured in a new process, because this one may have imported PyTorch.

    Args:
        photos: The photos.
        settings: The settings of the run, which divide the photos.

    Raises:
        PocketuneError: The process cannot be started.
    """
    division = [settings.val_fraction, settings.seed, settings.ignore, settings.class_names]
    command = [sys.executable, "-m", "pocketune.planner.process", str(photos), json.dumps(division)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise PocketuneError(f"the memory of a training process cannot be measured: {last[0]}")
    return int(done.stdout) + COMMAND


def _measure(photos: str, division: str) -> int:
    import click  # noqa: F401 - as `pocketune train` has it

    from pocketune.data import MaskOptions, load_splits
    from pocketune.device.memory.baseline import training_baseline

    val_fraction, seed, ignore, class_names = json.loads(division)
    masks = MaskOptions(ignore=ignore, class_names=class_names)
    splits = load_splits(photos, val_fraction=val_fraction, seed=seed, masks=masks)
    measured = training_baseline()
    return measured if len(splits.train) else 0  # the names are in memory until here


if __name__ == "__main__":
    print(_measure(*sys.argv[1:]))
