"""Tiny photos, grids of them, and what makes their runs, for comparisons in a few seconds."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pocketune.comparison import Grid
from pocketune.comparison.build import build
from pocketune.comparison.names import _check
from pocketune.comparison.worker import run_cell

from ..device.softmax_engine import write_photos

NETWORK = {"network": "mobilenet_v2", "width": 0.1, "size": 32, "batch": 4}


def divided(folder: Path) -> Path:
    """Photos with a test part: 24 to train on, 6 to test."""
    write_photos(folder / "train", each=8)
    write_photos(folder / "test", each=2)
    return folder


def grid(folder: Path, **changes: Any) -> Grid:
    """One bundled kit, one step a run."""
    values = {"photos": [str(folder)], "kits": ["last"], **changes}
    values["settings"] = {"val_fraction": 0.2, **changes.get("settings", {"steps": 1})}
    return Grid.from_dict(values)


def quiet(_: str) -> None:
    pass


def do_here(module: str, job: Any, **_: Any) -> None:
    """What `run_job` does, in this process: starting one takes longer than a run of a tiny kit."""
    read = type(job)(**json.loads(json.dumps(asdict(job))))
    {"build": build, "names": _check, "worker": run_cell}[module.rpartition(".")[2]](read)


def pocketune(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pocketune", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
