"""Compile the two kits that come with Pocketune from its pretrained network.

    python tools/build_demo_kits.py runs/cifar10/network.safetensors src/pocketune/kit/bundled
    python tools/build_demo_kits.py src/pocketune/kit/bundled/blocks.zip src/pocketune/kit/bundled

``tools/pretrain_cifar10.py`` writes the network. The second command renews the kits after a change
of the compiler: ``blocks.zip`` has the whole network, with the frozen norms folded into the layers
before them. Needs ``pip install pocketune[author]``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

import pocketune
from pocketune.kit.kit import Kit
from pocketune.kit.names import FEATURES

BATCH, SIZE = 16, 96
METHODS = {"last": pocketune.LastLayer(), "blocks": pocketune.TopBlocks(blocks=3)}


def main() -> None:
    """Write one kit for each method and print its size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="the network's weights, or blocks.zip")
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    classes, state = (
        from_kit(arguments.source)
        if arguments.source.suffix == ".zip"
        else from_file(arguments.source)
    )
    for name, method in METHODS.items():
        network = created(classes)
        network.load_state_dict(state)
        path = arguments.out / f"{name}.zip"
        adapted = pocketune.adapt(network, method)
        pocketune.compile(
            adapted, path, batch=BATCH, size=SIZE, task=pocketune.Classification(tuple(classes))
        )
        print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")


def created(classes: list[str]) -> nn.Module:
    """The network with random values."""
    return pocketune.create_network("mobilenet_v2", width=0.35, classes=len(classes))


def from_file(path: Path) -> tuple[list[str], dict[str, Tensor]]:
    """The classes and the values of a file that ``pretrain_cifar10.py`` wrote."""
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["classes"]), load_file(path)


def from_kit(path: Path) -> tuple[list[str], dict[str, Tensor]]:
    """The classes and the values of a kit whose frozen part is convolutions in a row.

    A frozen norm adds the bias that it was folded into, and is the identity otherwise.
    """
    kit = Kit.open(path)
    classes = list(kit.manifest.task.classes)
    graph = onnx.load_from_string(bytes(kit.source(FEATURES))).graph
    frozen = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    folded = [node.input[1:] for node in graph.node if node.op_type == "Conv"]
    network = created(classes)
    state = network.state_dict()
    layers = [
        (name, module)
        for name, module in network.named_modules()
        if isinstance(module, (nn.Conv2d, nn.BatchNorm2d))
    ]
    for (conv, _), (norm, module), (kernel, bias) in zip(
        layers[::2], layers[1::2], folded, strict=False
    ):
        assert isinstance(module, nn.BatchNorm2d)
        state[f"{conv}.weight"] = torch.from_numpy(frozen[kernel].copy())
        state[f"{norm}.bias"] = torch.from_numpy(frozen[bias].copy())
        state[f"{norm}.running_mean"] = torch.zeros_like(state[f"{norm}.bias"])
        state[f"{norm}.running_var"] = torch.ones_like(state[f"{norm}.bias"])
        state[f"{norm}.weight"] = torch.ones_like(state[f"{norm}.bias"]).add(module.eps).sqrt()
    state.update({name: torch.from_numpy(values.copy()) for name, values in kit.state().items()})
    return classes, state


if __name__ == "__main__":
    main()
