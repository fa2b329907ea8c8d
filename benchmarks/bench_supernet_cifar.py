"""A supernet pretrained from scratch on CIFAR-10, through all phases of progressive shrinking.

    python benchmarks/bench_supernet_cifar.py [--out supernet.safetensors] [--epochs 4]
        [--photos 2000]

No pretrained weights: the largest sub-network first, then smaller kernels, fewer blocks and fewer
channels, with the largest as teacher. Sub-networks are measured on test images when only the
largest has been trained and at the end, with their batch norms re-estimated on training images. If
the script is stopped, it goes on where it was, with the same `--out`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch

import pocketune
from data import parse, unpack_cifar10
from pocketune.data import ImageDataset, Loader, load_splits
from pocketune.device.train.display import console
from pocketune.device.train.progress import PhotosReport, Silent
from pocketune.networks import normalize
from pocketune.papers.tinytl_search import macs_of
from pocketune.shrinking import ShrinkingRecipe
from pocketune.supernet import Space, SubnetConfig, Supernet
from report import table, write

SPACE = Space(
    channels="mobilenet_v2",
    width=0.35,
    classes=10,
    depths=(1, 2),
    kernels=(3, 5),
    expansions=(3, 4, 6),
    sizes=(32, 40),
)
ESTIMATED, SAMPLED = 1000, 31


class KeepLargest(Silent):
    """Shows the line, and copies the supernet's file when its first phase has ended."""

    def __init__(self, out: Path, copy: Path) -> None:
        self._out, self._copy, self._shown = out, copy, console()

    def photos(self, report: PhotosReport) -> None:
        """Called after each step; the purpose begins with the name of the phase."""
        if not report.purpose.startswith("largest") and not self._copy.exists():
            shutil.copyfile(self._out, self._copy)
        self._shown.photos(report)

    def close(self) -> None:
        """End the line."""
        self._shown.close()


@torch.inference_mode()
def accuracy(
    supernet: Supernet, config: SubnetConfig, train: ImageDataset, test: ImageDataset
) -> float:
    """Percent of the test images of the right class."""
    network, size = supernet.subnet(config), SPACE.sizes[-1]
    batches = pocketune.sample_batches(network, train, size=size, count=ESTIMATED, batch=100)
    pocketune.estimate_batch_norm(network, batches)
    network.eval()
    right = 0
    for batch in Loader(test, size=size, batch=100, train=False).epoch(0):
        found = network(normalize(network, batch.images)).argmax(1)
        right += int((found == torch.from_numpy(batch.labels)).sum())
    return 100 * right / len(test)


def chosen() -> dict[str, SubnetConfig]:
    """The sub-networks to measure; those between are quantiles by MACs of some that are drawn."""
    rng = np.random.default_rng(0)
    drawn = [SPACE.sample(rng) for _ in range(SAMPLED)]
    drawn.sort(key=lambda config: macs_of(SPACE, config).inference)
    return {
        "smallest": SPACE.smallest,
        "lower quartile": drawn[SAMPLED // 4],
        "median": drawn[SAMPLED // 2],
        "upper quartile": drawn[3 * SAMPLED // 4],
        "largest": SPACE.largest,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file of the supernet; by default it is removed")
    parser.add_argument("--epochs", type=int, default=4, help="of a long phase")
    parser.add_argument("--photos", type=int, default=2000, help="training images of each class")
    options = parse(parser)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        out = options.out or Path(name) / "supernet.safetensors"
        copy = out.with_suffix(".largest.safetensors")
        unpack_cifar10(options.data / "cifar10", Path(name), options.photos)
        splits = load_splits(Path(name) / "train", val_fraction=0.0)
        train, test = splits.train, load_splits(Path(name) / "test", val_fraction=0.0).train
        pocketune.pretrain_supernet(
            Supernet(SPACE),
            train,
            out,
            recipe=ShrinkingRecipe(epochs=options.epochs),
            accelerator="cpu",
            progress=KeepLargest(out, copy),
        )
        states = [pocketune.load_supernet(path) for path in (copy, out)]
        rows = []
        for label, config in chosen().items():
            figures = [f"{accuracy(state, config, train, test):.1f}" for state in states]
            macs = macs_of(SPACE, config, SPACE.sizes[-1]).inference / 1e6
            parameters = sum(p.numel() for p in states[0].subnet(config).parameters()) / 1e6
            rows.append([label, f"{macs:.2f}", f"{parameters:.2f}", *figures])
    header = ["sub-network", "MACs (M)", "parameters (M)", "only the largest", "all phases"]
    note = (
        f"MobileNetV2's channels at width {SPACE.width}, depths {SPACE.depths}, kernels "
        f"{SPACE.kernels}, expansions {SPACE.expansions}, images of {SPACE.sizes[0]} to "
        f"{SPACE.sizes[-1]} px, random weights at first, {options.epochs} epochs a long phase of "
        f"{len(train):,} training images on one core. Top-1 in percent of {len(test):,} test "
        f"images at {SPACE.sizes[-1]} px (about ±3), when only the largest "
        "sub-network has been trained, and after all phases."
    )
    title = "A supernet from scratch, through all phases"
    write("supernet_cifar", title, f"{note}\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
