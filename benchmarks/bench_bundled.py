"""What the bundled kits give with every default, and networks that end after some of their blocks.

    python benchmarks/bench_bundled.py [--data FOLDER] [--parts kits masks blocks] [--seeds 2]

`kits` trains the bundled kits on few and on many photos, with nothing set. `masks` trains the one
for masks on CamVid, with and without weights of the classes. `blocks` computes the
classifier of networks pretrained on ImageNet from the features after some of their blocks
(`--first-blocks`), without a step. All are `pocketune compare` and its processes. Finished runs
are kept in `--runs`, so that a stopped script continues; `--fresh` discards them. The script is
skipped if the data are missing.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from data import parse, unpack
from pocketune.comparison import Comparison, Grid, compare
from pocketune.comparison.row import Row
from pretrained import BATCH, NETWORKS, weights_file
from report import spread, table, write

SETS = {
    "12 flowers, 10 a class": ("flowers", 10),
    "12 flowers, all": ("flowers", None),
    "flower_photos, 20 a class": ("flower_photos", 20),
    "flower_photos, all": ("flower_photos", None),
    "CIFAR-10, 20 a class": ("cifar10", 20),
    "CIFAR-10, 2,000": ("cifar10", None),
}
"""Each set of photos, and how many of each class there are to train on."""
MASKS = {"CamVid, 60": 60, "CamVid, 240": 240}
"""How many photos with masks there are to train on."""
BLOCKS = {
    "mbv2-w0.35": (7, 10, 13, 14, 15, 16, None),
    "proxyless-w0.3": (8, 12, 15, 17, 18, 19, None),
    "mcunet-5fps": (6, 8, 10, 11, 12, 13, None),
    "mbv2-w1.0": (7, 10, 13, 14, 15, 16, None),
}
"""How many blocks are kept; None for the whole network."""


def few(data: Path, name: str, per_class: int | None, folder: Path, draw: int = 0) -> Path:
    """A set of photos with at most so many of each class to train on, by their names.

    They are the first ones; in another draw, those behind those of the draws before.
    """
    unpack(data, name, folder)
    for place in (folder / "train").iterdir():
        photos = sorted(place.iterdir())
        kept = photos[draw * per_class : (draw + 1) * per_class] if per_class else photos
        for photo in set(photos) - set(kept):
            photo.unlink()
    return folder


def sets(options: argparse.Namespace, scratch: Path, *, small: bool) -> list[dict[str, Any]]:
    """The sets of photos as a grid has them: all, or those with few photos."""
    return [
        {"name": label, "photos": str(few(options.data, name, per_class, scratch / label))}
        for label, (name, per_class) in SETS.items()
        if per_class or not small
    ]


def kits(options: argparse.Namespace, scratch: Path) -> None:
    """The bundled kits with every default."""
    photos = sets(options, scratch, small=False)
    grid = {"photos": photos, "kits": ["last", "blocks"], "seeds": options.seeds}
    comparison = compare(Grid.from_dict(grid), options.runs / "bundled")
    lines = table(["photos", "kit", "top-1", "peak MB", "seconds"], results(comparison))
    note = (
        "`pocketune train PHOTOS --kit KIT` with nothing else set. Top-1 in percent of the result "
        f"on the test photos, mean ± standard deviation of {options.seeds} seeds; the largest peak "
        "of a process; seconds of the whole training, mean."
    )
    write("bundled", "The bundled kits", f"{note}\n\n{lines}")


def masks(options: argparse.Namespace, scratch: Path) -> None:
    """The bundled kit for masks, where void does not count, and without weights of the classes."""
    photos = [
        {"name": label, "photos": str(camvid(options.data, count, scratch / label))}
        for label, count in MASKS.items()
    ]
    chosen = [
        {"kit": "masks", "name": weights, "settings": {"class_weights": weights}}
        for weights in ("balanced", "none")
    ]
    grid = {"photos": photos, "kits": chosen, "seeds": options.seeds}
    grid["settings"] = {"ignore": "void"}
    comparison = compare(Grid.from_dict(grid), options.runs / "bundled_masks")
    lines = table(["photos", "class weights", "mIoU", "peak MB", "seconds"], results(comparison))
    note = (
        "`pocketune train PHOTOS --ignore void`; balanced weights are the default. Mean IoU in "
        "percent on the 233 test photos, each seen as a whole, mean ± standard deviation of "
        f"{options.seeds} seeds; the largest peak of a process; seconds of the training, mean."
    )
    write("bundled_masks", "The bundled kit for masks", f"{note}\n\n{lines}")


def camvid(data: Path, count: int, folder: Path) -> Path:
    """CamVid with so many training photos, evenly spread over its sequences."""
    with zipfile.ZipFile(data / "segmentation" / "camvid_12cls_180x240.zip") as archive:
        archive.extractall(folder)
    (folder / "index.csv").unlink()
    shutil.rmtree(folder / "val")
    every = sorted((folder / "train" / "images").iterdir())
    kept = {every[number * len(every) // count] for number in range(count)}
    for photo in set(every) - kept:
        photo.unlink()
        (folder / "train" / "masks" / f"{photo.stem}.png").unlink()
    return folder


def results(comparison: Comparison) -> list[list[str]]:
    """Photos, kit, scores in percent, peak and seconds of each row."""
    return [
        [
            row.photos,
            row.model,
            spread([100 * score for score in row.scores]),
            f"{(row.peak_memory or 0) / 1e6:.0f}",
            f"{seconds(row):.0f}",
        ]
        for row in comparison.rows
    ]


def seconds(row: Row) -> float:
    """Mean time of the trainings of a row."""
    return sum(record.seconds for record in row.records) / max(len(row.records), 1)


def blocks(options: argparse.Namespace, scratch: Path) -> None:
    """The classifier computed from the features after some of the blocks."""
    photos = sets(options, scratch, small=True)
    networks = [
        {
            **NETWORKS[name].to_dict(weights_file(options.data, name)),
            "name": label(name, count),
            "batch": BATCH,
            "first_blocks": count,
        }
        for name, counts in BLOCKS.items()
        for count in counts
    ]
    grid = {
        "photos": photos,
        "networks": networks,
        "methods": ["last"],
        "settings": {"epochs": 0, "val_fraction": 0.0},
    }
    comparison = compare(Grid.from_dict(grid), options.runs / "first_blocks")
    names = [photo["name"] for photo in photos]
    rows = [line(comparison, label(n, c), names) for n, counts in BLOCKS.items() for c in counts]
    lines = table(["network", "peak MB", *names], rows)
    note = (
        "The classifier is computed in closed form from the features after so many blocks, or "
        "after the feature fusion of the whole network; no step is made. Top-1 in percent on the "
        "test photos, one run; the largest peak of a process."
    )
    write("first_blocks", "Networks that end early", f"{note}\n\n{lines}")


def label(name: str, count: int | None) -> str:
    """The name of a network in the table."""
    return f"{name}, whole" if count is None else f"{name}, first {count}"


def line(comparison: Comparison, name: str, photos: list[str]) -> list[str]:
    """A network's row."""
    rows = {row.photos: row for row in comparison.rows if row.model == name}
    peak = max(row.peak_memory or 0 for row in rows.values())
    return [name, f"{peak / 1e6:.0f}", *(f"{100 * rows[each].scores[0]:.1f}" for each in photos)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of finished runs")
    parser.add_argument("--fresh", action="store_true", help="discard finished runs")
    options = parse(parser)
    if options.fresh:
        for name in ("bundled", "bundled_masks", "first_blocks"):
            shutil.rmtree(options.runs / name, ignore_errors=True)
    for part in options.parts:
        with tempfile.TemporaryDirectory() as scratch:
            PARTS[part](options, Path(scratch))


PARTS = {"kits": kits, "masks": masks, "blocks": blocks}

if __name__ == "__main__":
    main()
