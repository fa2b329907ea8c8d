"""How well `predict --unknown` tells photos of none of the classes.

    python benchmarks/bench_unknown.py [--data FOLDER] [--network mbv2-w0.35]
        [--photos flowers ...] [--methods last ...]

Some classes of a set are held out in turn, each class once. A run on the others then predicts the
test photos of its own classes, those of the held-out ones (near), and photos of something else
(far). The distance to the classes is compared with the baseline of Hendrycks and Gimpel (2017,
arXiv:1610.02136), the probability of the likeliest class. AUROC is the share of pairs of a known
and an unknown photo in which the unknown one is further away, or its likeliest class less probable.
The script is skipped if the data are missing.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import pocketune
from data import parse, unpack
from pocketune.arrays import FloatArray
from pocketune.device import JudgedPrediction, Silent
from pocketune.methods import create_method
from pocketune.tasks.classification import ClassPrediction
from pretrained import NETWORKS, weights_file
from report import spread, table, write

SETS = {"flowers": (4, "imagenette"), "flower_photos": (1, "imagenette"), "cifar10": (2, "flowers")}
"""Classes that are held out at once, and the photos of something else."""

METHODS = {"last": 0, "blocks": 3}
"""What is trained, and for how many epochs; with none, the classifier is computed from the data."""


@dataclass(frozen=True)
class Judged:
    """Photos as a run judges them: distances (N,) and probabilities (N,) of the likeliest class."""

    distances: FloatArray
    confidences: FloatArray

    @classmethod
    def of(cls, run: Path, photos: Sequence[Path]) -> Judged:
        """Judge photos; those that cannot be read are left out."""
        found = [
            (each.distance, each.prediction.guesses[0].probability)
            for each in pocketune.predict(run, photos, unknown=True)
            if isinstance(each, JudgedPrediction) and isinstance(each.prediction, ClassPrediction)
        ]
        return cls(*np.array(found).T)


def folds(photos: Path, count: int) -> Iterator[list[str]]:
    """Names of so many classes at a time, each class once."""
    names = sorted(path.name for path in (photos / "train").iterdir())
    turns = len(names) // count
    yield from (names[turn::turns] for turn in range(turns))


def without(photos: Path, names: Sequence[str], out: Path) -> Path:
    """The training photos of the other classes."""
    shutil.copytree(photos / "train", out, ignore=shutil.ignore_patterns(*names))
    return out


def auroc(known: FloatArray, unknown: FloatArray) -> float:
    """Percent of the pairs in which the unknown photo has the larger value; ties count half."""
    differences = unknown[:, None] - known
    return 100 * float((differences > 0).mean() + (differences == 0).mean() / 2)


def figures(known: Judged, unknown: Judged) -> list[float]:
    """Percents: AUROC of both, and how many unknown photos each tells at one rate of rejection."""
    rejected = float((known.distances > 1).mean())
    limit = np.quantile(known.confidences, rejected)
    return [
        auroc(known.distances, unknown.distances),
        auroc(-known.confidences, -unknown.confidences),
        100 * rejected,
        100 * float((unknown.distances > 1).mean()),
        100 * float((unknown.confidences < limit).mean()),
    ]


def rows(
    name: str, photos: Path, other: Path, kit: Path, epochs: int, scratch: Path
) -> list[list[str]]:
    """A row for the classes that are held out, and one for photos of something else."""
    near, far = [], []
    for number, names in enumerate(folds(photos, SETS[name][0])):
        folder, run = scratch / f"photos{number}", scratch / f"run{number}"
        trained = without(photos, names, folder)
        pocketune.train(kit, trained, run, epochs=epochs, progress=Silent())
        tests = sorted((photos / "test").iterdir())
        known = Judged.of(run, [path for path in tests if path.name not in names])
        near.append(figures(known, Judged.of(run, [p for p in tests if p.name in names])))
        far.append(figures(known, Judged.of(run, [other])))
        print(name, names, near[-1], far[-1], flush=True)
    held_out = f"the held-out {SETS[name][0]}" if SETS[name][0] > 1 else "the held-out class"
    return [
        [what, *(spread(column) for column in zip(*found, strict=True))]
        for what, found in ((held_out, near), (SETS[name][1], far))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=NETWORKS, default="mbv2-w0.35")
    parser.add_argument("--photos", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parse(parser)
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        with zipfile.ZipFile(options.data / "imagenet" / "imagenette10_160.zip") as archive:
            archive.extractall(scratch / "imagenette")
        needed = {*options.photos, *(SETS[name][1] for name in options.photos)} & SETS.keys()
        sets = {name: unpack(options.data, name, scratch / name) for name in needed}
        sets["imagenette"] = scratch / "imagenette"
        for method in options.methods:
            for name in options.photos:
                kit = scratch / f"{method} {name}"
                weights = weights_file(options.data, options.network)
                NETWORKS[options.network].kit(kit, create_method(method), weights, sets[name])
                other = sets[SETS[name][1]] / "test"
                with tempfile.TemporaryDirectory(dir=scratch) as runs:
                    found = rows(name, sets[name], other, kit, METHODS[method], Path(runs))
                lines += [[method, name, *row] for row in found]
    note = (
        f"{options.network}, {NETWORKS[options.network].size} px. Each class of a set is held out "
        "once, with others as the table says: mean ± standard deviation over these runs, in "
        "percent. `last` is the classifier that is computed from the photos, `blocks` is trained "
        f"for {METHODS['blocks']} epochs. Rejected: test photos of the known classes beyond the "
        "limit that the run has chosen for 5 %. Told: unknown photos beyond it, and those that the "
        "probability tells where it rejects as many known ones."
    )
    header = [
        *("method", "known", "unknown", "AUROC, distance", "AUROC, probability"),
        *("rejected", "told by distance", "told by probability"),
    ]
    write("unknown", "Photos of none of the classes", f"{note}\n\n{table(header, lines)}")


if __name__ == "__main__":
    main()
