"""Every method beside PyTorch: first and later epochs, and memory; docs/images/methods.svg.

    taskset --cpu-list 0 python benchmarks/bench_methods.py [--networks mobilenet_v2 ...]
        [--batches 8 1] [--methods last ...] [--rounds 7] [--fresh]

224 px. A step of a kit in the first epoch waits for photos and computes the frozen part; in later
ones, its features are read from the file that a run keeps. PyTorch trains the same parameters, and
everything, on pixels that are there, in the faster of its two layouts, and everything with
`torch.compile` where a C++ compiler is found. All are processes of their own that take turns, with
medians of the rounds. Memory is the peak of a whole run on photos, and of three steps in PyTorch,
in fresh processes. The bound is what the products and convolutions of a kit's first epoch would
take at the highest rates that this machine reaches in any of them. Finished rows are kept, so that
a stopped script continues.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench_cache import CAMERA, CLASSES, FEW, RUN
from bench_step import INTEGERS, adapted, build_kit, eager_step
from data import write_photos
from fresh import KEEPING_ALLOCATOR, Worker, peak
from report import keep, kept, table, write

if TYPE_CHECKING:
    from pocketune.data import Batch
    from pocketune.kit.manifest import Manifest

RESULT, SIZE = "methods", 224
NETWORKS = ("mobilenet_v2", "mobilenet_v3_small", "proxylessnas_mobile")
BATCHES = (8, 1)
METHODS = (
    "last",
    "bias",
    "blocks",
    "mobiletl",
    "TinyTL-L+B",
    "repnet",
    "blocks, filtered",
    "full",
)
EPOCHS_OF = {"first epoch": 0, "later epoch": 1}
EAGER = ("eager, NCHW", "eager, channels-last")
COMPILED = "torch.compile"
EVERYTHING = "full"
PHOTOS = 80
"""Photos that the steps of a kit read."""
PRODUCTS = ("blocked", "dense", "matrix")
"""Kinds of float operators one of which runs at the highest rate."""
DRAWN = ("mobilenet_v2", BATCHES)
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "methods.svg"

EAGER_PEAK = """
import sys
sys.path.insert(0, sys.argv[1])
from bench_methods import eager_steps
from pocketune.device.memory.process import process_memory

step = eager_steps(*sys.argv[2:])
for _ in range(3):
    step()
print(process_memory().peak / 1e6)
"""


def kit_steps(kit: str, photos: str, folder: str, later: bool) -> Callable[[], None]:
    """A step of a run on photos: with new features each time, or with those of the file."""
    from pocketune.device.cache.choice import Parts
    from pocketune.device.cache.loader import CachedLoader
    from pocketune.device.cache.records import FileStore, Records
    from pocketune.device.engine.onnx import OnnxEngine
    from pocketune.device.train.optimizer import Adam
    from pocketune.device.train.photos import Photos
    from pocketune.device.train.settings import TrainSettings
    from pocketune.kit.kit import Kit

    opened = Kit.open(kit)
    engine = OnnxEngine(opened, opened.state())
    optimizer, rng = Adam(engine.parameters), np.random.default_rng(0)
    settings = TrainSettings(val_fraction=0.0, draws=1)
    found = Photos.open(photos, settings, opened)
    loader = found.training
    if later:
        records = Records(FileStore(Path(folder) / "features", bytes(32)), print)
        part = Parts.of(found, opened.manifest, 1).training
        loader = CachedLoader(loader, records, part, engine.prepare)
        for _ in loader.epoch(0):  # fills the file
            pass

    def batches() -> Iterator[Batch]:
        while True:
            yield from loader.epoch(0)

    source = batches()

    def step() -> None:
        batch = next(source)
        optimizer.step(engine.gradients(batch.images, batch.labels, rng).values, lr=1e-4)

    return step


def eager_steps(how: str, network: str, method: str, batch: str) -> Callable[[], None]:
    """A step in PyTorch, on pixels that are there."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (int(batch), SIZE, SIZE, 3), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, int(batch))
    module = adapted(network, method, 1.0)
    if how == COMPILED:
        module.compile()
    step = eager_step(module, how == EAGER[1])
    return lambda: step(images, labels)


def work(how: str, *of: str) -> None:
    """Make a few steps for every line on standard input; answer with their mean milliseconds."""
    if how in EPOCHS_OF:
        # Several steps, because a loader prepares some batches ahead.
        step, steps = kit_steps(*of, later=bool(EPOCHS_OF[how])), 6
    else:
        step, steps = eager_steps(how, *of), 1
    for _ in range(3):
        step()
    for _ in sys.stdin:
        step()  # fills the caches
        start = time.perf_counter()
        for _ in range(steps):
            step()
        print(1e3 * (time.perf_counter() - start) / steps, flush=True)


def measure(network: str, method: str, batch: int, rounds: int, scratch: Path) -> dict[str, float]:
    """The row of a method: milliseconds and megabytes by their columns."""
    from pocketune.kit.kit import Kit

    kit = scratch / "kit"
    build_kit(adapted(network, method, 1.0), method, batch, SIZE, kit)
    manifest = Kit.open(kit).manifest
    photos = write_photos(scratch / "photos", CLASSES, PHOTOS, CAMERA, grain=8)
    workers = eager_workers(network, method, batch)
    for how in EPOCHS_OF if manifest.features else list(EPOCHS_OF)[:1]:
        (scratch / how).mkdir()
        workers[method, how] = Worker(__file__, how, kit, photos, scratch / how)
    times: dict[tuple[str, str], list[float]] = {key: [] for key in workers}
    for _ in range(rounds):
        for key, worker in workers.items():
            times[key] += worker.step()
    for worker in workers.values():
        worker.close()
    medians = {key: median(of) for key, of in times.items()}
    row = {how: medians[method, how] for how in (*EPOCHS_OF, COMPILED) if (method, how) in medians}
    row["same"] = min(medians[method, how] for how in EAGER)
    row["full"] = min(medians[EVERYTHING, how] for how in EAGER)
    row["bound"] = 1e3 * bound(manifest)
    few = write_photos(scratch / "few", CLASSES, FEW, CAMERA, grain=8)
    row["peak"] = peak(["-c", RUN, *map(str, (kit, few, scratch / "run")), "auto"])
    here = str(Path(__file__).parent)
    of = [network, method, str(batch)]
    row["eager peak"] = min(peak(["-c", EAGER_PEAK, here, how, *of]) for how in EAGER)
    return row


def eager_workers(network: str, method: str, batch: int) -> dict[tuple[str, str], Worker]:
    """PyTorch's, by what they train and how: what the method trains, and everything."""
    keys = [(trained, how) for trained in dict.fromkeys((method, EVERYTHING)) for how in EAGER]
    if method == EVERYTHING and shutil.which("g++"):
        keys.append((EVERYTHING, COMPILED))
    return {
        (trained, how): Worker(
            __file__, how, network, trained, batch, environment=KEEPING_ALLOCATOR
        )
        for trained, how in keys
    }


def bound(manifest: Manifest) -> float:
    """Seconds of a step's products and convolutions at the highest rates of this machine."""
    from pocketune.device.speed import measure_speed

    rates = measure_speed().rates
    best = {"integer": rates["integer"], "integer_depthwise": rates["integer"]}
    best |= dict.fromkeys(
        (*PRODUCTS, "depthwise", "blocked_depthwise"), min(rates[kind] for kind in PRODUCTS)
    )
    # the work of the frozen part is that of one image, and that of the step of a micro-batch
    runs = {"features": manifest.batch, "step": manifest.micro_batches}
    return sum(
        runs[name] * best.get(kind, 0.0) * each.flops
        for name, graph in manifest.graphs.items()
        if name in runs
        for kind, each in graph.work.items()
    )


# The table and the picture.


def publish(results: dict[str, dict[str, Any]]) -> None:
    """A table for each network and batch."""
    header = ["trained", *(f"{how}, ms" for how in EPOCHS_OF), "PyTorch, the same"]
    header += ["PyTorch, everything", *(f"{how}: times everything" for how in EPOCHS_OF)]
    header += ["bound, ms", "peak of a run, MB", "PyTorch, the same"]
    parts = []
    for network in NETWORKS:
        for batch in BATCHES:
            cells = {m: results.get(f"{network}, {batch}, {m}") for m in METHODS}
            rows = [shown(method, row) for method, row in cells.items() if row]
            if not rows:
                continue
            text = f"## {network}, batch {batch}\n\n{table(header, rows)}"
            if full := (cells[EVERYTHING] or {}).get(COMPILED):
                text += f"\n\n`torch.compile` trains everything in {full:.0f} ms a step."
            parts.append(text)
    note = (
        f"Steps at {SIZE} px on one core, in milliseconds. Steps of a kit include the wait for "
        f"photos of {CAMERA[0]} x {CAMERA[1]}; those of PyTorch are on random pixels, in the "
        f"faster of two layouts. The frozen parts of {' and '.join(INTEGERS)} compute in 8 bits. "
        "The bound is what the products and convolutions of a first epoch take at the highest "
        "rates of this machine."
    )
    write(RESULT, "Methods beside PyTorch", "\n\n".join([note, *parts]))
    draw(results)


def shown(method: str, row: dict[str, float]) -> list[str]:
    epochs = [row.get(how) for how in EPOCHS_OF]
    times = [*epochs, row["same"], row["full"]]
    ratios = [row["full"] / ms if ms else None for ms in epochs]
    return [
        method,
        *("" if ms is None else f"{ms:.1f}" for ms in times),
        *("" if ratio is None else f"{ratio:.1f}" for ratio in ratios),
        *(f"{row[name]:.0f}" for name in ("bound", "peak", "eager peak")),
    ]


def draw(results: dict[str, dict[str, Any]]) -> None:
    """Time over memory: a line from a method's first to its later epochs, and PyTorch."""
    network, batches = DRAWN
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    for axes, batch in zip(figure.subplots(1, len(batches)), batches, strict=True):
        axes.set(xscale="log", yscale="log", title=f"{network}, batch {batch}, one core")
        axes.set(xlabel="peak of the process, MB", ylabel="ms a step")
        for method in METHODS:
            if not (row := results.get(f"{network}, {batch}, {method}")):
                continue
            epochs = [row[how] for how in EPOCHS_OF if how in row]
            axes.plot([row["peak"]] * len(epochs), epochs, "-", color="#2a9d8f", linewidth=1)
            axes.plot(row["peak"], epochs[0], "o", color="#2a9d8f")
            axes.plot([row["peak"]] * len(epochs[1:]), epochs[1:], "o", color="#2a9d8f", mfc="w")
            axes.plot(row["eager peak"], row["same"], "s", color="#e76f51")
        rows = {m: results.get(f"{network}, {batch}, {m}") for m in METHODS}
        for megabytes, ms in (("peak", "first epoch"), ("eager peak", "same")):
            write_names(axes, {m: (row[megabytes], row[ms]) for m, row in rows.items() if row})
        axes.grid(visible=True, which="both", linewidth=0.3)
    for marker, color, face, label in (
        ("o", "#2a9d8f", "#2a9d8f", "a kit, first epoch"),
        ("o", "#2a9d8f", "w", "later epochs"),
        ("s", "#e76f51", "#e76f51", "PyTorch, the same parameters"),
    ):
        axes.plot([], [], marker, color=color, mfc=face, label=label)
    axes.legend(fontsize=8)
    figure.savefig(PICTURE)


def write_names(axes: Axes, points: dict[str, tuple[float, float]]) -> None:
    """Name points from the lowest up, each at least a line above the one before."""
    below = 0.0
    for name, (x, y) in sorted(points.items(), key=lambda item: item[1][1]):
        below = max(y, 1.2 * below)
        axes.annotate(name, (x, below), (7, -3), textcoords="offset points", fontsize=7)


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        work(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--batches", nargs="+", type=int, choices=BATCHES, default=BATCHES)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    options = parser.parse_args()
    from unchecked import skip_check

    skip_check()
    results = {} if options.fresh else kept(RESULT)
    for network, batch, method in product(options.networks, options.batches, options.methods):
        key = f"{network}, {batch}, {method}"
        if key in results:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            results[key] = measure(network, method, batch, options.rounds, Path(scratch))
        print(key, results[key], flush=True)
        keep(RESULT, results)
    publish(results)


if __name__ == "__main__":
    main()
