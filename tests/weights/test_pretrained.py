"""The four public pretrained networks: logits, batch norm, accuracy on real images."""

import csv
import io
import zipfile
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from pocketune.networks import Normalization, about
from pocketune.weights import create_network, restore_batch_norm

BATCH = 8  # larger ones leave the caches


@dataclass(frozen=True)
class Public:
    """A public network, how to build it, and its accuracy as published with the files."""

    file: str
    options: dict
    size: int
    resize: int
    top1: float


PUBLIC = (
    Public(
        "mbv2-w0.35",
        {"name": "mobilenet_v2", "width": 0.35, "feature_fusion": False},
        128,
        147,
        0.494,
    ),
    Public(
        "proxyless-w0.3",
        {"name": "proxylessnas_mobile", "width": 0.3, "feature_fusion": False},
        128,
        147,
        0.468,
    ),
    Public("mcunet-5fps", {"name": "mcunet_5fps"}, 128, 147, 0.580),
    Public("mbv2-w1.0", {"name": "mobilenet_v2", "padding": "same"}, 224, 256, 0.688),
)


@pytest.fixture(scope="module", params=PUBLIC, ids=lambda public: public.file)
def public(request):
    return request.param


def load(public, shared_data):
    path = shared_data / "weights" / f"{public.file}.float32.safetensors"
    network = create_network(**public.options, weights=path).eval()
    assert about(network).normalization == Normalization.HALF
    return network.to(memory_format=torch.channels_last)


def normalized(images):
    """uint8 (N, H, W, 3) -> float (N, 3, H, W) in [-1, 1]."""
    batch = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1
    return batch.contiguous(memory_format=torch.channels_last)


def crop(image, resize, size):
    """Shorter side to `resize`, then the middle."""
    scale = resize / min(image.size)
    image = image.resize([round(side * scale) for side in image.size], Image.Resampling.BILINEAR)
    left, top = (round((side - size) / 2) for side in image.size)  # one pixel less costs a point
    return np.asarray(image.crop((left, top, left + size, top + size)))


@pytest.fixture(scope="module")
def imagenet(shared_data):
    """(images, class among 1000) of the training and the validation part."""
    parts = {"train": [], "test": []}
    with zipfile.ZipFile(shared_data / "imagenet" / "imagenette10_160.zip") as archive:
        for row in csv.DictReader(io.StringIO(archive.read("labels.csv").decode())):
            image = Image.open(io.BytesIO(archive.read(row["file"]))).convert("RGB")
            parts[row["split"]].append((image, int(row["imagenet_index"])))
    return parts


def prepared(part, public):
    images = np.stack([crop(image, public.resize, public.size) for image, _ in part])
    return images, torch.tensor([label for _, label in part])


def reference(shared_data, public):
    with np.load(shared_data / "weights" / "reference_outputs.npz") as arrays:
        return arrays[f"images_{public.size}"], torch.from_numpy(
            arrays[f"{public.file}.float_logits"]
        )


def test_reference_logits(public, shared_data):
    network = load(public, shared_data)
    images, logits = reference(shared_data, public)
    with torch.inference_mode():
        torch.testing.assert_close(network(normalized(images)), logits, rtol=0, atol=5e-5)


def test_batch_norm_restored(public, shared_data, imagenet):
    """True statistics from training images; the logits stay."""
    network = load(public, shared_data)
    images, _ = prepared(imagenet["train"][::56], public)
    batches = [normalized(batch) for batch in np.array_split(images, len(images) // BATCH)]
    restore_batch_norm(network, batches)
    stem = network.features[0]
    with torch.inference_mode():
        seen = torch.cat([stem[0](batch) for batch in batches])
        variance, mean = torch.var_mean(seen, (0, 2, 3), correction=0)
        torch.testing.assert_close(stem[1].running_mean, mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(stem[1].running_var, variance, rtol=1e-4, atol=1e-5)
        images, logits = reference(shared_data, public)
        torch.testing.assert_close(network(normalized(images)), logits, rtol=0, atol=2e-4)
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert all(norm.running_mean.any() for norm in norms)


def test_top1_on_imagenet_validation(public, shared_data, imagenet):
    """500 genuine validation images of 10 classes, among all 1000 classes."""
    if public.size > 128:
        pytest.skip("takes as long as the three others; its logits are those of the reference")
    network = load(public, shared_data)
    images, labels = prepared(imagenet["test"], public)
    with torch.inference_mode():
        guesses = [
            network(normalized(images[start : start + BATCH])).argmax(1)
            for start in range(0, len(images), BATCH)
        ]
    top1 = (torch.cat(guesses) == labels).float().mean().item()
    assert top1 == pytest.approx(public.top1, abs=0.0041)  # two images of 500
