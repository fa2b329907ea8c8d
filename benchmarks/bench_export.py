"""What an export in fewer bits, or for TensorFlow Lite, costs and saves.

    python benchmarks/bench_export.py [--data FOLDER] [--networks mbv2-w0.35 ...]

Each network gets a classifier computed from the training photos of Flowers-12, and is exported in
float32, int8 and fp16, and for TensorFlow Lite in float32 and int8. The test photos give the
accuracy of each file. ONNX Runtime and LiteRT run the files in turn; the time is the least of the
processor's time for a batch of one. Networks of the registry, such as `convnext_atto`, have random
weights: sizes and agreement are measured, and their accuracy says nothing. The script is skipped if
the data are missing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import pocketune
from data import parse, unpack
from pocketune.data import Loader, load_splits
from pocketune.device import Silent
from pocketune.device.engine.session import open_session
from pocketune.errors import PocketuneError
from pocketune.methods import create_method
from pocketune.networks import list_networks
from pretrained import NETWORKS, Pretrained, weights_file
from report import table, write

Run = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
"""From an image (1, S, S, 3) to its logits."""
TURNS = 30
"""Times that each file is run; the least counts."""
KINDS = (("", "int8"), ("", "fp16"), ("tflite", "float32"), ("tflite", "int8"))
"""Runtimes, ONNX Runtime the unnamed, and precisions."""
RANDOM = {name: Pretrained(name, 1.0, 128) for name in list_networks(dense=False)}
"""Networks without published weights at hand."""


def exports(run: Path, folder: Path) -> tuple[dict[str, Path], dict[str, pocketune.Reduced]]:
    """The files by their precision, and what the exports say; those that are refused are told."""
    files, told = {"float32": pocketune.export(run, folder / "float32.onnx")}, {}
    for runtime, precision in KINDS:
        key = f"{runtime} {precision}".strip()
        make = pocketune.export_tflite if runtime else pocketune.export_reduced
        out = folder / f"{precision}.{runtime or 'onnx'}"
        try:
            made = make(run, out, precision=precision)
        except PocketuneError as error:
            print(key, error, flush=True)
        else:
            files[key], told[key] = made.path, made
    return files, told


def opened(file: Path) -> Run:
    """The file in its runtime."""
    if file.suffix == ".tflite":
        from ai_edge_litert.interpreter import Interpreter

        run = Interpreter(str(file)).get_signature_runner()
        return lambda image: run(images=image)["logits"]
    session = open_session(file, as_written=False, integers=True)
    return lambda image: session.run(["logits"], {"images": image})[0]


def photos_of(folder: Path, size: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Test photos (N, size, size, 3) and their classes."""
    dataset = load_splits(folder / "test", val_fraction=1.0).val
    batches = list(Loader(dataset, size=size, batch=8, train=False).epoch(0))
    images = np.concatenate([batch.images for batch in batches])
    return images, np.concatenate([batch.labels for batch in batches])


def accuracies(
    runs: Mapping[str, Run], images: NDArray[np.uint8], labels: NDArray[np.int64]
) -> dict[str, float]:
    """Percent of the photos that each file classifies as they are labeled."""
    found = {}
    for name, run in runs.items():
        logits = [run(image[None]) for image in images]
        found[name] = 100 * float((np.concatenate(logits).argmax(axis=1) == labels).mean())
    return found


def times(runs: Mapping[str, Run], images: NDArray[np.uint8]) -> dict[str, float]:
    """Milliseconds of the processor for one photo, the files in turn."""
    least = dict.fromkeys(runs, float("inf"))
    for turn in range(TURNS):
        for name, run in runs.items():
            start = time.process_time()
            run(images[turn % len(images)][None])
            least[name] = min(least[name], 1000 * (time.process_time() - start))
    return least


def rows(name: str, data: Path, photos: Path, scratch: Path) -> list[list[str]]:
    """A row for each precision."""
    network = NETWORKS.get(name) or RANDOM[name]
    weights = weights_file(data, name) if name in NETWORKS else None
    kit, run = scratch / f"{name}.kit", scratch / f"{name}.run"
    network.kit(kit, create_method("last"), weights, photos)
    pocketune.train(kit, photos / "train", run, epochs=0, progress=Silent())
    folder = scratch / f"{name}.exports"
    folder.mkdir()
    files, told = exports(run, folder)
    runs = {key: opened(file) for key, file in files.items()}
    images, labels = photos_of(photos, network.size)
    right, spent = accuracies(runs, images, labels), times(runs, images)
    found = []
    for key in ("float32", *(f"{runtime} {precision}".strip() for runtime, precision in KINDS)):
        if key not in files:
            found.append([name, key, *["refused"] * 6])
            continue
        file = files[key]
        agreement = told[key].agreement if key in told else None
        same = error = floats = ""
        if agreement is not None:
            same, error = f"{agreement.same:.1%}", f"{agreement.error:.1%}"
            floats = f"{told[key].float_layers} of {told[key].layers}" if told[key].layers else ""
        size = f"{file.stat().st_size / 1e6:.2f}"
        measured = [f"{right[key]:.1f}" if weights else "", f"{spent[key]:.1f}"]
        found.append([name, key, size, *measured, same, error, floats])
        print(found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--networks",
        nargs="+",
        choices=[*NETWORKS, *RANDOM],
        default=["mbv2-w0.35", "proxyless-w0.3", "mcunet-5fps"],
    )
    options = parse(parser)
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        photos = unpack(options.data, "flowers", scratch / "photos")
        lines = [
            line for name in options.networks for line in rows(name, options.data, photos, scratch)
        ]
    note = (
        "Flowers-12, 128 px, classifier computed from the training photos. Accuracy on 240 test "
        "photos, in percent; ms of the processor for one photo, all threads, the least of "
        f"{TURNS}, the files in turn. Same answers and error of the logits are what `export` says, "
        "on the run's validation photos. Networks without an accuracy have random weights."
    )
    header = [
        *("network", "precision", "MB", "accuracy", "ms"),
        *("same answers", "error of the logits", "float layers"),
    ]
    title = "Exports in fewer bits, and for TensorFlow Lite"
    write("export", title, f"{note}\n\n{table(header, lines)}")


if __name__ == "__main__":
    main()
