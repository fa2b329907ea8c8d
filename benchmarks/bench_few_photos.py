"""Few photos: a fifth of them tells which step is best, or the classifier is computed from all.

    python benchmarks/bench_few_photos.py [--data FOLDER] [--draws 2]

The first way is that of larger sets, the second one the default for fewer than 125 photos. Each
draw has other photos to train on; the test photos are the same. All are `pocketune compare` and its
processes. Finished runs are kept in `--runs`, so that a stopped script continues;
`--fresh` discards them. The script is skipped if the data are missing.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from statistics import fmean

from bench_bundled import few, seconds
from data import parse
from pocketune.comparison import Grid, compare
from pocketune.comparison.row import Row
from pretrained import BATCH, NETWORKS, weights_file
from report import spread, table, write

NAME = "few_photos"
SETS = (
    *(("flower_photos", 20), ("flower_photos", 40)),
    *(("flowers", 10), ("flowers", 20)),
    *(("cifar10", 10), ("cifar10", 20)),
)
"""Sets of photos, and how many of each class there are to train on."""
WAYS = {
    "a fifth validates": {"val_fraction": 0.2},
    "computed from all": {"val_fraction": 0.0, "epochs": 0},
}
NETWORK = "mbv2-w0.35"


def grid(options: argparse.Namespace, scratch: Path) -> dict[str, object]:
    """The runs of each way."""
    photos = [
        {"name": label(name, count, draw), "photos": str(scratch / label(name, count, draw))}
        for name, count in SETS
        for draw in range(options.draws)
    ]
    network = NETWORKS[NETWORK].to_dict(weights_file(options.data, NETWORK))
    return {
        "photos": photos,
        "kits": ["last", "blocks"],
        "networks": [{**network, "name": NETWORK, "batch": BATCH}],
        "methods": ["blocks", "full"],
    }


def label(name: str, count: int, draw: int) -> str:
    """The name of a set of photos."""
    return f"{name}, {count} a class, draw {draw + 1}"


def line(name: str, count: int, model: tuple[str, str], found: dict[str, list[Row]]) -> list[str]:
    """What a network gives on a set in each way."""
    cells = []
    for rows in found.values():
        mine = [row for row in rows if (row.model, row.method) == model]
        mine = [row for row in mine if row.photos.startswith(f"{name}, {count} a class,")]
        cells.append(spread([100 * score for row in mine for score in row.scores]))
        cells.append(f"{fmean(map(seconds, mine)):.0f}")
    trained = model[0] if model[0] in ("last", "blocks") else ", ".join(model)
    return [f"{name}, {count} a class", trained, *cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of finished runs")
    parser.add_argument("--fresh", action="store_true", help="discard finished runs")
    options = parse(parser)
    found: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, count in SETS:
            for draw in range(options.draws):
                few(options.data, name, count, Path(folder) / label(name, count, draw), draw)
        for way, settings in WAYS.items():
            out = options.runs / f"{NAME}, {way}"
            if options.fresh:
                shutil.rmtree(out, ignore_errors=True)
            runs = grid(options, Path(folder))
            found[way] = list(compare(Grid.from_dict({**runs, "settings": settings}), out).rows)
    models = dict.fromkeys((row.model, row.method) for rows in found.values() for row in rows)
    lines = [line(name, count, model, found) for name, count in SETS for model in models]
    header = ["photos", "kit or network", *(each for way in WAYS for each in (way, "seconds"))]
    note = (
        "Top-1 in percent of the result on the test photos, mean ± standard deviation of "
        f"{options.draws} draws of the photos to train on, one run each; seconds of a training, "
        f"mean. `last` and `blocks` are the bundled kits; {NETWORK} is a kit of 128 px. Rates and "
        "lengths are the defaults."
    )
    write(NAME, "Few photos", f"{note}\n\n{table(header, lines)}")


if __name__ == "__main__":
    main()
