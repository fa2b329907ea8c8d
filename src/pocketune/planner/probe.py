"""A short run in a process of its own, so that its memory is measured and held to the budget."""

from __future__ import annotations

import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.command import run_command
from pocketune.device.train.record import RunRecord
from pocketune.errors import PocketuneError
from pocketune.files import writing
from pocketune.options import option_fields
from pocketune.planner.trial import Probe

if TYPE_CHECKING:
    from pocketune.arrays import StrPath
    from pocketune.device.train.settings import TrainSettings


def run_probe(
    kit: Path,
    photos: StrPath,
    settings: TrainSettings,
    folder: Path,
    *,
    steps: int,
    seconds: float | None = None,
) -> Probe:
    """Train a kit for a few steps with ``pocketune train`` and read the record of the run.

    The run is a whole one: its learning rate decays to zero within its steps. Its folder is
    removed.

    Args:
        kit: The kit.
        photos: The photos.
        settings: The settings of the run; its budget holds.
        folder: A folder for the run.
        steps: Number of steps.
        seconds: Stop the process after this time; by default never.

    Raises:
        PocketuneError: The run failed or took too long, and why.
    """
    short = replace(settings, steps=steps, epochs=None, patience=None)
    with writing(folder), tempfile.TemporaryDirectory(dir=folder) as scratch:
        out, began = Path(scratch) / "run", time.monotonic()
        arguments = ["train", photos, "--kit", kit, "--out", out, *command_options(short)]
        try:
            code, errors = run_command(*arguments, keep_errors=True, quiet=True, seconds=seconds)
        except subprocess.TimeoutExpired:
            raise PocketuneError(f"{steps} steps took longer than {seconds:.0f} s") from None
        if code:
            raise PocketuneError(_reason(errors, code))
        record = RunRecord.read(out)
        return Probe(
            steps=record.steps,
            score=record.best,
            peak=record.peak_memory,
            step_seconds=record.step_seconds or 0.0,
            seconds=time.monotonic() - began,
        )


def command_options(settings: TrainSettings) -> list[str]:
    """The options of ``pocketune train`` that give these settings."""
    options: list[str] = []
    kind: type = type(settings)
    for each in option_fields(kind):
        value = getattr(settings, each.name)
        if value is not None and value != each.default:
            options += [f"--{each.name.replace('_', '-')}", str(value)]
    return options


def _reason(errors: str, code: int) -> str:
    """The last line of a command's standard error, without its first word."""
    last = errors.strip().splitlines()[-1:]
    return last[0].removeprefix("error: ") if last else f"the run ended with code {code}"
