"""Sets of photos whose classes have very different numbers of photos, with and without a balance.

    python benchmarks/bench_uneven.py [--data FOLDER] [--sets "flowers 1:30" ...]
        [--methods last ...] [--balances 0 0.5 1] [--scratch FOLDER]

Numbers of photos fall geometrically from the first class to the last. Each set is measured twice,
the second time with the classes in reverse. The test photos are as many of each class, so that
their accuracy is the mean recall. Results in the .json are kept, so that a stopped run continues.
The script is skipped if the data are missing.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench_accuracy import METHODS
from data import parse, unpack
from pocketune.device.train import TrainSettings
from pocketune.methods import compose_method
from pretrained import kept_kit
from report import keep, kept, table, write
from trials import Trials, Views

NAME, NETWORK = "uneven", "mbv2-w0.35"
SETS = {
    "flower_photos 1:100": ("flower_photos", 400, 5, 100),
    "flower_photos 1:10": ("flower_photos", 400, 5, 10),
    "flowers 1:30": ("flowers", 60, 12, 30),
}
"""Photos, those of the largest class, classes, and how many times fewer the smallest has."""
BALANCES = (0.0, 0.5, 1.0)


def counts_of(most: int, classes: int, ratio: int) -> list[int]:
    """Photos of each class, from most to fewest."""
    return [round(most * ratio ** (-k / (classes - 1))) for k in range(classes)]


class Bench:
    """Trials on uneven sets."""

    def __init__(self, data: Path, scratch: Path) -> None:
        self._data, self._scratch = data, scratch

    def fill(self, cell: dict[str, Any], balances: list[float]) -> None:
        """Measure what is missing of a cell: recalls before the first step, and of each balance."""
        kit, photos = self._kit(cell["photos"], cell["method"]), self._folder(cell["photos"])
        trials: Trials | None = None
        for balance in balances:
            key = f"{balance:g}"
            if key in cell["recalls"]:
                continue
            trials = trials or Trials(kit, Views(photos, cell["counts"]))
            cell["recalls"].setdefault("start", trials.recalls(None))
            cell["recalls"][key] = trials.recalls(TrainSettings(balance=balance))

    def _folder(self, name: str) -> Path:
        folder = self._scratch / name
        if not folder.exists():
            unpack(self._data, name, folder)
        return folder

    def _kit(self, photos: str, method: str) -> Path:
        kit = self._scratch / "kits" / f"{photos} {method}"
        chosen = compose_method(*METHODS[method])
        return kept_kit(kit, chosen, self._data, NETWORK, self._folder(photos))


def figures(cell: dict[str, Any], way: str) -> tuple[float, float, float]:
    """Mean recall of all classes, of the rarer half, and accuracy at the set's own frequencies."""
    recalls, counts = np.array(cell["recalls"][way]), np.array(cell["counts"])
    rare = np.argsort(counts)[: len(counts) // 2]
    return recalls.mean(), recalls[rare].mean(), recalls @ counts / counts.sum()


def publish(results: dict[str, dict[str, Any]]) -> None:
    """Write the finished cells, each a mean over the two orders of the classes."""
    groups: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for cell in results.values():
        groups.setdefault((cell["photos"], cell["ratio"], cell["method"]), []).append(cell)
    rows = []
    for (photos, ratio, method), cells in groups.items():
        for way in cells[0]["recalls"]:
            if all(way in cell["recalls"] for cell in cells):
                mean = np.mean([figures(cell, way) for cell in cells], axis=0)
                shown = f"balance {way}" if way != "start" else way
                rows.append([photos, f"1:{ratio}", method, shown, *(f"{v:.1f}" for v in mean)])
    header = ["photos", "imbalance", "method", "trained", "mean recall", "of the rarer half"]
    note = (
        f"{NETWORK} at 128 px, batch 8, default settings, the last step. Percent on the test "
        "photos, which are as many of each class: mean recall, which is their accuracy, that of "
        "the rarer half of the classes, and the accuracy if test photos had the frequencies of the "
        "training photos. Means of two orders of the classes."
    )
    keep(NAME, results)
    write(
        NAME, "Classes of uneven size", f"{note}\n\n{table([*header, 'at own frequencies'], rows)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["last", "blocks (top 3)"])
    parser.add_argument("--balances", nargs="+", type=float, default=list(BALANCES))
    parser.add_argument("--scratch", type=Path, help="keep photos and kits in this folder")
    options = parse(parser)
    results = kept(NAME)
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(options.data, options.scratch or Path(temporary))
        for name, method, reverse in product(options.sets, options.methods, (False, True)):
            photos, most, classes, ratio = SETS[name]
            counts = counts_of(most, classes, ratio)
            blank = {
                "photos": photos,
                "ratio": ratio,
                "method": method,
                "counts": counts[::-1] if reverse else counts,
                "recalls": {},
            }
            cell = results.setdefault(f"{name}: {method}{', reversed' * reverse}", blank)
            bench.fill(cell, options.balances)
            publish(results)


if __name__ == "__main__":
    main()
