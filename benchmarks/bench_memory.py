"""Predicted and measured peak memory of training runs from kits.

    python benchmarks/bench_memory.py [--part fit|held-out|unseen|masks] [--scratch DIR] [--predict]

Kits are drawn at random: a network, a width, what of it is trained, the batch, the size of the
images and the bits of the frozen part. Each is trained twice by `pocketune train` in a fresh
process, with an optimizer, photos and further options drawn at random too. The prediction is the
one that the run makes, as for `--budget`; measured is the VmHWM of that process, read after
everything else. The constants of the prediction are fitted to the parts `fit` and `held-out`;
`unseen` is drawn with another seed, and was measured when the constants had been chosen. The part
`masks` has fixed networks that classify pixels.

Kits are built without their comparison with PyTorch, which the tests make, and stay in the scratch
folder. Results are kept in `results/` as they finish, and a second start goes on there. After the
model has changed, `--predict` makes the predictions of measured runs again, by kits that are built
again; their peaks stay.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data import class_names, write_photos
from report import RESULTS, keep, kept, table, write

CLASSES = 5
TOLERANCE = 0.10, 8_000_000
"""A prediction is not too high within this share or so many bytes, whichever is more."""
NETWORKS = {
    "mcunet_5fps": (1.0,),
    "mobilenet_v2": (0.35, 0.35, 0.5, 1.0),
    "mobilenet_v3_small": (0.5, 1.0),
    "mobilenet_v3_large": (0.35, 0.5, 1.0),
    "proxylessnas_mobile": (0.3, 0.5),
    "resnet18": (0.25, 0.5),
    "resnet34": (0.25,),
    "resnet50": (0.25,),
}
METHODS = ("last", "bias", "norm", "blocks", "mobiletl", "gradfilter", "tinytl", "full", "repnet")
METHODS += ("signed",)
WITHOUT_FROZEN = ("bias", "norm", "full", "tinytl", "repnet")
BATCHES = 1, 2, 4, 8, 16, 32, 64
SIZES = 64, 80, 96, 112, 128, 160, 192, 224
COST = {"resnet18": 1.8, "resnet34": 3.6, "resnet50": 4.1, "mobilenet_v3_small": 0.1}
SHARE = {"last": 0.5, "blocks": 1.2, "mobiletl": 1.2, "signed": 1.2, "gradfilter": 1.2, "repnet": 2}
MOST = 2.5
"""Kits that cost more are not drawn: a run takes seconds."""
PARTS = {"fit": (1, 45), "held-out": (3, 102), "unseen": (78, 14)}
"""Seed and number of kits."""


class Row(NamedTuple):
    """A network, what of it is trained, and on what."""

    network: str
    width: float
    method: str
    batch: int
    size: int
    bits: int = 32
    backbone: str | None = None

    @property
    def name(self) -> str:
        """Of its folder."""
        return "_".join(map(str, self)).replace(", ", "-").replace(" ", "-")


class Run(NamedTuple):
    """A kit, the photos that it is trained on, and options of `pocketune train`."""

    row: Row
    photos: str
    options: tuple[str, ...]

    @property
    def label(self) -> str:
        """Its key in the results."""
        return " ".join((self.row.name, self.photos, *self.options))


STILL = "--lr", "1e-9", "--head-lr", "1e-9"
"""Rates at which random weights stay finite."""
MASKS = [
    Row("deeplabv3", 0.35, "last", 8, 256, 32, "mobilenet_v2"),
    Row("deeplabv3", 0.35, "blocks", 4, 256, 32, "mobilenet_v2"),
    Row("deeplabv3", 0.35, "mobiletl", 4, 176, 32, "mobilenet_v2"),
    Row("deeplabv3", 0.35, "norm", 4, 176, 32, "mobilenet_v2"),
    Row("deeplabv3", 0.35, "full", 4, 176, 32, "mobilenet_v2"),
    Row("pspnet", 0.25, "bias", 4, 128, 32, "resnet18_v1c"),
    Row("lraspp", 1.0, "blocks", 8, 224, 32, "mobilenet_v3_large"),
    Row("deeplabv3", 0.35, "5 layers, filtered", 8, 240, 32, "mobilenet_v2"),
]


def drawn(seed: int, count: int) -> list[Row]:
    """So many different kits."""
    rng, rows = random.Random(seed), list[Row]()
    while len(rows) < count:
        network = rng.choice(list(NETWORKS))
        width, method = rng.choice(NETWORKS[network]), rng.choice(METHODS)
        if method == "repnet" and not network.startswith(("mobilenet_v2", "proxyless")):
            continue
        batch, size, bits = rng.choice(BATCHES), rng.choice(SIZES), rng.choice((32, 32, 8))
        if method in WITHOUT_FROZEN:
            bits = 32
        row = Row(network, width, method, batch, size, bits)
        if _cost(row) <= MOST and row not in rows:
            rows.append(row)
    return rows


def _cost(row: Row) -> float:
    """About how long building it and a step take."""
    image = COST.get(row.network, 0.3) * max(row.width, 0.25) ** 2 * (row.size / 224) ** 2
    return row.batch * image * SHARE.get(row.method, 3) + 0.5 * row.width


def runs(part: str) -> Iterator[Run]:
    """The runs of a part, two of each kit."""
    if part == "masks":
        for row in MASKS:
            yield Run(row, "masks", ("--optimizer", "adam", "--epochs", "1"))
        return
    seed, count = PARTS[part]
    rng = random.Random(seed + 1000)
    for row in drawn(seed, count):
        for _ in range(2):
            yield _run(row, rng)


def _run(row: Row, rng: random.Random) -> Run:
    photos = rng.choice(("small", "camera", "camera", "large", "png"))
    optimizer = rng.choice(("adam", "adam", "sgd", "sgd without momentum"))
    options = ["--optimizer", optimizer[:4].strip()]
    if optimizer != "adam":
        options += ["--momentum", ".9" if optimizer == "sgd" else "0"]
    if row.method in ("last", "tinytl", "bias") and row.batch <= 8 and rng.random() < 0.3:
        options += ["--accumulate", rng.choice(("2", "4"))]
    if row.method not in WITHOUT_FROZEN:
        options += ["--cache", rng.choice(("off", "disk", "memory"))]
    if rng.random() < 0.3:
        options += ["--head-start", "random"]
    options += ["--epochs", rng.choice(("1", "2"))] if row.batch > 4 else ["--steps", "12"]
    if row.method == "last" and photos in ("small", "png") and row not in drawn(*PARTS["fit"]):
        photos = "many"
    return Run(row, photos, tuple(options))


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
            pocketune.adapt(network, method_of(row)),
            scratch / row.name,
            batch=row.batch,
            size=row.size,
            task=kind(tuple(class_names(CLASSES))),
            frozen_bits=row.bits,
            calibration=Calibration(images),
        )
        print(row.name, file=sys.stderr, flush=True)


def method_of(row: Row) -> Any:
    """The method that a row names."""
    import pocketune
    from bench_step import METHODS as CONFIGURED

    if row.method not in METHODS:
        name, options = CONFIGURED[row.method]
        return pocketune.create_method(name, **options)
    if row.method == "signed":
        return pocketune.TopBlocks() + pocketune.SignedBackward()
    if row.method == "tinytl" and row.network == "resnet50":
        return pocketune.TinyTL(lite_residual=False)  # the modules would outgrow the network
    return pocketune.create_method(row.method)


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
    facts["predicted"] = started.predicted_memory
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
    picture.write_text(scatter(list(results.values())))
    link = f"![Predicted over measured peaks]({picture.name})"
    title = f"Memory of training from a kit, predicted and measured: {part}"
    write(name, title, f"{note}\n\n{link}\n\n{table(header, rows)}")


def scatter(rows: list[dict[str, int]]) -> str:
    """Predicted over measured peaks as SVG, with the bounds of a good prediction."""
    side, edge = 480, 50
    low = 0.95 * min(row["peak"] for row in rows)
    high = 1.05 * max(max(row["peak"], row["predicted"]) for row in rows)

    def place(measured: float, predicted: float) -> tuple[float, float]:
        x, y = ((each - low) / (high - low) for each in (measured, predicted))
        return edge + (side - edge) * x, (side - edge) * (1 - y)

    def line(bound: Any, color: str) -> str:
        peaks = np.linspace(low, high, 50)
        points = " ".join("{:.1f},{:.1f}".format(*place(peak, bound(peak))) for peak in peaks)
        return f'<polyline points="{points}" fill="none" stroke="{color}"/>'

    parts = [line(lambda peak: peak, "#444"), line(_bound, "#aaa")]
    for row in rows:
        x, y = place(row["peak"], row["predicted"])
        good = row["peak"] <= row["predicted"] and not is_high(row)
        color = "#2a7" if good else "#c33"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}" opacity="0.7"/>')
    for size in range(50_000_000, int(high), 25_000_000):
        if size < low:
            continue
        x, y = place(size, size)
        parts.append(
            f'<text x="{x:.0f}" y="{side - 30}" text-anchor="middle">{size // 10**6}</text>'
        )
        parts.append(
            f'<text x="{edge - 6}" y="{y + 4:.0f}" text-anchor="end">{size // 10**6}</text>'
        )
    middle = (side + edge) // 2
    parts.append(f'<text x="{middle}" y="{side - 8}" text-anchor="middle">measured MB</text>')
    parts.append('<text x="4" y="14">predicted MB</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{side + 10}" height="{side}" '
    box = f'<rect width="{side + 10}" height="{side}" fill="white"/>'
    clip = f'<clipPath id="c"><rect x="{edge}" width="{side}" height="{side - edge}"/></clipPath>'
    lines, others = "".join(parts[:2]), "\n".join(parts[2:])
    style = 'font-family="sans-serif" font-size="12">'
    return f'{head}{style}\n{box}{clip}<g clip-path="url(#c)">{lines}</g>\n{others}\n</svg>\n'


def _bound(peak: float) -> float:
    share, least = TOLERANCE
    return peak + max(share * peak, least)


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
