"""Forecast against measured memory and time of training, for eight networks and ten methods.

    python benchmarks/bench_forecast.py [--rows 1 2 3 ...] [--fresh]

Each row drafts a kit from the network's config alone, and predicts from the draft. Then the kit is
built, without its comparison with PyTorch, and trained for a few steps on generated photos with
Adam, validation included, in a fresh process, whose VmHWM is the measured peak. A last process
times steps in one thread: processor seconds, the fastest of a few, because other programs may run
on the machine; the estimate is of one thread too. Rows are kept in `results/forecast.json` as they
finish, cheap ones first, and a second start goes on there. The rows were chosen before any was
measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from data import class_names, write_photos
from memory_runs import method_of
from report import keep, kept, table, write

CLASSES, PHOTOS = 5, 40
CAMERA = 640, 480
OPTIMIZER = "adam"
STEPS = 12
NETWORKS = {
    "mcunet_5fps": (1.0,),
    "mobilenet_v2": (0.35, 1.0),
    "mobilenet_v3_small": (1.0,),
    "mobilenet_v3_large": (0.5, 1.0),
    "proxylessnas_mobile": (0.3, 1.0),
    "resnet18": (0.25, 1.0),
    "resnet34": (0.5,),
    "resnet50": (0.25, 0.5),
}
METHODS = ("last", "bias", "norm", "blocks", "mobiletl", "gradfilter", "tinytl", "full")
STEPS_OF = ((4, 96), (8, 160), (1, 224), (16, 96), (2, 192), (8, 128), (4, 224), (16, 128))
"""Batch and size, taken in turn."""


class Row(NamedTuple):
    """A network, what of it is trained, and on what."""

    network: str
    width: float
    method: str
    batch: int
    size: int

    @property
    def label(self) -> str:
        """Its key in the results."""
        return " ".join(map(str, self))


def all_rows() -> list[Row]:
    """60 rows: every network with every method, without the four largest."""
    rows, turn = [], 0
    for network, widths in NETWORKS.items():
        for method, width in zip(METHODS, cycle(widths)):
            rows.append(Row(network, width, method, *STEPS_OF[turn % len(STEPS_OF)]))
            turn += 3 if method == METHODS[-1] else 1
    for each in ("repnet", "signed"):
        rows += [
            Row("mobilenet_v2", 0.35, each, 8, 128),
            Row("proxylessnas_mobile", 0.3, each, 4, 160),
        ]
    return sorted(rows, key=_work)[:60]


def _work(row: Row) -> float:
    """About how long a row takes, to begin with short ones."""
    per_image = {"resnet18": 1.8, "resnet34": 3.6, "resnet50": 4.1, "mobilenet_v3_small": 0.1}
    share = {"last": 1, "full": 3, "tinytl": 3, "bias": 3, "norm": 3}.get(row.method, 1.5)
    cost = per_image.get(row.network, 0.3) * row.width**2 * (row.size / 224) ** 2
    return row.batch * cost * share


def draft(row: Row) -> tuple[Any, float]:
    """The draft of a row, and the seconds that it took."""
    from pocketune.forecast import draft
    from pocketune.networks.config import NetworkConfig

    config = NetworkConfig(row.network, classes=CLASSES, width=row.width)
    began = time.process_time()
    drafted = draft(
        config, method_of(row.method, row.network), size=row.size, batch=row.batch, cached=False
    )
    return drafted, time.process_time() - began


def build_kit(row: Row, out: Path) -> None:
    import pocketune
    from pocketune.compiler import Calibration
    from unchecked import skip_check

    skip_check()
    network = pocketune.create_network(row.network, width=row.width, classes=CLASSES)
    adapted = pocketune.adapt(network, method_of(row.method, row.network))
    task = pocketune.Classification(tuple(class_names(CLASSES)))
    shape = (8, row.size, row.size, 3)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    pocketune.compile(
        adapted, out, batch=row.batch, size=row.size, task=task, calibration=Calibration(images)
    )


def train(kit: str, photos: str, out: str) -> None:
    """Train for a few steps; prints memory before, reported and measured as JSON."""
    import pocketune
    from pocketune.device.memory.baseline import training_baseline
    from pocketune.device.train.progress import Silent

    process = training_baseline()
    result = pocketune.train(
        kit, photos, out=out, epochs=1, val_fraction=0.2, optimizer=OPTIMIZER, progress=Silent()
    )
    status = Path("/proc/self/status").read_text()
    high = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    print(json.dumps({"process": process, "reported": result.peak_memory, "peak": high}))


def step(path: str) -> None:
    """Time steps in one thread; prints processor seconds of each and the estimate as JSON."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from pocketune.device.engine.onnx import OnnxEngine
    from pocketune.device.speed import estimate_step, measure_speed
    from pocketune.device.train.optimizer import Adam
    from pocketune.kit.kit import Kit

    kit = Kit.open(path)
    batch, size = kit.manifest.batch, kit.manifest.size
    engine = OnnxEngine(kit, kit.state())
    optimizer, rng = Adam(engine.parameters), np.random.default_rng(0)
    images = rng.integers(0, 256, (batch, size, size, 3), dtype=np.uint8)
    labels = np.arange(batch) % CLASSES
    seconds = []
    for _ in range(STEPS + 2):
        began = time.process_time()
        optimizer.step(engine.gradients(images, labels, rng).values, lr=1e-6)
        seconds.append(time.process_time() - began)
    estimated = estimate_step(kit.manifest, measure_speed())
    print(json.dumps({"steps": seconds[2:], "estimated": estimated}))


def run(*arguments: object) -> Any:
    """What this script prints in a fresh process."""
    command = [sys.executable, __file__, *map(str, arguments)]
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def measure(row: Row, photos: Path) -> dict[str, Any]:
    """Everything that a row's table line and later predictions need."""
    from pocketune.kit.kit import Kit

    drafted, seconds = draft(row)
    with tempfile.TemporaryDirectory() as scratch:
        kit = Path(scratch) / "kit"
        build_kit(row, kit)
        built = Kit.open(kit).manifest
        trained = run("--train", kit, photos, f"{scratch}/run")
        timed = run("--step", kit)
    return {
        "row": row,
        "draft_seconds": seconds,
        "drafted": _predicted(drafted, trained["process"]),
        "predicted": _predicted(built, trained["process"]),
        **trained,
        **timed,
    }


def _predicted(manifest: Any, process: int) -> int:
    from pocketune.device.memory.estimate import estimate_memory
    from pocketune.device.train.optimizer import state_slots

    slots = state_slots(OPTIMIZER, 0.9)
    return int(estimate_memory(manifest, process=process, classes=CLASSES, slots=slots).total)


HEADER = ["network", "width", "method", "batch", "px", "drafted MB", "kit's MB", "measured MB"]
HEADER += ["error MB", "error", "estimated ms", "measured ms", "ratio"]


def line(result: dict[str, Any]) -> list[object]:
    """A row of the table."""
    drafted, peak = result["drafted"], result["peak"]
    estimated, measured = result["estimated"], min(result["steps"])
    sizes = [f"{size / 1e6:.1f}" for size in (drafted, result["predicted"], peak)]
    error = [f"{(drafted - peak) / 1e6:+.1f}", f"{drafted / peak - 1:+.1%}"]
    times = [f"{1e3 * seconds:.1f}" for seconds in (estimated, measured)]
    return [*result["row"], *sizes, *error, *times, f"{estimated / measured:.2f}"]


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's, of values without ties."""
    ranks = [np.argsort(np.argsort(values)) for values in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1])


def publish(results: dict[str, dict[str, Any]]) -> None:
    rows = list(results.values())
    drafted, kits, peaks = (
        np.array([r[k] for r in rows]) for k in ("drafted", "predicted", "peak")
    )
    estimated = np.array([row["estimated"] for row in rows])
    measured = np.array([min(row["steps"]) for row in rows])
    off, ratio = drafted - peaks, estimated / measured
    good = abs(off) <= np.maximum(0.1 * peaks, 8e6)
    apart = abs(drafted - kits).max() / 1e6
    seconds = [row["draft_seconds"] for row in rows]
    errors, relative = abs(off) / 1e6, abs(off / peaks)
    lines = [
        f"{len(rows)} configurations, drafted from shapes alone and trained with {OPTIMIZER}.",
        "",
        f"- Drafts and finished kits predict the same peak to {apart:.2f} MB. A draft took "
        f"{median(seconds):.1f} s of the processor (median; {max(seconds):.1f} at most), while "
        "other programs ran.",
        f"- {good.sum()} of {len(rows)} measured peaks (VmHWM) lie within 10 % or 8 MB of the "
        f"prediction. The median error is {np.median(errors):.1f} MB, or "
        f"{np.median(relative):.1%}; errors go from {off.min() / 1e6:+.0f} to "
        f"{off.max() / 1e6:+.0f} MB.",
        "- Estimated and measured times of a step have a rank correlation of "
        f"{rank_correlation(estimated, measured):.3f}. The median error is "
        f"{np.median(abs(ratio - 1)):.0%}; ratios go from {ratio.min():.2f} to {ratio.max():.2f}.",
        "",
        table(HEADER, list(map(line, rows))),
    ]
    write("forecast", "Forecast of memory and time", "\n".join(lines))


def main() -> None:
    if sys.argv[1:2] == ["--train"]:
        train(*sys.argv[2:])
        return
    if sys.argv[1:2] == ["--step"]:
        step(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    rows = all_rows()
    parser.add_argument("--rows", type=int, nargs="+", default=range(1, len(rows) + 1))
    parser.add_argument("--fresh", action="store_true", help="measure all rows again")
    options = parser.parse_args()
    results = {} if options.fresh else kept("forecast")
    with tempfile.TemporaryDirectory() as photos:
        write_photos(Path(photos), CLASSES, PHOTOS, CAMERA, grain=40)
        for number in options.rows:
            row = rows[number - 1]
            if row.label not in results:
                results[row.label] = measure(row, Path(photos))
                keep("forecast", results)
                print(number, row.label, file=sys.stderr, flush=True)
    publish(results)


if __name__ == "__main__":
    main()
