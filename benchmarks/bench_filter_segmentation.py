"""Accuracy of filtered gradients in segmentation: fine-tune on the other half of CamVid.

    python benchmarks/bench_filter_segmentation.py [--data FOLDER] [--seeds 3] [--epochs 8]

The paper's protocol on a small scale. The training photos are divided into two halves by video
sequence. A decode head over a pretrained backbone is trained on the first half. On the second half
the network is calibrated, and its last five or ten convolutions are trained as in the paper's
table 3, with exact and with filtered gradients. All are tested on CamVid's test photos. What lies
below the trained layers runs once for every photo. Eager PyTorch; skipped if the data are missing.
Takes about twenty minutes on one core; ``--seeds 1 --epochs 1`` takes five.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

import pocketune
from data import parse
from pocketune.methods import Calibrate, GradientFilter, TopBlocks
from pocketune.networks import normalize
from pocketune.papers import trace_modules
from pocketune.papers.gradfilter import GradientFilterFlops
from pocketune.papers.gradfilter_tables import DENSE
from report import spread, table, write

CLASSES, VOID = 11, 11
HEIGHT, WIDTH, BATCH = 176, 240, 8
CUT = 2  # rows above and below, of 180
FIRST_TRAINED = 16  # of the backbone's modules
NETWORKS = {"PSPNet-M": "pspnet", "DeepLabV3-M": "deeplabv3"}
SETTINGS = {"5": False, "10": False, "5, filtered": True, "10, filtered": True}


class Photos:
    """uint8 photos (N, H, W, 3) and masks (N, H, W), and where the parts of the set are."""

    def __init__(self, data: Path) -> None:
        path = data / "segmentation" / "camvid_12cls_180x240.zip"
        with zipfile.ZipFile(path) as archive:
            names = [n for n in archive.namelist() if "/images/" in n and not n.startswith("val/")]
            self.images = torch.stack([self._read(archive, name) for name in names])
            masks = [n.replace("/images/", "/masks/").replace(".jpg", ".png") for n in names]
            self.masks = torch.stack([self._read(archive, name) for name in masks])
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
def features(network: nn.Module, images: Tensor) -> Tensor:
    """The maps of images as they are and of mirrored ones (2, N, C, h, w)."""
    network.eval()
    found = []
    for part in (*images.split(BATCH), *images.flip(2).split(BATCH)):
        x = normalize(network, part)
        for name, module in network.backbone.items():
            x = module(x) if int(name) < FIRST_TRAINED else x
        found.append(x)
    return torch.cat(found).unflatten(0, (2, -1))


def fit(top: nn.Module, maps: Tensor, photos: Photos, part: Tensor, epochs: int) -> None:
    """Adam with a cosine schedule; the loss at every fourth row and column."""
    weights, labels = photos.weights(part), photos.masks[:, ::4, ::4].long()
    trained = [p for p in top.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, 1e-3)
    steps = epochs * (len(part) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    top.train()
    for _ in range(epochs):
        for indices in part[torch.randperm(len(part))].split(BATCH):
            if len(indices) < BATCH:
                continue
            mirrored = int(torch.randint(2, ()))
            target = labels[indices].flip(2) if mirrored else labels[indices]
            optimizer.zero_grad()
            loss(top(maps[mirrored, indices]), target, weights).backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()


def loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    logits = functional.interpolate(logits, labels.shape[1:], mode="bilinear", align_corners=False)
    return functional.cross_entropy(logits, labels, weights, ignore_index=VOID)


def calibrated(network: nn.Module, photos: Photos, epochs: int) -> None:
    """Train the classifier and move all statistics on the second half, in place."""
    adapted = pocketune.adapt(network, Calibrate())
    images = torch.stack([photos.images, photos.images.flip(2)])

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.adapted = adapted

        def forward(self, part: Tensor) -> Tensor:
            return self.adapted(normalize(network, part))

    fit(Whole(), images, photos, photos.second, epochs)
    network.load_state_dict(adapted.state_dict(), strict=False)


@torch.no_grad()
def miou(top: nn.Module, maps: Tensor, photos: Photos) -> tuple[float, float]:
    """Mean IoU over the classes, and accuracy of the pixels, in per cent."""
    top.eval()
    confusion = torch.zeros(CLASSES, CLASSES)
    for indices in photos.test.split(BATCH):
        logits = functional.interpolate(top(maps[0, indices]), (HEIGHT, WIDTH), mode="bilinear")
        truth = photos.masks[indices].long()
        cells = truth * CLASSES + logits.argmax(1)
        counts = cells[truth != VOID].bincount(minlength=CLASSES**2)
        confusion += counts.view(CLASSES, CLASSES)
    hits = confusion.diagonal()
    union = confusion.sum(0) + confusion.sum(1) - hits
    return 100 * (hits / union).mean().item(), 100 * (hits.sum() / confusion.sum()).item()


def adapted_to(network: nn.Module, patches: Mapping[str, int], filtered: bool) -> nn.Module:
    """The network, ready to train these layers."""
    sizes = {name: patch for name, patch in patches.items() if patch and filtered}
    return pocketune.adapt(network, GradientFilter(sizes, layers=tuple(patches)))


def work(adapted: nn.Module) -> float:
    """Billions of FLOPs of the backward pass for one photo, as the paper counts."""
    return GradientFilterFlops().count(trace_modules(adapted, (3, HEIGHT, WIDTH))).total / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    options = parse(parser)
    photos, rows = Photos(options.data), []
    for label, name in NETWORKS.items():
        torch.manual_seed(0)
        network = pocketune.create_network(
            name,
            backbone="mobilenet_v2",
            width=0.35,
            head_channels=32,
            classes=CLASSES,
            weights=options.data / "weights" / "mbv2-w0.35.float32.safetensors",
        )
        chosen = photos.first[torch.linspace(0, len(photos.first) - 1, 96).long()].split(BATCH)
        batches = (normalize(network, photos.images[part]) for part in chosen)
        pocketune.restore_batch_norm(network, batches)
        start = pocketune.adapt(network, TopBlocks(blocks=0))
        maps = features(network, photos.images)
        fit(Top(start), maps, photos, photos.first, 2 * options.epochs)
        network.load_state_dict(start.state_dict(), strict=False)
        print(f"{label}, first half: {miou(Top(network), maps, photos)[0]:.1f} %", flush=True)
        calibrated(network, photos, max(options.epochs // 3, 1))
        maps = features(network, photos.images)
        score = miou(Top(network), maps, photos)
        rows.append([label, "calibrated", f"{score[0]:.1f}", f"{score[1]:.1f}", ""])
        print(*rows[-1], flush=True)
        layers = DENSE[label]
        ten = {**layers.five, **layers.more}
        for setting, filtered in SETTINGS.items():
            scores = []
            for seed in range(options.seeds):
                torch.manual_seed(seed)
                patches = layers.five if setting.startswith("5") else ten
                adapted = adapted_to(network, patches, filtered)
                top = Top(adapted)
                fit(top, maps, photos, photos.second, options.epochs)
                scores.append(miou(top, maps, photos))
            first, second = ([score[place] for score in scores] for place in (0, 1))
            flops = f"{work(adapted):.4f}"
            rows.append([label, setting, spread(first), spread(second), flops])
            print(*rows[-1], flush=True)
    note = (
        f"MobileNetV2 0.35 of ImageNet, decode head of 32 channels, {WIDTH} x {HEIGHT} px, batch "
        f"{BATCH}; {len(photos.first)} photos of sequence 0016E5 to train the head for "
        f"{2 * options.epochs} epochs, {len(photos.second)} of the others to fine-tune for "
        f"{options.epochs}, {len(photos.test)} to test on; {options.seeds} seeds: mean ± standard "
        "deviation. Classes are weighted. FLOPs are those of the backward pass for one photo, as "
        "the paper counts them."
    )
    header = ["network", "last convolutions", "mIoU, %", "pixel accuracy, %", "GFLOPs"]
    title = "Filtered gradients in segmentation, on halves of CamVid"
    write("filter_segmentation", title, f"{note}\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
