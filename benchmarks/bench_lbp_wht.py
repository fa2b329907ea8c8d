"""LBP-WHT on a small vision transformer: accuracy, what is kept, and FLOPs of the backward pass.

    python benchmarks/bench_lbp_wht.py [--data FOLDER] [--epochs 8] [--photos 400] [--seeds 1]

A transformer of 4 blocks and 64 tokens (patches of 4 x 4 pixels) is pretrained on five classes of
CIFAR-10, from random values and for few epochs: no pretrained weights of a transformer are at hand.
It is then transferred to the other five, from a new classifier, with Adam, in PyTorch, at one rate
for whole networks and another for parts of them, neither of them searched. Scores are those of the
last step, on test photos of these five classes. The script is skipped if the data are missing.
"""

from __future__ import annotations

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from data import parse
from pocketune.accounting import account
from pocketune.methods import (
    BiasAndLast,
    FullFineTune,
    LastLayer,
    LoRA,
    LowRankBackward,
    Method,
    adapt,
)
from report import spread, table, write

WIDTH, HEADS, PATCH, SIDE, BLOCKS = 64, 4, 4, 32, 4
BATCH, TESTED = 32, 200
METHODS: tuple[tuple[Method, float], ...] = (
    (LastLayer(), 3e-3),
    (BiasAndLast(), 3e-3),
    (LoRA(4), 3e-3),
    (LoRA(4) + LowRankBackward(8, 6, frozen=True), 3e-3),
    (FullFineTune(), 1e-3),
    *((FullFineTune() + LowRankBackward(8, rank), 1e-3) for rank in (1, 3, 6)),
)
"""Methods and their rates."""


Data = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]


class Block(nn.Module):
    """Attention and a perceptron, each behind a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, C) -> the same shape."""
        qkv = self.qkv(self.norm1(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*qkv.unbind(0))
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        added: Tensor = x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))
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


def photos(path: str, classes: range, most: int) -> tuple[Tensor, Tensor]:
    """Photos (N, 3, 32, 32) of these classes, so many of each, and their labels from 0."""
    from pyarrow import parquet

    images: list[np.ndarray] = []
    labels: list[int] = []
    for row in parquet.read_table(path, columns=["image", "label"]).to_pylist():
        label = row["label"] - classes.start
        if row["label"] in classes and labels.count(label) < most:
            images.append(np.asarray(Image.open(io.BytesIO(row["image"])).convert("RGB")))
            labels.append(label)
    pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float()
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


def row(
    method: Method, rate: float, pretrained: nn.Module, options: argparse.Namespace, data: Data
) -> list[str]:
    """Accuracy over the seeds, and the costs of a step."""
    adapted = adapt(pretrained, method)
    report = account(adapted, batch=BATCH, size=SIDE)
    scores = []
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        network = adapt(pretrained, method)
        train(network, data[0], options.epochs, rate)
        scores.append(accuracy(network, data[1]))
    print(method, scores, flush=True)
    return [
        str(method).replace(", frozen=False", "").replace(", train_down=True", ""),
        spread(scores),
        f"{rate:g}",
        f"{report.kept_bytes / 1e6:.1f}",
        f"{report.flops.backward / 1e9:.2f}",
    ]


def main() -> None:
    """Pretrain, transfer by every method, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8, help="of the transfer")
    parser.add_argument("--pretraining", type=int, default=8, help="epochs of the pretraining")
    parser.add_argument("--photos", type=int, default=400, help="of a class to pretrain with")
    parser.add_argument("--transfer", type=int, default=100, help="of a class to transfer with")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each method")
    options = parse(parser)
    folder = options.data / "cifar10"
    train_file, test_file = (str(folder / f"cifar10_{part}.parquet") for part in ("train", "test"))
    start = time.process_time()
    torch.manual_seed(0)
    network = Transformer(5)
    first = range(5)
    train(network, photos(train_file, first, options.photos), options.pretraining, 1e-3)
    reached = accuracy(network, photos(test_file, first, TESTED))
    print(f"pretrained: {reached:.1f} %, {time.process_time() - start:.0f} s", flush=True)
    network.head = nn.Linear(WIDTH, 5)
    data = (
        photos(train_file, range(5, 10), options.transfer),
        photos(test_file, range(5, 10), TESTED),
    )
    rows = [row(*method, network, options, data) for method in METHODS]
    header = ("method", "top-1, %", "rate", "kept, MB", "backward, GFLOPs")
    text = (
        f"Pretrained on {options.photos} photos of each of the first five classes for "
        f"{options.pretraining} epochs, {reached:.1f} % on their test photos; transferred to "
        f"{options.transfer} photos of each of the others for {options.epochs} epochs, batch "
        f"{BATCH}; {TESTED} test photos of each class."
    )
    write("lbp_wht", "LBP-WHT on a small transformer", f"{text}\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
