"""Small networks to prune and retrain, and photos to retrain them on."""

import numpy as np
import torch
from PIL import Image

from pocketune.data import load_splits
from pocketune.weights import create_network


def dark_and_light(folder):
    """Training photos of two classes, eight of each."""
    rng = np.random.default_rng(0)
    for label, name in enumerate(("dark", "light")):
        (folder / name).mkdir()
        for number in range(8):
            pixels = rng.integers(0, 100, (32, 32, 3), np.uint8) + np.uint8(150 * label)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return load_splits(folder, val_fraction=0.0).train


def network(classes=2):
    torch.manual_seed(0)
    return create_network(
        "mobilenet_v2", width=0.1, classes=classes, hidden={"features.2": 20, "features.3": 30}
    )


def dense_network(**options):
    torch.manual_seed(0)
    return create_network(
        "deeplabv3", backbone="mobilenet_v2", width=0.1, head_channels=8, classes=3, **options
    )
