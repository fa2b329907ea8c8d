"""Kept features: what they take in memory, and what they cost in accuracy.

    python benchmarks/bench_cache.py [--parts memory accuracy] [--kits FOLDER]

Memory: the peak of whole runs with and without kept features, on few photos and on four times as
many. Accuracy: trials as in bench_defaults.py, whose features are encoded as a run encodes them,
over draws and bits; finished ones are in the .json, so that a stopped script continues. How fast
later epochs are is in bench_methods.py.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_step import adapted, build_kit
from data import DEFAULT, unpack, write_photos
from fresh import peak
from report import keep, kept, spread, table, write

if TYPE_CHECKING:
    from trials import Views

NETWORK, SIZE, BATCH, CLASSES = "mobilenet_v2", 224, 8, 10
CAMERA = 320, 240
METHODS = {"mobiletl": "MobileTL, top 3 blocks", "last": "last layer"}
FEW, MANY = 48, 192
"""Photos of the runs whose memory is measured."""
SEEDS = 4
WAYS = ((None, 32), (1, 8), (4, 8), (8, 8), (4, 16), (4, 32))
"""Draws and bits; the first is what a run without a cache has."""
PARTS = ("memory", "accuracy")

RUN = """
import sys
from pocketune.device.train import train
from pocketune.device.train.progress import Silent

kit, photos, out, cache = sys.argv[1:]
result = train(kit, photos, out=out, epochs=3, draws=1, cache=cache, progress=Silent())
print(result.peak_memory / 1e6)
"""


# Memory.


def memory(kits: dict[str, Path], scratch: Path) -> str:
    """A row for each method and number of photos: the peaks with and without kept features."""
    rows = []
    for count in (FEW, MANY):
        photos = write_photos(scratch / f"{count}", CLASSES, count, CAMERA, grain=8)
        for method, kit in kits.items():
            peaks = []
            for cache in ("off", "disk", "memory"):
                out = scratch / f"{method} {count} {cache}"
                peaks.append(peak(["-c", RUN, *map(str, (kit, photos, out)), cache]))
            rows.append([METHODS[method], count, *(f"{megabytes:.1f}" for megabytes in peaks)])
    header = ["trained", "photos", "off", "disk", "memory"]
    return (
        "Peak resident MB of a whole run of three epochs with one draw, in a fresh process.\n\n"
        + table(header, rows)
    )


# Accuracy.


def accuracy(data: Path, scratch: Path, names: list[str]) -> str:
    """A row for each set, method and way to keep features; finished ones are in the .json."""
    from bench_accuracy import METHODS as LABELED
    from pocketune.methods import compose_method
    from pretrained import NETWORKS, weights_file
    from trials import Views

    results = kept("cache_accuracy")
    for name in names:
        photos = unpack(data, name, scratch / name)
        views = Views(photos, None)
        for label in ("last", "mobiletl (top 3)"):
            kit = scratch / "kits" / f"{name} {label}"
            weights = weights_file(data, "mbv2-w0.35")
            NETWORKS["mbv2-w0.35"].kit(kit, compose_method(*LABELED[label]), weights, photos)
            cells = results.setdefault(f"{name}: {label}", {})
            for draws, bits in WAYS:
                key = f"{draws or 'new'} x {bits}"
                if key not in cells:
                    cells[key] = measured(kit, views, draws, bits)
                    print(name, label, key, cells[key], flush=True)
                    keep("cache_accuracy", results)
    return shown(results)


def measured(kit: Path, views: Views, draws: int | None, bits: int) -> dict[str, Any]:
    """Top-1 in percent of each seed, and the error of the features."""
    from pocketune.device.train import TrainSettings
    from trials import Trials

    views.draws = draws
    trials = Trials(kit, views, bits)
    found = [trials.accuracy(TrainSettings(seed=seed)) for seed in range(SEEDS)]
    return {"top1": found, "error": trials.error()}


def shown(results: dict[str, dict[str, Any]]) -> str:
    """The table of all finished cells."""
    rows = []
    for name, cells in results.items():
        plain = cells["new x 32"]["top1"]
        for key, cell in cells.items():
            draws, bits = key.split(" x ")
            how = "new in every epoch" if draws == "new" else draws
            pairs = [own - other for own, other in zip(cell["top1"], plain, strict=True)]
            error = f"{cell['error']:.3%}"
            rows.append([*name.split(": "), how, bits, error, spread(cell["top1"]), spread(pairs)])
    header = ["photos", "trained", "draws", "bits", "error of features", "top-1", "difference"]
    return (
        f"Top-1 in percent on the test photos after the last step, over {SEEDS} seeds; MobileNetV2 "
        "0.35 at 128 px, batch 8, default settings. The difference is to new crops in every epoch "
        "and features in 32 bits, seed by seed. The error is the root mean square of what rounding "
        "changes, relative to that of the features.\n\n" + table(header, rows)
    )


def built(kits: Path | None, scratch: Path) -> dict[str, Path]:
    """The kits of the methods; those of a folder are taken as they are."""
    found = {method: (kits or scratch / "kits") / f"1.0-{method}" for method in METHODS}
    for method, path in found.items():
        if not path.exists():
            build_kit(adapted(NETWORK, method, 1.0), method, BATCH, SIZE, path)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--photos", nargs="+", default=["flowers"], help="of the accuracy")
    parser.add_argument("--data", type=Path, default=DEFAULT, help="folder of images and weights")
    parser.add_argument("--kits", type=Path, help="folder of kits 1.0-mobiletl, 1.0-last, ...")
    options = parser.parse_args()
    parts: dict[str, Callable[[Path], str]] = {
        "memory": lambda scratch: memory(built(options.kits, scratch), scratch),
        "accuracy": lambda scratch: accuracy(options.data, scratch, options.photos),
    }
    for part in options.parts:
        if part == "accuracy" and not options.data.is_dir():
            print(
                f"skipped: no images and weights at {options.data}; name their folder with --data"
            )
            continue
        with tempfile.TemporaryDirectory() as scratch:
            write(f"cache_{part}", f"Kept features: {part}", parts[part](Path(scratch)))


if __name__ == "__main__":
    main()
