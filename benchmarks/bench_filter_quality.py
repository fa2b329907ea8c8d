"""Noise of filtered gradients on pretrained networks and real photos, for every alignment.

    python benchmarks/bench_filter_quality.py [--data FOLDER] [--photos 32]

Signal-to-noise ratio of the kernels' gradients (mean over layers, decibels) where the last layers
are filtered, and the share of each kind of kernel's energy that is in its sums. Skipped if the data
are missing; `--data` has `weights/` and `imagenet/`. Takes two minutes.
"""

from __future__ import annotations

import argparse
import csv
import io
import zipfile
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import pocketune
from data import parse
from pocketune.data import center_crop
from pocketune.methods import GradientFilter, dc_energy, gradient_snr
from pocketune.networks.anatomy.modules import is_depthwise, is_pointwise
from pretrained import weights_file
from report import table, write

NETWORKS = {
    "mbv2-w0.35": {"name": "mobilenet_v2", "width": 0.35, "feature_fusion": False},
    "proxyless-w0.3": {"name": "proxylessnas_mobile", "width": 0.3, "feature_fusion": False},
    "mcunet-5fps": {"name": "mcunet_5fps"},
}
SIZES = (128, 160, 224)  # last maps of 4 x 4, 5 x 5 and 7 x 7 pixels
LAYERS, PATCHES = (4, 8, 12), (2, 4)
ALIGNMENTS = ("natural", "paper", "reference")


def load_photos(data: Path, size: int, count: int) -> tuple[Tensor, Tensor]:
    """Photos of ImageNet's validation set, in [-1, 1], and their classes among the 1,000."""
    lines = (data / "weights" / "imagenet_classes.txt").read_text().splitlines()
    classes = {line.split()[1]: int(line.split()[0]) for line in lines}
    with zipfile.ZipFile(data / "imagenet" / "imagenette10_160.zip") as archive:
        rows = list(csv.DictReader(io.StringIO(archive.read("labels.csv").decode())))
        rows = [row for row in rows if "ILSVRC2012_val" in row["file"]]
        rows = rows[:: len(rows) // count][:count]
        pictures = [Image.open(io.BytesIO(archive.read(row["file"]))) for row in rows]
    pixels = np.stack([np.asarray(center_crop(p.convert("RGB"), size)) for p in pictures])
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 127.5 - 1
    return images, torch.tensor([classes[row["wnid"]] for row in rows])


def noise_row(file: str, network: nn.Module, size: int, data: Path, photos: int) -> list[list[str]]:
    images, labels = load_photos(data, size, photos)
    rows = []
    for layers in LAYERS:
        for patch in PATCHES:
            found = []
            for alignment in ALIGNMENTS:
                method = GradientFilter(patch, layers, alignment)
                snr = gradient_snr(network, method, images, labels)
                found.append(mean(min(layer.kernel, 40) for layer in snr))
            row = [file, str(size), str(layers), str(patch), *(f"{db:.2f}" for db in found)]
            rows.append(row)
            print(*row, flush=True)
    return rows


def energy_row(file: str, network: nn.Module) -> list[str]:
    shares: dict[str, list[float]] = {"depthwise": [], "dense": []}
    for name, share in dc_energy(network).items():
        conv = network.get_submodule(name)
        if not is_pointwise(conv):
            shares["depthwise" if is_depthwise(conv) else "dense"].append(share)
    return [file, *(f"{mean(v):.3f}" if v else "-" for v in shares.values())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=int, default=32)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options = parse(parser)
    noise, energy = [], []
    for file, arguments in NETWORKS.items():
        weights = weights_file(options.data, file)
        network = pocketune.create_network(**arguments, weights=weights)
        energy.append(energy_row(file, network))
        for size in options.sizes:
            noise += noise_row(file, network, size, options.data, options.photos)
    header = ["network", "pixels", "last layers", "patch", *(f"{a}, dB" for a in ALIGNMENTS)]
    text = (
        "Signal-to-noise ratio of the kernels' gradients, mean over the filtered layers; a layer "
        f"without noise counts 40 dB. {options.photos} photos of ImageNet's validation set.\n\n"
        f"{table(header, noise)}\n\nShare of the kernels' energy that is in their sums over the "
        "taps, mean over layers (1x1 kernels have 1; 1 / taps is that of random kernels).\n\n"
        f"{table(['network', 'depthwise', 'dense'], energy)}"
    )
    write("filter_quality", "Noise of filtered gradients", text)


if __name__ == "__main__":
    main()
