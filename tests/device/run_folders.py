"""Looking into run folders."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from pocketune.device.train.checkpoint import Checkpoint
from pocketune.kit.names import BEST, LAST, METRICS


def lines(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, all or those of a kind."""
    read = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    return [line for line in read if kind in (None, line["kind"])]


def assert_same_end(first: Path, second: Path) -> None:
    """Two runs ended with the same bits, and told the same."""
    one, other = (Checkpoint.load(folder / LAST) for folder in (first, second))
    for group in ("parameters", "statistics", "optimizer"):
        mine, theirs = getattr(one, group), getattr(other, group)
        assert mine.keys() == theirs.keys()
        for name in mine:
            np.testing.assert_array_equal(mine[name], theirs[name])
    assert (first / BEST).read_bytes() == (second / BEST).read_bytes()
    for checkpoint in (one, other):
        checkpoint.counters.metrics_bytes = 0  # the lines tell speeds, of any length
    assert one.counters == other.counters
    assert [_repeatable(line) for line in lines(first)] == [
        _repeatable(line) for line in lines(second)
    ]


def _repeatable(line: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in line.items() if k not in ("images_per_second", "memory")}
