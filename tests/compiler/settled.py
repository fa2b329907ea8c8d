"""Networks that behave as pretrained ones do, and images to train them on."""

import numpy as np
import torch
from torch import Tensor, nn

from pocketune.networks import normalize
from pocketune.weights import create_network

from ..networks.shallow import shallow

BATCH, SIZE, CLASSES = 8, 32, 4


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (BATCH, SIZE, SIZE, 3) whose brightest channel or half tells their class."""
    rng = np.random.default_rng([7, 100 + step])
    labels = rng.integers(0, CLASSES, BATCH)
    images = rng.integers(0, 156, (BATCH, SIZE, SIZE, 3), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[:, (label // 2) * SIZE // 2 :, label % 2] += 99
    return images, labels


def settled(name: str) -> nn.Module:
    """Random weights and norms that know such images.

    Without that, signals vanish on the way, the first gradients are in the tens, and any two
    orders of addition train to different networks.
    """
    torch.manual_seed(0)
    network = shallow(create_network(name, width=0.1, classes=CLASSES))
    images = np.concatenate([batch(-step)[0] for step in range(1, 9)])
    return settle(network, normalize(network, images))


def settle(network: nn.Module, images: Tensor) -> nn.Module:
    """Give every batch norm the statistics of these images."""
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0  # takes the batch's statistics as they are
    with torch.no_grad():
        network.train()(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return network
