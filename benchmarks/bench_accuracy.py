"""Accuracy of the baseline methods on real photos, with a short fixed recipe.

    python benchmarks/bench_accuracy.py [--data FOLDER] [--seeds 3] [--methods last blocks ...]

MobileNetV2 1.0 pretrained on ImageNet, batch norm restored, fine-tuned with every baseline method
on two small sets of flowers, 160 px, batch 8, Adam, one cosine cycle. Skipped where the data are
not at hand; ``--data`` has ``weights/``, ``classification/`` and ``imagenet/``.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
from PIL import Image

import pocketune
from pocketune.data import center_crop, load_splits
from pocketune.device.progress import Silent
from report import table, write

SIZE, BATCH = 160, 8
METHODS = ("last", "norm", "bias", "blocks", "full")
RATES = {"last": 1e-3, "norm": 5e-4, "bias": 1e-3, "blocks": 3e-4, "full": 2e-4}
SETS = {"oxford_flowers_12cls_224": 3, "flower_photos_5cls_160": 2}  # epochs


def pretrained(data: Path) -> torch.nn.Module:
    """MobileNetV2 with its published weights and true batch statistics."""
    weights = data / "weights" / "mbv2-w1.0.float32.safetensors"
    network = pocketune.create_network("mobilenet_v2", weights=weights, padding="same")
    norm = network.normalization
    with zipfile.ZipFile(data / "imagenet" / "imagenette10_160.zip") as archive:
        files = sorted(name for name in archive.namelist() if "train" in name)
        names = [name for name in files if name.lower().endswith((".jpg", ".jpeg"))]
        pictures = [Image.open(io.BytesIO(archive.read(n))).convert("RGB") for n in names[::3]]
    pixels = np.stack([np.asarray(center_crop(picture, SIZE)) for picture in pictures])
    images = (
        torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
        - torch.tensor(norm.mean).view(1, 3, 1, 1)
    ) / torch.tensor(norm.std).view(1, 3, 1, 1)
    pocketune.restore_batch_norm(network, images.split(32))
    return network


def kit_for(network: torch.nn.Module, method: str, classes: tuple[str, ...], out: Path) -> None:
    """A kit of the network with a new classifier."""
    fresh = pocketune.create_network(
        "mobilenet_v2",
        weights=network,
        padding="same",
        classes=len(classes),
        normalization=network.normalization,
    )
    adapted = pocketune.adapt(fresh, pocketune.create_method(method))
    pocketune.compile(adapted, out, batch=BATCH, size=SIZE, classes=classes)


def publish(rows: list[list[str]], seeds: int) -> None:
    """Write the table as far as it has come: a row takes minutes."""
    header = ["photos", "method", "top-1 %, mean ± standard deviation", "seconds a run"]
    note = (
        f"{SIZE} px, batch {BATCH}, Adam, cosine to 0, learning rates {RATES}, epochs {SETS}; "
        f"{seeds} seeds (order, crops, dropout). Top-1 on each set's own test split, "
        "of the best epoch on that split: a comparison of methods, not an unbiased estimate."
    )
    write("accuracy", "The baseline methods on real photos", f"{note}\n\n{table(header, rows)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--photos", nargs="+", choices=tuple(SETS), default=tuple(SETS))
    options = parser.parse_args()
    if not options.data.is_dir():
        sys.exit(f"skipped: no images and weights at {options.data}; name their folder with --data")
    network = pretrained(options.data)
    rows: list[list[str]] = []
    for name in options.photos:
        epochs = SETS[name]
        photos = options.data / "classification" / f"{name}.zip"
        classes = load_splits(photos).classes
        for method in options.methods:
            with tempfile.TemporaryDirectory() as scratch:
                kit = Path(scratch) / "kit"
                kit_for(network, method, classes, kit)
                results, seconds = [], []
                for seed in range(options.seeds):
                    start = time.perf_counter()
                    result = pocketune.train(
                        kit,
                        photos,
                        out=Path(scratch) / f"run{seed}",
                        epochs=epochs,
                        seed=seed,
                        lr=RATES[method],
                        checkpoint_seconds=None,
                        progress=Silent(),
                    )
                    seconds.append(time.perf_counter() - start)
                    results.append(100 * pocketune.evaluate(result.run, photos).top1)
            spread = stdev(results) if len(results) > 1 else 0.0
            accuracy = f"{mean(results):.1f} ± {spread:.1f}"
            rows.append([name, method, accuracy, f"{mean(seconds):.0f}"])
            publish(rows, options.seeds)


if __name__ == "__main__":
    main()
