"""Accuracy of the methods on real photos, with one short recipe and rates chosen for each set.

    python benchmarks/bench_accuracy.py [--data FOLDER] [--network mbv2-w0.35] [--seeds 4]
        [--photos flowers ...] [--methods last mobiletl ...]

A network pretrained on ImageNet is fine-tuned by `pocketune compare`: a kit is built from the
published weights, with 8-bit frozen layers where the method asks for them, the classifier is
computed from the photos, and everything is trained with Adam and one cosine to zero. Each method
has, for each set, the learning rate from 1e-4 to 1e-2 and then the rate of the classifier that do
best on a fifth of the set's own training photos, held out for this alone: from the middle, in the
direction that improves. The accuracy is that of the last step, on the test photos; the memory is
the largest peak of a process that trains the kit on the last set. Finished runs are kept in
`--runs`, so that a stopped script continues, and the results of other methods in the .json;
`--fresh` discards both. The script is skipped if the data are missing.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

from data import parse, unpack
from pocketune.comparison import Comparison, Grid, compare
from pretrained import BATCH, NETWORKS, weights_file
from report import keep, kept, spread, table, write

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "last": ("last", {}),
    "bias": ("bias", {}),
    "norm": ("norm", {}),
    "blocks (top 3)": ("blocks", {"blocks": 3}),
    "mobiletl (top 3)": ("mobiletl", {"blocks": 3}),
    "tinytl L": ("tinytl", {"bias": False}),
    "tinytl L+B": ("tinytl", {}),
    "repnet": ("repnet", {}),
    "blocks + gradfilter": (
        "blocks+gradfilter",
        {"blocks": 3, "patch": 2, "layers": "trained"},
    ),
    "full": ("full", {}),
}
EPOCHS = {"flowers": 5, "flower_photos": 2, "cifar10": 2}


def grid(options: argparse.Namespace, folder: Path) -> Grid:
    """All runs, on photos that are unpacked below a folder."""
    network = NETWORKS[options.network].to_dict(weights_file(options.data, options.network))
    chosen = [(label, *METHODS[label]) for label in options.methods]
    return Grid.from_dict(
        {
            "photos": [
                {
                    "photos": str(unpack(options.data, name, folder / name)),
                    "name": name,
                    "settings": {"epochs": EPOCHS[name]},
                }
                for name in options.photos
            ],
            "networks": [{"name": options.network, "batch": BATCH, **network}],
            "methods": [
                {"name": label, "method": method, "options": values}
                for label, method, values in chosen
            ],
            "settings": {"val_fraction": 0.0},
            "seeds": options.seeds,
            "rates": RATES,
            "head_rates": RATES,
        }
    )


def add_results(results: dict[str, dict[str, Any]], comparison: Comparison) -> None:
    """By method: the peak in MB, and by set of photos the rates and the scores in percent."""
    for row in comparison.rows:
        if row.records:
            result = results.setdefault(row.method, {"top1": {}})
            settings = row.records[0].settings
            result["peak"] = (row.peak_memory or 0) / 1e6
            result.setdefault("rates", {})[row.photos] = [settings["lr"], settings["head_lr"]]
            result["top1"][row.photos] = [100 * score for score in row.scores]


def publish(name: str, results: dict[str, dict[str, Any]], seeds: int) -> None:
    made_for = NETWORKS[name]
    sets = [photos for photos in EPOCHS if any(photos in r["top1"] for r in results.values())]
    rows = []
    for method in (method for method in METHODS if method in results):
        result = results[method]
        row = [method, f"{result['peak']:.0f}"]
        for photos in sets:
            rates = result.get("rates", {}).get(photos)
            row += [spread(result["top1"].get(photos)), " / ".join(f"{r:g}" for r in rates or [])]
        rows.append(row)
    older = (
        "; figures without rates are older: a classifier drawn at random, one rate for all sets"
        if any("rates" not in each for each in results.values())
        else ""
    )
    note = (
        f"{name} ({made_for.network}, {made_for.size} px), batch {BATCH}, Adam, cosine to 0, "
        f"epochs {EPOCHS}. Peak resident memory of a whole process that trains the kit. Top-1 in "
        f"percent on the test photos after the last step, mean ± standard deviation of {seeds} "
        "seeds (order, crops). Beside it, the rates of network and classifier, chosen on a fifth "
        f"of the set's own training photos{older}. 240 test photos of 12 flowers, 500 of "
        "flower_photos, 1,000 of CIFAR-10 (2,000 to train on, enlarged from 32 px)."
    )
    keep(f"accuracy_{name}", results)
    columns = [column for photos in sets for column in (photos, "rates")]
    lines = table(["method", "peak process MB", *columns], rows)
    write(f"accuracy_{name}", f"The methods on real photos: {name}", f"{note}\n\n{lines}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=NETWORKS, default="mbv2-w0.35")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--photos", nargs="+", choices=EPOCHS, default=list(EPOCHS))
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of finished runs")
    parser.add_argument("--fresh", action="store_true", help="discard finished runs")
    options = parse(parser)
    name = f"accuracy_{options.network}"
    if options.fresh:
        shutil.rmtree(options.runs / name, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        comparison = compare(grid(options, Path(scratch)), options.runs / name)
    results = {} if options.fresh else kept(name)
    add_results(results, comparison)
    publish(options.network, results, options.seeds)


if __name__ == "__main__":
    main()
