"""The recipe of Frigate NVR in TensorFlow, and the same photos in Pocketune.

    python benchmarks/bench_frigate.py [--data FOLDER] [--tensorflow PYTHON] [--epochs 3]

Frigate is the largest program that trains classifiers on its users' own machines. Both sides get
the same folder, 200 photos of 5 flowers, MobileNetV2 0.35 at 224 px and batch 16, in fresh
processes: peak resident memory and seconds of the training, imports included. TensorFlow is
optional, and `--tensorflow` names another Python that has it (2.19.1 was measured); without it its
rows are left out. Its ImageNet weights would be a download, so memory and time are measured on
random ones. The accuracy beside them is of Frigate's top, trained for its 50 epochs on the features
of the frozen network that the kits have. The script is skipped if the data are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import pocketune
from data import parse, unpack
from pocketune.authoring import build_kit
from pocketune.data import Loader, load_splits
from pocketune.device import Model
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.train.progress import Silent
from pretrained import weights_file
from report import spread, table, write

SIZE, BATCH, EACH, SEEDS = 224, 16, 40, 2
METHODS = {"last": pocketune.LastLayer(), "blocks": pocketune.TopBlocks(3)}
WORKER = Path(__file__).with_name("frigate_tensorflow.py")

TRAIN = """
import sys
from pocketune.device.train import train
from pocketune.device.train.progress import Silent

kit, photos, out, epochs = sys.argv[1:]
result = train(kit, photos, out=out, epochs=int(epochs), val_fraction=0.2, patience=0,
               progress=Silent())
print(result.peak_memory / 1e6)
"""


def few_photos(everything: Path, folder: Path) -> Path:
    """The first photos of each class."""
    for name in sorted(path for path in (everything / "train").iterdir() if path.is_dir()):
        (folder / name.name).mkdir(parents=True)
        for file in sorted(name.iterdir())[:EACH]:
            shutil.copy(file, folder / name.name)
    return folder


def tensorflow(python: str, *arguments: object) -> dict[str, Any] | None:
    """What the worker finds; None if this Python has no TensorFlow."""
    if subprocess.run([python, "-c", "import tensorflow"], capture_output=True).returncode:
        return None
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    start = perf_counter()
    done = subprocess.run(
        [python, str(WORKER), *map(str, arguments)],
        env=quiet,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"process_seconds": perf_counter() - start, **found}


def features(kit: Path, photos: Path, train: bool) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings (N, D) and labels (N,) of photos by the frozen network."""
    model = Model.open(kit)
    part = load_splits(photos, val_fraction=0.0 if train else 1.0, task=model.task)
    dataset = part.train if train else part.val
    engine, found = OnnxEngine(model.kit, model.state), []
    for batch in Loader(dataset, size=SIZE, batch=BATCH, train=False).epoch(0):
        found.append((engine.embed(batch.images), batch.labels))
    return np.concatenate([x for x, _ in found]), np.concatenate([y for _, y in found])


def frigate(python: str, photos: Path, test: Path, kit: Path, epochs: int) -> list[list[object]]:
    measured = tensorflow(python, "train", photos, epochs)
    if measured is None:
        print(f"{python} has no tensorflow: its rows are left out", file=sys.stderr)
        return []
    file = photos.with_name("features.npz")
    known, unseen = features(kit, photos, True), features(kit, test, False)
    np.savez(
        file, features=known[0], labels=known[1], test_features=unseen[0], test_labels=unseen[1]
    )
    scores = tensorflow(python, "head", file)
    assert scores is not None
    before = measured["process_seconds"] - measured["seconds"]
    return [
        ["TensorFlow: import", f"{measured['import']:.0f}", f"{before:.0f}", ""],
        [
            "TensorFlow: Frigate's training",
            f"{measured['train']:.0f}",
            f"{before + measured['train_seconds']:.0f}",
            spread(scores["top1"]),
        ],
        [
            "and its conversion to TFLite",
            f"{measured['convert']:.0f}",
            f"{measured['process_seconds']:.0f}",
            "",
        ],
    ]


def ours(name: str, kit: Path, photos: Path, test: Path, epochs: int) -> list[object]:
    folder = Path(tempfile.mkdtemp(dir=photos.parent))
    start = perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, *map(str, (kit, photos, folder / "run", epochs))],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
    )
    seconds, peak = perf_counter() - start, float(done.stdout.split()[-1])
    scores = []
    for seed in range(SEEDS):
        out = folder / str(seed)
        pocketune.train(kit, photos, out=out, seed=seed, progress=Silent())
        scores.append(100 * pocketune.evaluate(out, test).top1)
    return [f"Pocketune: {name}", f"{peak:.0f}", f"{seconds:.0f}", spread(scores)]


def make_kit(method: str, data: Path, photos: Path, out: Path) -> Path:
    if not out.exists():
        build_kit(
            out,
            network="mobilenet_v2",
            width=0.35,
            weights=str(weights_file(data, "mbv2-w0.35")),
            method=METHODS[method],
            size=SIZE,
            batch=BATCH,
            photos=load_splits(photos, val_fraction=0.0).train,
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensorflow", default=sys.executable, help="a Python with TensorFlow")
    parser.add_argument(
        "--epochs", type=int, default=3, help="of the runs whose memory is measured"
    )
    parser.add_argument("--kits", type=Path, help="folder to keep the kits in")
    options = parse(parser)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        everything = unpack(options.data, "flower_photos", folder / "all")
        photos, test = few_photos(everything, folder / "photos"), everything / "test"
        place = options.kits or folder / "kits"
        kits = {name: make_kit(name, options.data, photos, place / name) for name in METHODS}
        rows = frigate(options.tensorflow, photos, test, kits["last"], options.epochs)
        rows += [ours(name, kit, photos, test, options.epochs) for name, kit in kits.items()]
    note = (
        f"{5 * EACH} photos of 5 flowers, MobileNetV2 0.35, {SIZE} px, batch {BATCH}, Adam, a "
        "fifth of the photos for validation. Peak resident memory and seconds of a fresh process, "
        f"imports included, {options.epochs} epochs, one after the other on the same machine. "
        "TensorFlow's network has random weights there, because its own are a download; memory "
        "and time do not depend on them. Top-1 in percent on the 500 test photos, mean ± standard "
        "deviation: Frigate's dense layer of 128, for its 50 epochs and with 4 seeds, on the "
        f"features of the same pretrained network; Pocketune with every default and {SEEDS} seeds, "
        "which is longer than the measured epochs."
    )
    header = ["what", "peak process MB", "seconds", "top-1"]
    write("frigate", "The recipe of Frigate NVR", f"{note}\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
