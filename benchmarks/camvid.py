"""CamVid in two halves by video sequence, and training on them in PyTorch.

The photos lose two rows above and below, so that all sides are multiples of 8.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from pocketune.networks import normalize
from pocketune.tasks.overlap import SegmentationEvaluation

CLASSES, VOID = 11, 11
HEIGHT, WIDTH, BATCH = 176, 240, 8
CUT = 2  # rows above and below, of 180
FIRST_TRAINED = 16  # of the backbone's modules
RATE = 1e-3
Score = list[float]
"""Mean IoU, mean accuracy of the classes and accuracy of the pixels, in per cent."""


class Photos:
    """uint8 photos (N, H, W, 3) and masks (N, H, W), and where the parts of the set are."""

    def __init__(self, data: Path, device: str) -> None:
        path = data / "segmentation" / "camvid_12cls_180x240.zip"
        with zipfile.ZipFile(path) as archive:
            names = [n for n in archive.namelist() if "/images/" in n and not n.startswith("val/")]
            self.images = torch.stack([self._read(archive, name) for name in names]).to(device)
            masks = [n.replace("/images/", "/masks/").replace(".jpg", ".png") for n in names]
            self.masks = torch.stack([self._read(archive, name) for name in masks]).to(device)
        self.mirrored = torch.stack([self.images, self.images.flip(2)])
        first = [name.startswith("train/images/0016E5") for name in names]
        train = [name.startswith("train/") for name in names]
        self.first = torch.tensor([i for i, is_first in enumerate(first) if is_first])
        self.second = torch.tensor([i for i, t in enumerate(train) if t and not first[i]])
        self.test = torch.tensor([i for i, t in enumerate(train) if not t])

    @staticmethod
    def _read(archive: zipfile.ZipFile, name: str) -> Tensor:
        pixels = np.asarray(Image.open(io.BytesIO(archive.read(name))))
        return torch.from_numpy(pixels[CUT:-CUT].copy())

    def weights(self, indices: Tensor) -> Tensor:
        """sqrt(median share / share) of each class, 1 on average over all pixels."""
        counts = self.masks[indices].flatten().bincount(minlength=CLASSES + 1)[:CLASSES].double()
        shares = counts / counts.sum()
        weights = (shares.median() / shares).sqrt()
        return (weights / (weights * shares).sum()).float()


class Whole(nn.Module):
    """uint8 photos -> logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """uint8 (N, H, W, 3) -> logits."""
        return self.network(normalize(self.network, images))


class Top(nn.Module):
    """What is above the features that are kept."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *(module for name, module in network.backbone.items() if int(name) >= FIRST_TRAINED)
        )
        self.decode_head, self.classifier = network.decode_head, network.classifier

    def forward(self, x: Tensor) -> Tensor:
        """Features -> logits."""
        return self.classifier(self.decode_head(self.blocks(x)))


@torch.no_grad()
def features(network: nn.Module, photos: Photos) -> Tensor:
    """The maps of photos as they are and of mirrored ones (2, N, C, h, w)."""
    network.eval()
    found = []
    for part in photos.mirrored.flatten(0, 1).split(BATCH):
        x = normalize(network, part)
        for name, module in network.backbone.items():
            x = module(x) if int(name) < FIRST_TRAINED else x
        found.append(x)
    return torch.cat(found).unflatten(0, (2, -1))


def fit(
    module: nn.Module,
    inputs: Tensor,
    photos: Photos,
    part: Tensor,
    epochs: int,
    rate: float = RATE,
) -> None:
    """Adam with a cosine schedule; the loss at every fourth row and column."""
    weights, labels = photos.weights(part), photos.masks[:, ::4, ::4].long()
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, rate)
    steps = epochs * (len(part) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    module.train()
    for _ in range(epochs):
        for indices in part[torch.randperm(len(part))].split(BATCH):
            if len(indices) < BATCH:
                continue
            mirrored = int(torch.randint(2, ()))
            target = labels[indices].flip(2) if mirrored else labels[indices]
            optimizer.zero_grad()
            loss(module(inputs[mirrored, indices]), target, weights).backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()


def loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    logits = functional.interpolate(logits, labels.shape[1:], mode="bilinear", align_corners=False)
    return functional.cross_entropy(logits, labels, weights, ignore_index=VOID)


@torch.no_grad()
def score(module: nn.Module, inputs: Tensor, photos: Photos) -> Score:
    """On the photos to test on."""
    module.eval()
    confusion = torch.zeros(CLASSES**2, dtype=torch.long, device=inputs.device)
    for indices in photos.test.split(BATCH):
        logits = functional.interpolate(
            module(inputs[0, indices]), (HEIGHT, WIDTH), mode="bilinear"
        )
        truth = photos.masks[indices].long()
        cells = truth * CLASSES + logits.argmax(1)
        confusion += cells[truth != VOID].bincount(minlength=CLASSES**2)
    names = tuple(map(str, range(CLASSES)))
    square = confusion.view(CLASSES, CLASSES).cpu().numpy()
    result = SegmentationEvaluation(names, square, len(photos.test))
    return [100 * each for each in (result.miou, result.macc, result.pixel_accuracy)]
