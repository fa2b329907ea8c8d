r"""Pretrain the network that ships with Pocketune: MobileNetV2 of width 0.35 on CIFAR-10.

    python tools/pretrain_cifar10.py CIFAR10_FOLDER runs/small
    python tools/pretrain_cifar10.py CIFAR10_FOLDER runs/large --stages 96x12 --lr 0.08 --start \
        runs/small/network.safetensors

CIFAR10_FOLDER holds ``cifar10_train.parquet`` and ``cifar10_test.parquet`` with the columns
``image`` (JPEG or PNG bytes) and ``label``. The images of 32 px are enlarged for the network, whose
five strides of 2 would leave too little of them: a first cycle at 48 and 64 px, where an epoch is
cheaper, and further ones at 96 px. The result is ``network.safetensors`` in the output folder,
written after every epoch; a run that was stopped goes on where it was. ``docs/model_card.md`` tells
what came out.

Every core trains a replica with one thread on its share of the batch, and the replicas are averaged
every few steps (local SGD, Stich 2019): on a busy machine about twice as fast as threads that wait
for each other in every layer. On Linux, PyTorch is another 1.5 times faster with an allocator that
keeps its memory::

    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 MALLOC_TOP_PAD_=67108864 python ...
"""

from __future__ import annotations

import argparse
import io
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor, multiprocessing, nn
from torch.nn import functional as F

from pocketune.networks import about
from pocketune.weights import create_network

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


def load(path: Path) -> tuple[Tensor, Tensor]:
    """Images uint8 (N, 3, 32, 32), channels last in memory, and labels int64 (N,)."""
    table = parquet.read_table(path, columns=["image", "label"])
    images = [np.asarray(Image.open(io.BytesIO(data))) for data in table["image"].to_pylist()]
    stacked = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
    return stacked, torch.tensor(table["label"].to_pylist())


def enlarge(images: Tensor, size: int, network: nn.Module) -> Tensor:
    """Float images (N, 3, 32, 32) of 0 to 255 -> the network's input (N, 3, size, size)."""
    mean = torch.tensor(about(network).normalization.mean).view(1, 3, 1, 1)
    std = torch.tensor(about(network).normalization.std).view(1, 3, 1, 1)
    images = (images / 255 - mean) / std
    if images.shape[-1] != size:
        images = F.interpolate(images, (size, size), mode="bilinear", align_corners=False)
    return images.contiguous(memory_format=torch.channels_last)


def augment(images: Tensor, pad: int = 4) -> Tensor:
    """Each image shifted by up to ``pad`` pixels and flipped or not: float (N, 3, 32, 32)."""
    count, _, height, width = images.shape
    padded = F.pad(images.float(), (pad,) * 4, mode="reflect")
    rows = torch.randint(2 * pad + 1, (count, 1)) + torch.arange(height)
    columns = torch.randint(2 * pad + 1, (count, 1)) + torch.arange(width)
    columns = torch.where(torch.rand(count, 1) < 0.5, columns, columns.flip(1))
    index = torch.arange(count).view(-1, 1, 1)
    return padded.permute(0, 2, 3, 1)[index, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)


def build_network(seed: int) -> nn.Module:
    """MobileNetV2 of width 0.35 at its random start; so small, it needs no dropout.

    Blocks with a shortcut start as the identity, and the classifier near zero: without both, the
    loss rises in the first hundreds of steps (Goyal et al., 2017, section 5.1).
    """
    torch.manual_seed(seed)
    network = create_network("mobilenet_v2", width=0.35, classes=len(CLASSES))
    network.classifier[0].p = 0.0
    nn.init.normal_(network.classifier[1].weight, std=0.002)
    for module in network.modules():
        if getattr(module, "residual", False):
            nn.init.zeros_(module.conv[-1].weight)
    return network.to(memory_format=torch.channels_last)


def batches(count: int, batch: int, replicas: int, rank: int, seed: int) -> Iterator[Tensor]:
    """Indices of a replica's batches in an epoch shuffled by ``seed``; the rest is dropped."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    steps = count // (batch * replicas)
    yield from order[: steps * batch * replicas].view(steps, replicas, batch)[:, rank]


class Average:
    """Averages the replicas' parameters and statistics, through shared memory."""

    def __init__(self, network: nn.Module, replicas: int) -> None:
        size = sum(value.numel() for value in self._values(network))
        self.shared = torch.zeros(replicas, size).share_memory_()
        self.barrier = multiprocessing.get_context("spawn").Barrier(replicas)

    @torch.no_grad()
    def __call__(self, network: nn.Module, rank: int) -> None:
        """Every replica must call it; each leaves with the same values."""
        values = self._values(network)
        self.shared[rank] = torch.cat([value.flatten() for value in values])
        self.barrier.wait()
        parts = self.shared.mean(0).split([value.numel() for value in values])
        self.barrier.wait()  # nobody writes the next values before all have read these
        for value, part in zip(values, parts, strict=True):
            value.copy_(part.view_as(value))

    @staticmethod
    def _values(network: nn.Module) -> list[Tensor]:
        return [value for value in network.state_dict().values() if value.is_floating_point()]


def optimizer_for(network: nn.Module, weight_decay: float) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum; norms are not decayed, and the classifier is slower.

    Its 1280 inputs are all positive: at the rate that suits the rest, it diverges at first.
    """
    features, classifier = list(network.features.parameters()), network.classifier.parameters()
    groups = [
        {"params": [p for p in features if p.ndim > 1], "weight_decay": weight_decay, "scale": 1.0},
        {"params": [p for p in features if p.ndim <= 1], "weight_decay": 0.0, "scale": 1.0},
        {"params": list(classifier), "weight_decay": weight_decay / 0.1, "scale": 0.1},
    ]
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True)


def learning_rate(progress: float, peak: float, warmup: float) -> float:
    """Linear warm-up to ``peak``, then a half cosine to 0; ``progress`` runs from 0 to 1."""
    if progress < warmup:
        return peak * progress / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))


@torch.no_grad()
def accuracy(network: nn.Module, images: Tensor, labels: Tensor, size: int) -> float:
    """Share of images, enlarged to ``size``, whose most likely class is the right one."""
    network.eval()
    correct = 0
    for part, truth in zip(images.split(250), labels.split(250), strict=True):
        logits = network(enlarge(part.float(), size, network))
        correct += int((logits.argmax(1) == truth).sum())
    return correct / len(labels)


def save(network: nn.Module, path: Path, facts: dict[str, object]) -> None:
    """The state dict as safetensors, with what the file is in its header."""
    state = {name: value.contiguous() for name, value in network.state_dict().items()}
    config = json.dumps(about(network).config.to_dict())
    metadata = {"config": config, "classes": json.dumps(CLASSES), "facts": json.dumps(facts)}
    temporary = path.with_suffix(".tmp")
    save_file(state, temporary, metadata)
    temporary.replace(path)


class Trainer:
    """One replica: network, optimizer and schedule; knows how to stop and go on."""

    def __init__(self, arguments: argparse.Namespace, rank: int, average: Average) -> None:
        self.arguments, self.rank, self.average = arguments, rank, average
        self.network = build_network(arguments.seed)
        if arguments.start is not None:
            self.network.load_state_dict(load_file(arguments.start))
        self.optimizer = optimizer_for(self.network, arguments.weight_decay)
        self.sizes = [size for size, epochs in arguments.stages for _ in range(epochs)]
        self.epoch = 0

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint of ``save_checkpoint``, if there is one."""
        if path.exists():
            saved = torch.load(path, weights_only=True)
            self.network.load_state_dict(saved["network"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.epoch = saved["epoch"]

    def save_checkpoint(self, path: Path) -> None:
        """Everything that the remaining epochs need."""
        saved = {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epoch": self.epoch,
        }
        torch.save(saved, path)

    def train_epoch(self, images: Tensor, labels: Tensor) -> float:
        """One pass over this replica's share, at this epoch's size; returns the mean loss."""
        options = self.arguments
        seed = options.seed * 1000 + self.epoch
        torch.manual_seed(seed * options.replicas + self.rank)
        self.network.train()
        steps, losses = len(images) // (options.batch * options.replicas), []
        parts = batches(len(images), options.batch, options.replicas, self.rank, seed)
        for step, index in enumerate(parts):
            progress = (self.epoch + step / steps) / len(self.sizes)
            self._set_rate(learning_rate(progress, options.lr, 1 / len(self.sizes)))
            losses.append(self._step(images[index], labels[index]))
            if step % options.average_every == 0 or step == steps - 1:
                self.average(self.network, self.rank)
        self.epoch += 1
        return sum(losses) / steps

    def _set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["scale"]

    def _step(self, images: Tensor, labels: Tensor) -> float:
        inputs = enlarge(augment(images), self.sizes[self.epoch], self.network)
        loss = F.cross_entropy(self.network(inputs), labels, label_smoothing=0.1)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def stage(text: str) -> tuple[int, int]:
    """``"48x16"``: sixteen epochs at 48 px."""
    size, epochs = text.split("x")
    return int(size), int(epochs)


def parse_arguments() -> argparse.Namespace:
    """The command line; its defaults are the first cycle of the shipped network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--stages", type=stage, nargs="+", default=[(48, 16), (64, 12)])
    parser.add_argument("--start", type=Path, help="network.safetensors of an earlier cycle")
    parser.add_argument("--batch", type=int, default=96, help="images a replica")
    parser.add_argument("--lr", type=float, default=0.15)
    parser.add_argument("--weight-decay", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replicas", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--average-every", type=int, default=8, help="steps between averages")
    return parser.parse_args()


def train(
    rank: int,
    arguments: argparse.Namespace,
    average: Average,
    data: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
) -> None:
    """One replica's whole run; the first one reports and saves every epoch.

    Epochs are judged on a fifth of the test images, the last one on all of them.
    """
    torch.set_num_threads(1)
    trainer = Trainer(arguments, rank, average)
    trainer.resume(arguments.out / "checkpoint.pt")
    while trainer.epoch < len(trainer.sizes):
        size, start = trainer.sizes[trainer.epoch], time.perf_counter()
        loss = trainer.train_epoch(*data)
        seconds = time.perf_counter() - start
        if rank > 0:
            continue
        last = trainer.epoch == len(trainer.sizes)
        count = len(test[1]) if last else len(test[1]) // 5
        correct = accuracy(trainer.network, test[0][:count], test[1][:count], size)
        facts = {"epoch": trainer.epoch, "accuracy": correct, "images": count}
        save(trainer.network, arguments.out / "network.safetensors", facts)
        trainer.save_checkpoint(arguments.out / "checkpoint.pt")
        print(f"{trainer.epoch} {size} px {loss=:.4f} {correct=:.4f} {seconds=:.0f}", flush=True)


def main() -> None:
    """Load the images once, then train in as many processes as there are replicas."""
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    data = load(arguments.data / "cifar10_train.parquet")
    test = load(arguments.data / "cifar10_test.parquet")
    average = Average(build_network(arguments.seed), arguments.replicas)
    multiprocessing.spawn(train, (arguments, average, data, test), arguments.replicas)


if __name__ == "__main__":
    main()
