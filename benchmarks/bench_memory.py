"""Predicted and measured peak memory of training runs from kits.

    python benchmarks/bench_memory.py [--part fit|held-out|unseen|small|masks] [--scratch DIR]
        [--predict]

Kits are drawn at random: a network, a width, what of it is trained, the batch, the size of the
images and the bits of the frozen part. Each is trained twice by `pocketune train` in a fresh
process, with an optimizer, photos and further options drawn at random too. The prediction is the
one that the run makes, as for `--budget`; measured is the VmHWM of that process, read after
everything else. The constants of the prediction are fitted to the parts `fit` and `held-out`;
`unseen` and `small` are drawn with other seeds, and were measured when the constants had been
chosen; `small` has many kits, which take little time. The part `masks` has fixed networks that
classify pixels.

Kits are built without their comparison with PyTorch, which the tests make, and stay in the scratch
folder. Results are kept in `results/` as they finish, and a second start goes on there. After the
model has changed, `--predict` makes the predictions of measured runs again, by kits that are built
again; their peaks stay.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from data import class_names, write_photos
from memory_runs import CLASSES, PARTS, Run, method_of, runs
from report import RESULTS, keep, kept, table, write

TOLERANCE = 0.10, 8_000_000
"""A prediction is not too high within this share or so many bytes, whichever is more."""
TICKS = 50, 70, 100, 150, 200, 300
STILL = "--lr", "1e-9", "--head-lr", "1e-9"
"""Rates at which random weights stay finite."""


def draw_photos(folder: Path) -> None:
    """The sets of photos that runs name."""
    from PIL import Image

    write_photos(folder / "small", CLASSES, 40, (160, 120), grain=10)
    write_photos(folder / "camera", CLASSES, 40, (640, 480), grain=40)
    write_photos(folder / "large", CLASSES, 20, (2000, 1500), grain=100)
    write_photos(folder / "many", 20, 600, (96, 72), grain=6)
    write_photos(folder / "masks", CLASSES, 40, (640, 480), grain=40, masks=True)
    for number, jpeg in enumerate(sorted((folder / "camera").rglob("*.jpg"))):
        png = folder / "png" / jpeg.parent.name / f"{jpeg.stem}.png"
        png.parent.mkdir(parents=True, exist_ok=True)
        Image.open(jpeg).convert(("RGB", "RGBA", "P", "L")[number % 4]).save(png)


def build_kits(part: str, scratch: Path) -> None:
    """Build the kits of a part that are not there, in one process."""
    import torch

    import pocketune
    from pocketune.compiler import Calibration
    from unchecked import skip_check

    skip_check()
    for row in dict.fromkeys(run.row for run in runs(part)):
        if (scratch / row.name).exists():
            continue
        torch.manual_seed(0)
        network = pocketune.create_network(
            row.network, width=row.width, classes=CLASSES, backbone=row.backbone
        )
        kind = pocketune.Segmentation if row.backbone else pocketune.Classification
        shape = (8, row.size, row.size, 3)
        images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        pocketune.compile(
            pocketune.adapt(network, method_of(row.method, row.network)),
            scratch / row.name,
            batch=row.batch,
            size=row.size,
            task=kind(tuple(class_names(CLASSES))),
            frozen_bits=row.bits,
            calibration=Calibration(images) if row.bits == 8 else None,
        )
        print(row.name, file=sys.stderr, flush=True)


WORK = """
import json, os, sys
import pocketune.cli.train  # as the command does, before memory is measured
from pocketune.__main__ import main
from pocketune.device.train import log, run

facts, check, begin = {}, run.check_budget, log.RunLog.__init__

def checked(*positional, before, **named):
    facts["process"] = before.current
    return check(*positional, before=before, **named)

def begun(self, started, *others):
    facts["predicted"] = started.memory.total
    if os.environ.get("ONLY_PREDICT"):
        sys.exit()
    begin(self, started, *others)

run.check_budget, log.RunLog.__init__ = checked, begun
sys.argv = ["pocketune", *sys.argv[1:]]
try:
    main()
finally:
    with open("/proc/self/status") as status:
        facts["peak"] = int(status.read().partition("VmHWM:")[2].split()[0]) * 1024
    print("MEMORY", json.dumps(facts), flush=True)
"""
"""Runs `pocketune`; at the very end, prints VmHWM and what was predicted."""


def measure(run: Run, scratch: Path, *, only_predict: bool = False) -> dict[str, int]:
    """What the run predicts and takes; with `only_predict`, it ends when it has predicted.

    Raises:
        CalledProcessError: The run ends with an error.
    """
    with tempfile.TemporaryDirectory() as out:
        command = ["train", scratch / run.photos, "--kit", scratch / run.row.name]
        command += ["--out", f"{out}/run", *run.options, *STILL]
        done = subprocess.run(
            [sys.executable, "-c", WORK, *map(str, command)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env={
                **os.environ,
                "OMP_WAIT_POLICY": "passive",
                "ONLY_PREDICT": "1" if only_predict else "",
            },
        )
    line = next(line for line in done.stdout.splitlines() if line.startswith("MEMORY "))
    result: dict[str, int] = json.loads(line.removeprefix("MEMORY "))
    return result


def is_high(result: dict[str, int]) -> bool:
    """Whether a prediction is too far above."""
    share, least = TOLERANCE
    return result["predicted"] - result["peak"] > max(share * result["peak"], least)


def is_good(result: dict[str, int]) -> bool:
    """Whether a prediction is an upper bound that is not too far above."""
    return result["peak"] <= result["predicted"] and not is_high(result)


def publish(part: str, results: dict[str, dict[str, int]]) -> None:
    """Write the finished runs as a table and as a picture."""
    name = "memory_" + part.replace("-", "_")
    drawn_runs = len({run.label for run in runs(part)})
    waiting = drawn_runs - len(results)
    failed = sum("failed" in row for row in results.values())
    results = {label: row for label, row in results.items() if "failed" not in row}
    errors = np.array([row["predicted"] - row["peak"] for row in results.values()]) / 1e6
    shares = [row["predicted"] / row["peak"] - 1 for row in results.values()]
    high = sum(map(is_high, results.values()))
    rows = []
    for label, row in sorted(results.items(), key=lambda item: item[1]["peak"]):
        kit, photos, *options = label.split()
        predicted, peak = row["predicted"] / 1e6, row["peak"] / 1e6
        sizes = [f"{predicted:.1f}", f"{peak:.1f}", f"{predicted - peak:+.1f}"]
        named = kit.removesuffix("_None").removesuffix("_32")
        rows.append([named, photos, " ".join(options), *sizes, f"{predicted / peak - 1:+.1%}"])
    header = ["kit", "photos", "options", "predicted MB", "measured MB", "error MB", "error"]
    below = (
        "none" if errors.min() >= 0 else f"{(errors < 0).sum()}, by up to {-errors.min():.1f} MB"
    )
    note = (
        f"Peak resident memory of the whole process in {len(rows)} of {drawn_runs} runs, by "
        f"`pocketune train` in a fresh process, against the prediction that the run makes. Ended "
        f"with an error, because random weights diverged: {failed or 'none'}. Not measured yet: "
        f"{waiting or 'none'}. Predicted below the peak: {below}. "
        f"More than 10 % and 8 MB above it: {high}. The prediction is "
        f"{np.median(errors):.1f} MB or {np.median(shares):.1%} above in the median, and "
        f"{errors.max():.1f} MB at most."
    )
    picture = RESULTS / f"{name}.svg"
    matplotlib.rcParams.update({"svg.hashsalt": "pocketune", "svg.fonttype": "none"})
    scatter(list(results.values())).savefig(picture, metadata={"Date": None})
    link = f"![Predicted over measured peaks]({picture.name})"
    title = f"Memory of training from a kit, predicted and measured: {part}"
    write(name, title, f"{note}\n\n{link}\n\n{table(header, rows)}")


def scatter(rows: list[dict[str, int]]) -> Figure:
    """Predicted over measured peaks, with the bounds of a good prediction."""
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.subplots()
    share, least = TOLERANCE
    for good, color in ((True, "#2a9d8f"), (False, "#e76f51")):
        chosen = [row for row in rows if is_good(row) is good]
        measured, predicted = ([row[key] / 1e6 for row in chosen] for key in ("peak", "predicted"))
        axes.plot(measured, predicted, "o", color=color, markersize=3, alpha=0.7)
    peaks = np.sort([row["peak"] / 1e6 for row in rows])
    axes.plot(peaks, peaks, color="#444444", linewidth=1)
    axes.plot(peaks, peaks + np.maximum(share * peaks, least / 1e6), color="#aaaaaa", linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(TICKS, labels=list(map(str, TICKS)))
        axis.set_ticks([], minor=True)
    axes.set_xlabel("measured MB", fontsize=9)
    axes.set_ylabel("predicted MB", fontsize=9)
    return figure


def main() -> None:
    if sys.argv[1:2] == ["--build"]:
        build_kits(sys.argv[2], Path(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=(*PARTS, "masks"), default="held-out")
    parser.add_argument("--scratch", type=Path, help="folder for kits and photos, which are kept")
    parser.add_argument("--fresh", action="store_true", help="measure all runs again")
    parser.add_argument(
        "--predict", action="store_true", help="only make the predictions of measured runs again"
    )
    options = parser.parse_args()
    name = "memory_" + options.part.replace("-", "_")
    results = {} if options.fresh else kept(name)
    with tempfile.TemporaryDirectory() as temporary:
        scratch = options.scratch or Path(temporary)
        if not (scratch / "png").exists():
            draw_photos(scratch)
        build = [sys.executable, __file__, "--build", options.part, str(scratch)]
        subprocess.run(build, check=True)
        for run in runs(options.part):
            found = results.get(run.label)
            if options.predict and found and "failed" not in found:
                again = measure(run, scratch, only_predict=True)
                found.update(process=again["process"], predicted=again["predicted"])
                keep(name, results)
            if found or options.predict:
                continue
            try:
                results[run.label] = measure(run, scratch)
            except subprocess.CalledProcessError:  # random weights may diverge
                results[run.label] = {"failed": 1}
            keep(name, results)
            print(run.label, results[run.label], file=sys.stderr, flush=True)
    publish(options.part, results)


if __name__ == "__main__":
    main()
