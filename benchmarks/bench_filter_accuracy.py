"""Accuracy of filtered gradients: fine-tune on the other half of CIFAR-10, exact and filtered.

    python benchmarks/bench_filter_accuracy.py [--data FOLDER] [--seeds 4] [--epochs 5]

A small version of the paper's set-up: CIFAR-10 is divided into two halves that hardly share a class
(`user` in the files). A network is trained on the first half, then the last convolutions and a
classifier on the second, with exact gradients and with patches of 2, 4 and 7 pixels. Batch norms
are frozen in fine-tuning, and the stages before the last run once for every image. Eager PyTorch,
channels last; skipped if the data are missing. Takes an estimated twenty-five minutes on one core;
`--images 128 --epochs 1 --seeds 1` takes half a minute.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

import pocketune
from bench_filter_step import remove_filters
from data import parse
from pocketune.methods import GradientFilter
from report import spread, table, write

NETWORK = {"name": "resnet18", "width": 0.25, "classes": 10}
BATCH, SIZE = 128, 224  # the last maps have 7 x 7 pixels, as in the paper
PATCHES, LAYERS = (2, 4, 7), (2, 4)


class Half:
    """One user's images, uint8 (N, 3, 32, 32), in a part to train on and a part to test on.

    Twice as many to train on as to test on.
    """

    def __init__(self, data: Path, user: int, images: int) -> None:
        from pyarrow import parquet

        columns = ["image", "label", "user", "user_rank"]
        rows = parquet.read_table(data / "cifar10" / "cifar10_train.parquet", columns=columns)
        rows = rows.filter(np.asarray(rows["user"]) == user)
        rank = np.asarray(rows["user_rank"])
        self.labels = torch.from_numpy(np.asarray(rows["label"]).astype(np.int64))
        pictures = [Image.open(io.BytesIO(cell.as_py())) for cell in rows["image"]]
        pixels = np.stack([np.asarray(picture) for picture in pictures])
        self.images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
        self.train = torch.from_numpy(np.flatnonzero(rank < min(20_000, images)))
        tested = (rank >= 20_000) & (rank < 20_000 + images // 2)
        self.test = torch.from_numpy(np.flatnonzero(tested))

    def batch(self, indices: Tensor) -> Tensor:
        """In [-1, 1], resized, channels last."""
        pixels = self.images[indices].float() / 127.5 - 1
        pixels = functional.interpolate(pixels, size=SIZE, mode="bilinear")
        return pixels.contiguous(memory_format=torch.channels_last)


class Features:
    """A half whose images have gone through all but the last stage of a trained network."""

    def __init__(self, network: nn.Module, half: Half) -> None:
        used = torch.cat([half.train, half.test])
        network.eval()
        with torch.no_grad():
            maps = torch.cat([bottom(network, half.batch(part)) for part in used.split(BATCH)])
        self.maps = maps.contiguous(memory_format=torch.channels_last)
        self.labels = half.labels[used]
        self.train, self.test = torch.arange(len(used)).split([len(half.train), len(half.test)])

    def batch(self, indices: Tensor) -> Tensor:
        """Channels last."""
        return self.maps[indices].contiguous(memory_format=torch.channels_last)


def bottom(network: nn.Module, x: Tensor) -> Tensor:
    """All of a ResNet before its last stage."""
    y = network.maxpool(network.relu(network.bn1(network.conv1(x))))
    return network.layer3(network.layer2(network.layer1(y)))


class Top(nn.Module):
    """Its last stage and classifier."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.layer4, self.fc = network.layer4, network.fc

    def forward(self, x: Tensor) -> Tensor:
        """Features -> class scores."""
        return self.fc(self.layer4(x).mean((2, 3)))


def fit(network: nn.Module, half: Half | Features, epochs: int, rate: float) -> float:
    """Train as in the paper (SGD, clipped at 2, cosine to a tenth); returns the test accuracy."""
    parameters = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, rate, weight_decay=1e-4)
    steps = epochs * -(-len(half.train) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, rate / 10)
    for _ in range(epochs):
        network.train()
        order = half.train[torch.randperm(len(half.train))]
        for indices in order.split(BATCH):
            loss = functional.cross_entropy(network(half.batch(indices)), half.labels[indices])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 2.0)
            optimizer.step()
            schedule.step()
    return accuracy(network.eval(), half)


@torch.no_grad()
def accuracy(network: nn.Module, half: Half | Features) -> float:
    hits = [
        (network(half.batch(indices)).argmax(1) == half.labels[indices]).sum().item()
        for indices in half.test.split(BATCH)
    ]
    return 100 * sum(hits) / len(half.test)


def adapted(network: nn.Module, layers: int, patch: int | None) -> nn.Module:
    """The top, ready to fine-tune the same parameters, exactly where `patch` is None."""
    network = pocketune.adapt(network, GradientFilter(patch or 2, layers))
    if patch is None:
        remove_filters(network)
    return Top(network.to(memory_format=torch.channels_last))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--images", type=int, default=4_000)
    options = parse(parser)
    first, second = (Half(options.data, user, options.images) for user in (0, 1))
    torch.manual_seed(0)
    pretrained = pocketune.create_network(**NETWORK).to(memory_format=torch.channels_last)
    print(f"first half: {fit(pretrained, first, options.epochs, 0.1):.1f} %", flush=True)
    features = Features(pretrained, second)
    rows = []
    for layers in LAYERS:
        for patch in (None, *PATCHES):
            scores = []
            for seed in range(options.seeds):
                torch.manual_seed(seed)
                scores.append(
                    fit(adapted(pretrained, layers, patch), features, options.epochs, 0.05)
                )
            gradients = "exact" if patch is None else f"patch {patch}"
            rows.append([str(layers), gradients, spread(scores)])
            print(*rows[-1], flush=True)
    note = (
        f"ResNet-18, width 0.25, {SIZE} px, batch {BATCH}, {options.epochs} epochs, "
        f"{len(second.train)} images to train and {len(second.test)} to test on, "
        f"{options.seeds} seeds: mean ± standard deviation of top-1, %."
    )
    header = ["last layers", "gradients", "top-1, %"]
    write("filter_accuracy", "Filtered gradients on CIFAR-10", f"{note}\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
