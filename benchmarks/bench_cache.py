"""Epochs after the first: how fast they are, what they take, and what they cost in accuracy.

    python benchmarks/bench_cache.py [--parts times memory accuracy methods] [--rounds 20]
        [--kits FOLDER] [--methods full mobiletl ...]

Times: a step of a kit in the first epoch, with decoding and the frozen part, and in later ones,
whose features are read from the file; and a step of eager full fine-tuning on random pixels,
without any decoding. Each is a process of its own, and they take turns. Where other programs use
the machine too, pin the script to one core and compare the processor's times. Memory: the peak of
whole runs with and without kept features, on few photos and on four times as many. Accuracy: trials
as in bench_defaults.py, whose features are encoded as a run encodes them, over draws and bits;
finished ones are in the .json, so that a stopped script continues. Methods: one row for each, its
epochs and the peak of a whole run beside PyTorch, which trains the same or everything, in the
faster of its two layouts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from bench_step import INTEGERS, adapted, build_kit, eager_step
from data import DEFAULT, unpack, write_photos
from fresh import KEEPING_ALLOCATOR, Worker, peak
from pocketune.device.machine import available_cores
from pocketune.errors import counted
from report import keep, kept, spread, table, write

if TYPE_CHECKING:
    from pocketune.data import Batch
    from trials import Views

NETWORK, SIZE, BATCH, CLASSES = "mobilenet_v2", 224, 8, 10
CAMERA = 320, 240
METHODS = {"mobiletl": "MobileTL, top 3 blocks", "last": "last layer"}
EPOCHS_OF = {"first epoch": 0, "later epoch": 1}
EAGER = ("eager, NCHW", "eager, channels-last")
FEW, MANY = 48, 192
"""Photos of the runs whose memory is measured."""
SEEDS = 4
WAYS = ((None, 32), (1, 8), (4, 8), (8, 8), (4, 16), (4, 32))
"""Draws and bits; the first is what a run without a cache has."""
PARTS = ("times", "memory", "accuracy", "methods")
COMPARED = (
    "last",
    "bias",
    "blocks",
    "mobiletl",
    "TinyTL-L+B",
    "repnet",
    "blocks, filtered",
    "full",
)

RUN = """
import sys
from pocketune.device.train import train
from pocketune.device.train.progress import Silent

kit, photos, out, cache = sys.argv[1:]
result = train(kit, photos, out=out, epochs=3, draws=1, cache=cache, progress=Silent())
print(result.peak_memory / 1e6)
"""


# Times.


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


EAGER_PEAK = """
import sys
sys.path.insert(0, sys.argv[1])
from bench_cache import eager_steps
from pocketune.device.memory.process import process_memory

step = eager_steps(*sys.argv[2:])
for _ in range(3):
    step()
print(process_memory().peak / 1e6)
"""


def eager_steps(how: str, method: str) -> Callable[[], None]:
    """A step in PyTorch, on pixels that are there."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (BATCH, SIZE, SIZE, 3), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, BATCH)
    step = eager_step(adapted(NETWORK, method, 1.0), how.endswith("channels-last"))
    return lambda: step(images, labels)


def work(how: str, *of: str) -> None:
    """Make a few steps for every line on standard input; answer with their mean milliseconds."""
    import time

    if how.startswith("eager"):
        step, steps = eager_steps(how, *of), 1
    else:
        # Several steps, because a loader prepares some batches ahead.
        step, steps = kit_steps(*of, later=bool(EPOCHS_OF[how])), 6
    for _ in range(3):
        step()
    for _ in sys.stdin:
        step()  # fills the caches
        wall, busy = time.perf_counter(), time.process_time()
        for _ in range(steps):
            step()
        taken = (time.perf_counter() - wall, time.process_time() - busy)
        print(*(1e3 * seconds / steps for seconds in taken), flush=True)


def eager_worker(how: str, trained: str) -> Worker:
    return Worker(__file__, how, trained, environment=KEEPING_ALLOCATOR)


def kit_worker(how: str, kit: Path, photos: Path, folder: Path) -> Worker:
    folder.mkdir()
    return Worker(__file__, how, kit, photos, folder)


def in_turns(workers: dict[Any, Worker], rounds: int) -> dict[Any, list[float]]:
    """Median milliseconds of each worker's steps, and those of the processor."""
    taken: dict[Any, list[list[float]]] = {key: [] for key in workers}
    for _ in range(rounds):
        for key, worker in workers.items():
            taken[key].append(worker.step())
    for worker in workers.values():
        worker.close()
    return {key: [median(column) for column in zip(*of, strict=True)] for key, of in taken.items()}


def times(kits: dict[str, Path], rounds: int, scratch: Path) -> str:
    """A row for each method and epoch, and for eager full fine-tuning."""
    photos = write_photos(scratch / "photos", CLASSES, 80, CAMERA, grain=8)
    workers = {("full", how): eager_worker(how, "full") for how in EAGER}
    for method, kit in kits.items():
        for how in EPOCHS_OF:
            workers[method, how] = kit_worker(how, kit, photos, scratch / f"{method} {how}")
    found = in_turns(workers, rounds)
    fastest = min((found["full", how] for how in EAGER), key=lambda pair: pair[1])
    rows = []
    for (method, how), pair in found.items():
        ratios = (best / own for best, own in zip(fastest, pair, strict=True))
        name = METHODS.get(method, "everything")
        rows.append([name, how, *(f"{ms:.1f}" for ms in pair), *(f"{r:.1f}" for r in ratios)])
    header = ["trained", "step", "median ms", "median CPU ms"]
    header += ["times as fast as full", "by CPU time"]
    cores = counted(available_cores(), "core")
    return (
        f"Steps of MobileNetV2 1.0, {SIZE} px, batch {BATCH}, on {cores}, over {rounds} rounds in "
        "which the processes take turns. Steps of a kit include the wait for photos of "
        f"{CAMERA[0]} x {CAMERA[1]}, eager ones are on random pixels. Compared with the faster of "
        f"the two eager layouts.\n\n{table(header, rows)}"
    )


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


# Methods.


def methods(kits: dict[str, Path], rounds: int, scratch: Path) -> str:
    """A row for each method: both kinds of epochs, PyTorch, and peaks."""
    photos = write_photos(scratch / "photos", CLASSES, 80, CAMERA, grain=8)
    few = write_photos(scratch / "few", CLASSES, FEW, CAMERA, grain=8)
    rows: tuple[list[list[object]], list[list[object]]] = ([], [])
    for method, kit in kits.items():
        found = compared(method, kit, photos, rounds, scratch)
        ours = peak(["-c", RUN, *map(str, (kit, few, scratch / f"{method} run")), "auto"])
        folder = str(Path(__file__).parent)
        theirs = min(peak(["-c", EAGER_PEAK, folder, how, method]) for how in EAGER)
        for kind, into in enumerate(rows):
            same, full, *epochs = (
                min((found[key][kind] for key in group if key in found), default=None)
                for group in (
                    [(method, how) for how in EAGER],
                    [("full", how) for how in EAGER],
                    *([how] for how in EPOCHS_OF),
                )
            )
            ratios = [full / ms if ms and full else None for ms in epochs]
            shown = [f"{ms:.1f}" if ms else "" for ms in (*epochs, same, full, *ratios)]
            into.append([method, *shown, f"{ours:.0f}", f"{theirs:.0f}"])
        print(rows[0][-1], flush=True)
    header = ["trained", *(f"{how}, ms" for how in EPOCHS_OF), "eager, the same", "eager, full"]
    header += [f"{how}: times eager, full" for how in EPOCHS_OF]
    header += ["peak of a run, MB", "of eager, the same"]
    cores = counted(available_cores(), "core")
    return (
        f"Steps of MobileNetV2 1.0, {SIZE} px, batch {BATCH}, on {cores}, medians of {rounds} "
        "rounds; for each method, its processes and PyTorch's take turns. Steps of a kit include "
        f"the wait for photos of {CAMERA[0]} x {CAMERA[1]}, eager ones are on random pixels, in "
        "the faster of both layouts. The frozen parts of "
        f"{' and '.join(INTEGERS)} compute in 8 bits. A run has three epochs of {FEW} photos; the "
        "peak of PyTorch is that of three steps, without photos, in the layout that takes less.\n\n"
        f"{table(header, rows[0])}\n\nThe same by the processor's time:\n\n"
        f"{table(header, rows[1])}"
    )


def compared(
    method: str, kit: Path, photos: Path, rounds: int, scratch: Path
) -> dict[Any, list[float]]:
    """Milliseconds of a method's steps by kind of epoch, and of PyTorch's by method and layout."""
    from pocketune.kit.kit import Kit

    workers: dict[Any, Worker] = {
        (trained, how): eager_worker(how, trained) for trained in {method, "full"} for how in EAGER
    }
    cached = Kit.open(kit).manifest.features is not None
    for how, later in EPOCHS_OF.items():
        if cached or not later:
            workers[how] = kit_worker(how, kit, photos, scratch / f"{method} {how}")
    return in_turns(workers, rounds)


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


def built(kits: Path | None, scratch: Path, methods: Iterable[str] = METHODS) -> dict[str, Path]:
    """The kits of some methods; those of a folder are taken as they are."""
    found = {method: (kits or scratch / "kits") / f"1.0-{method}" for method in methods}
    for method, path in found.items():
        if not path.exists():
            build_kit(adapted(NETWORK, method, 1.0), method, BATCH, SIZE, path)
    return found


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        work(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--photos", nargs="+", default=["flowers"], help="of the accuracy")
    parser.add_argument("--data", type=Path, default=DEFAULT, help="folder of images and weights")
    parser.add_argument("--methods", nargs="+", choices=COMPARED, default=COMPARED)
    parser.add_argument("--kits", type=Path, help="folder of kits 1.0-mobiletl, 1.0-last, ...")
    options = parser.parse_args()
    parts: dict[str, Callable[[Path], str]] = {
        "times": lambda scratch: times(built(options.kits, scratch), options.rounds, scratch),
        "memory": lambda scratch: memory(built(options.kits, scratch), scratch),
        "accuracy": lambda scratch: accuracy(options.data, scratch, options.photos),
        "methods": lambda scratch: methods(
            built(options.kits, scratch, options.methods), options.rounds, scratch
        ),
    }
    for part in options.parts:
        if part == "accuracy" and not options.data.is_dir():
            print(
                f"skipped: no images and weights at {options.data}; name their folder with --data"
            )
            continue
        with tempfile.TemporaryDirectory() as scratch:
            write(f"cache_{part}", f"Epochs after the first: {part}", parts[part](Path(scratch)))


if __name__ == "__main__":
    main()
