"""What a delta saves: its size beside that of a whole model, and a swap beside opening a run.

    python benchmarks/bench_delta.py [--data FOLDER] [--steps 40] [--rounds 20] [--methods last ...]

MobileNetV2 0.35 is trained with each method for a few steps on each of two sets of flowers. Then
both runs take turns: by their deltas, with the frozen part run once for a photo, and opened from
their folders, as the first prediction of a program does it. Times are medians, of one photo. Both
ways must give the same logits, bit for bit; ONNX Runtime's adapters are compared on all test
photos. The script is skipped if the data are missing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import pocketune
from data import parse, unpack
from pocketune.data import Loader, load_splits
from pocketune.device import Delta, Model, Silent, export_adapter
from pocketune.device.engine import session as runtime
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.kit.kit import Kit
from pocketune.kit.names import PREDICT
from pocketune.methods import create_method
from pretrained import BATCH, NETWORKS, weights_file
from report import table, write

NETWORK = "mbv2-w0.35"
METHODS = ("last", "bias", "blocks", "mobiletl", "tinytl")
SETS = ("flowers", "flower_photos")


def milliseconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """The time of a call, and its result."""
    began = time.perf_counter()
    result = work()
    return 1000 * (time.perf_counter() - began), result


def opened(run: Path, photo: Any) -> Any:
    """Logits of a run that is opened for them."""
    model = Model.open(run)
    return OnnxEngine(model.kit, model.state).predict(photo)


def times(kit: Path, runs: list[Path], deltas: list[Path], photo: Any, rounds: int) -> list[str]:
    """Medians: another delta in memory, one that is read from its file, and a run."""
    models = [Delta.load(file).model(kit) for file in deltas]
    engine = OnnxEngine(models[0].kit, models[0].state)
    prepared, taken = engine.prepare(photo), []

    def swapped(model: Model) -> Any:
        engine.swap(model.state)
        return engine.complete(prepared)

    for place in [0, 1] * rounds:
        swap, logits = milliseconds(lambda place=place: swapped(models[place]))
        read, again = milliseconds(
            lambda place=place: swapped(Delta.load(deltas[place]).model(models[0].kit))
        )
        whole, expected = milliseconds(lambda place=place: opened(runs[place], photo))
        assert logits.tobytes() == again.tobytes() == expected.tobytes(), "deltas give other bits"
        taken.append((swap, read, whole))
    return [f"{median(column):.1f}" for column in zip(*taken, strict=True)]


def difference(kit: Path, run: Path, adapter: Path, photos: Path) -> float:
    """The largest difference that an adapter makes in the logits of all test photos."""
    model, found = Model.open(run), []
    engine = OnnxEngine(model.kit, model.state)
    graph = runtime.open_session(Kit.open(kit).source(PREDICT), as_written=False)
    start = "images" if model.manifest.features is None else "features"
    tests = load_splits(photos / "test", val_fraction=0.0).train
    for batch in Loader(tests, size=model.manifest.size, batch=BATCH, train=False).epoch(0):
        prepared = engine.prepare(batch.images)
        adapted = runtime.run_adapted(graph, adapter, {start: prepared})
        found.append(float(np.abs(adapted - engine.complete(prepared)).max()))
    return max(found)


def row(method: str, sets: list[Path], folder: Path, options: argparse.Namespace) -> list[str]:
    """Sizes, times and the check of one method."""
    kit, runs, deltas, adapters = folder / "kit.zip", [], [], []
    weights = weights_file(options.data, NETWORK)
    NETWORKS[NETWORK].kit(kit, create_method(method), weights, sets[0])
    differences = []
    for photos in sets:
        run, delta = folder / photos.name, folder / f"{photos.name}.safetensors"
        # Without validation photos, the values are those of the last step.
        pocketune.train(
            kit,
            photos / "train",
            run,
            steps=options.steps,
            val_fraction=0.0,
            progress=Silent(),
        )
        Delta.of(run).save(delta)
        adapters.append(export_adapter(run, folder / f"{photos.name}.onnx_adapter"))
        differences.append(difference(kit, run, adapters[-1], photos))
        runs.append(run)
        deltas.append(delta)
    model = pocketune.export(runs[0], folder / "model.onnx")
    files = (model, kit, deltas[0], adapters[0])
    (first,) = islice(
        Loader(load_splits(sets[0]).train, size=128, batch=1, train=False).epoch(0), 1
    )
    measured = times(kit, runs, deltas, first.images, options.rounds)
    return [
        method,
        *(f"{f.stat().st_size / 1e3:,.0f}" for f in files),
        *measured,
        f"{max(differences):.1g}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=20)
    options = parse(parser)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        sets = [unpack(options.data, name, Path(temporary) / name) for name in SETS]
        for method in options.methods:
            with tempfile.TemporaryDirectory(dir=temporary) as folder:
                rows.append(row(method, sets, Path(folder), options))
                print(rows[-1], flush=True)
    note = (
        f"{NETWORK} at 128 px; sizes in kB, for the 12 classes of flowers. Another delta: its "
        "values are in memory, the frozen part has been run, the graph stays open. From its file: "
        "it is read and checked first. Opened: a run is opened from its folder for one photo. "
        f"Medians of {2 * options.rounds} turns in ms, in one process. Kit and delta gave the "
        "logits of the run bit for bit. The last column is the largest difference between the "
        "logits of kit and adapter and those of the run, on all test photos of both sets."
    )
    header = [
        *("method", "model.onnx", "kit", "delta", "adapter"),
        *("another delta, ms", "from its file, ms", "opened, ms", "adapter's error"),
    ]
    write("delta", "Deltas beside whole models", f"{note}\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
