"""A small transformer, pretrained on half of CIFAR-10 and transferred to the other half.

No pretrained weights of a transformer are at hand. So one of 4 blocks and 64 tokens (patches of
4 x 4 pixels) is pretrained on five classes, from random values and for few epochs, and its
transfers to the other five, from a new classifier, are compared. Another network takes its place
where one is given.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from pocketune.networks.anatomy.output import classifier_layers

WIDTH, HEADS, PATCH, SIDE, BLOCKS = 64, 4, 4, 32, 4
BATCH, TESTED = 32, 200
"""Images of a step, and test photos of each class that are usual."""

Data = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Photos with their labels: those to train on, and those to test on."""


class Block(nn.Module):
    """Attention and a perceptron, each behind a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.act = nn.GELU()
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, C) -> the same shape."""
        qkv = self.qkv(self.norm1(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*qkv.unbind(0))
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        added: Tensor = x + self.fc2(self.act(self.fc1(self.norm2(x))))
        return added


class Transformer(nn.Module):
    """The mean of all tokens leads to the scores."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.positions = nn.Parameter(0.02 * torch.randn(1, (SIDE // PATCH) ** 2, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, 32, 32) -> (N, classes)."""
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        logits: Tensor = self.head(self.norm(self.blocks(x)).mean(1))
        return logits


def photos(path: str, classes: range, most: int, side: int = SIDE) -> tuple[Tensor, Tensor]:
    """Photos (N, 3, side, side) of these classes, so many of each, and their labels from 0."""
    from pyarrow import parquet

    images: list[np.ndarray] = []
    labels: list[int] = []
    for row in parquet.read_table(path, columns=["image", "label"]).to_pylist():
        label = row["label"] - classes.start
        if row["label"] in classes and labels.count(label) < most:
            images.append(np.asarray(Image.open(io.BytesIO(row["image"])).convert("RGB")))
            labels.append(label)
    pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float()
    if side != SIDE:
        pixels = functional.interpolate(pixels, side, mode="bilinear")
    return (pixels / 255 - 0.47) / 0.25, torch.tensor(labels)


def train(network: nn.Module, data: tuple[Tensor, Tensor], epochs: int, rate: float) -> None:
    """Adam with a cosine to zero; every second photo is mirrored."""
    images, labels = data
    parameters = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=rate)
    steps = epochs * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    network.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(images)).split(BATCH)[: len(images) // BATCH]:
            batch = images[chosen]
            batch = torch.where(torch.rand(len(batch), 1, 1, 1) < 0.5, batch.flip(3), batch)
            loss = functional.cross_entropy(network(batch), labels[chosen])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()


@torch.no_grad()
def accuracy(network: nn.Module, data: tuple[Tensor, Tensor]) -> float:
    """Per cent."""
    scores = torch.cat([network.eval()(batch) for batch in data[0].split(256)])
    return 100 * (scores.argmax(1) == data[1]).float().mean().item()


def pretrained(
    folder: Path,
    photos_of_class: int,
    epochs: int,
    make: Callable[[int], nn.Module] = Transformer,
    side: int = SIDE,
) -> tuple[nn.Module, float]:
    """The network with a new classifier, and the accuracy that its pretraining reached.

    Args:
        folder: Of the data.
        photos_of_class: To pretrain with.
        epochs: Of the pretraining.
        make: Makes the network for a number of classes.
        side: Of its images, in pixels.
    """
    start = time.process_time()
    torch.manual_seed(0)
    network = make(5)
    train_file, test_file = _files(folder)
    train(network, photos(train_file, range(5), photos_of_class, side), epochs, 1e-3)
    reached = accuracy(network, photos(test_file, range(5), TESTED, side))
    print(f"pretrained: {reached:.1f} %, {time.process_time() - start:.0f} s", flush=True)
    for name in classifier_layers(network):
        network.get_submodule(name).reset_parameters()  # type: ignore[operator]
    return network, reached


def transfer(folder: Path, photos_of_class: int, tested: int = TESTED, side: int = SIDE) -> Data:
    """The other five classes, with so many photos of each to train on and to test on."""
    train_file, test_file = _files(folder)
    classes = range(5, 10)
    trained = photos(train_file, classes, photos_of_class, side)
    return trained, photos(test_file, classes, tested, side)


def _files(folder: Path) -> tuple[str, str]:
    train_file, test_file = (
        str(folder / "cifar10" / f"cifar10_{part}.parquet") for part in ("train", "test")
    )
    return train_file, test_file
