"""Runs on the machines of a Ray cluster, a series at a time on each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pocketune.comparison.cell import Cell
from pocketune.comparison.run_series import run_series
from pocketune.comparison.series import Series
from pocketune.errors import PocketuneError


def run_on_ray(series: Sequence[Series], out: Path, *, keep_runs: bool) -> Iterator[Cell]:
    """Make all series; yields the cells of each when it has ended.

    A task takes all cores of a machine, so that runs do not disturb each other's time and memory.

    Raises:
        PocketuneError: Ray is not installed, or its machines have different numbers of cores.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        raise PocketuneError(
            "distributing runs needs ray, which is not installed; install it with: pip install ray"
        ) from error
    if not ray.is_initialized():
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is ever sent
        ray.init(log_to_driver=False, include_dashboard=False)
    alive = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    sizes = sorted({int(count) for count in alive if count}) or [1]
    if len(sizes) > 1:
        raise PocketuneError(
            f"machines of Ray have {sizes[0]} cores and others {sizes[-1]}, and a run takes all of "
            "them, so that times do not compare; use machines with the same number"
        )
    run = ray.remote(num_cpus=sizes[0])(_run_all)
    waiting = [run.remote(each, str(out), keep_runs) for each in series]
    while waiting:
        ended, waiting = ray.wait(waiting)
        for each in ended:
            yield from ray.get(each)


def _run_all(series: Series, out: str, keep_runs: bool) -> list[Cell]:
    """The cells of a series."""
    return list(run_series(series, Path(out), keep_runs=keep_runs))
