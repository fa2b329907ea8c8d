"""Accuracy and measured memory over resolution and batch: TinyTL's figures 3 and 5, small.

    python benchmarks/bench_resolution.py [--data FOLDER] [--seeds 3] [--sizes 96 ...]

MobileNetV2 0.35 with published weights is fine-tuned on 12 kinds of flowers by `pocketune compare`,
with every default but the length: the last layer, TinyTL-L+B and everything, at each resolution
with batches of 8, and at 128 px with single images too. The accuracy is that of the last step on
the test photos; the memory is the largest peak of a process that trains the kit.

Finished runs are kept in `--runs`, so that a stopped script continues; `--fresh` discards them. The
script is skipped if the data are missing.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

from data import parse, unpack
from pocketune.comparison import Comparison, Grid, compare
from pretrained import NETWORKS, weights_file
from report import spread, table, write

NAME, NETWORK, PHOTOS = "resolution", "mbv2-w0.35", "flowers"
SIZES, BATCHED = (96, 128, 160, 192, 224), 128
METHODS: dict[str, dict[str, Any]] = {
    "last": {"method": "last"},
    "L+B": {"method": "tinytl"},
    "full": {"method": "full"},
}
EPOCHS = 5


def network(options: argparse.Namespace, size: int, batch: int) -> dict[str, Any]:
    """The network at a resolution, with a name that tells both."""
    made_for = NETWORKS[NETWORK].to_dict(weights_file(options.data, NETWORK))
    return {**made_for, "size": size, "batch": batch, "name": f"{size} {batch}"}


def grid(options: argparse.Namespace, photos: Path) -> Grid:
    """All runs."""
    sizes = [network(options, size, 8) for size in options.sizes]
    return Grid.from_dict(
        {
            "photos": [{"photos": str(photos), "name": PHOTOS}],
            "networks": [*sizes, network(options, BATCHED, 1)],
            "methods": [{"name": name, **method} for name, method in METHODS.items()],
            "settings": {"val_fraction": 0.0, "epochs": EPOCHS},
            "seeds": options.seeds,
        }
    )


def publish(comparison: Comparison, options: argparse.Namespace) -> None:
    found = {(row.model, row.method): row for row in comparison.rows if row.records}

    def cells(size: int, batch: int) -> list[str]:
        rows = [found.get((f"{size} {batch}", method)) for method in METHODS]
        return [
            f"{spread([100 * score for score in row.scores])}, {(row.peak_memory or 0) / 1e6:.0f}"
            if row
            else ""
            for row in rows
        ]

    lines = [[f"{size} px, batch 8", *cells(size, 8)] for size in options.sizes]
    lines.append([f"{BATCHED} px, batch 1", *cells(BATCHED, 1)])
    note = (
        f"{NETWORK}, Adam, every default, {EPOCHS} epochs on 719 photos of 12 flowers. Top-1 in "
        f"percent on 240 test photos after the last step, mean ± standard deviation of "
        f"{options.seeds} seeds (order, crops), and the peak resident memory of the whole process "
        "in MB."
    )
    text = f"{note}\n\n{table(['images', *METHODS], lines)}"
    write(NAME, "Accuracy and memory over resolution and batch", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of finished runs")
    parser.add_argument("--fresh", action="store_true", help="discard finished runs")
    options = parse(parser)
    if options.fresh:
        shutil.rmtree(options.runs / NAME, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        photos = unpack(options.data, PHOTOS, Path(scratch) / PHOTOS)
        comparison = compare(grid(options, photos), options.runs / NAME)
    publish(comparison, options)


if __name__ == "__main__":
    main()
