"""Tiny photos, and grids of them, for comparisons in a few seconds."""

from pathlib import Path
from typing import Any

from pocketune.comparison import Grid

from ..device.softmax_engine import write_photos


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
