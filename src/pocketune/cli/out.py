"""Where a run goes when nobody says."""

from __future__ import annotations

from itertools import count
from pathlib import Path

RUNS = Path("runs")


def next_run(photos: str) -> Path:
    """``runs/`` and the photos' name, with a number where there is such a run already."""
    path = Path(photos).resolve()  # ".." too is a folder with a name
    name = (path.name if path.is_dir() else path.stem) or "photos"
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(RUNS / name for name in names if not (RUNS / name).exists())
