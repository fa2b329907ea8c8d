"""Compile the two kits that come with Pocketune from its pretrained network.

    python tools/build_demo_kits.py runs/cifar10/network.safetensors src/pocketune/kit/bundled

``tools/pretrain_cifar10.py`` writes the network. Needs ``pip install pocketune[author]``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from safetensors import safe_open

import pocketune

BATCH, SIZE = 16, 96
METHODS = {"last": pocketune.LastLayer(), "blocks": pocketune.TopBlocks(blocks=3)}


def main() -> None:
    """Write one kit for each method and print its size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    with safe_open(arguments.weights, "pt") as file:
        classes = json.loads(file.metadata()["classes"])
    for name, method in METHODS.items():
        network = pocketune.create_network(
            "mobilenet_v2", weights=arguments.weights, width=0.35, classes=len(classes)
        )
        path = arguments.out / f"{name}.zip"
        adapted = pocketune.adapt(network, method)
        pocketune.compile(
            adapted, path, batch=BATCH, size=SIZE, task=pocketune.Classification(tuple(classes))
        )
        print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
