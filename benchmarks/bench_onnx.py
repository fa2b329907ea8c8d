"""Networks from ONNX files and methods: which of these compile.

    python benchmarks/bench_onnx.py [--networks NAME ...] [--size 64]

Each network, with random weights and five classes, is exported by PyTorch's two exporters, and
loaded. It is adapted to each method, and the step is compiled with a batch of two images; the
compiled step and PyTorch then train for five steps side by side, as for every kit. Files of the
exporter with `dynamo=True` are left out without onnxscript.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from pocketune import adapt, anatomy, create_network, load_onnx
from pocketune import compile as compile_kit
from pocketune.errors import PocketuneError
from pocketune.methods import create_method
from report import table, write

NETWORKS = ("mobilenet_v2", "resnet18", "convnext_atto", "vit_tiny")
METHODS = ("last", "bias", "blocks", "lora", "mobiletl", "tinytl")
EXPORTERS = {"dynamo=False, opset 17": (False, 17), "dynamo=True, opset 23": (True, 23)}


def export(network: nn.Module, path: Path, *, dynamo: bool, opset: int, size: int) -> None:
    """Write a file with a dynamic batch."""
    batch = {0: "batch"}
    shapes = {"dynamic_shapes": (batch,)} if dynamo else {"dynamic_axes": {"images": batch}}
    torch.onnx.export(
        network,
        (torch.zeros(2, 3, size, size),),
        path,
        dynamo=dynamo,
        opset_version=opset,
        input_names=["images"],
        verbose=False,
        **shapes,
    )


def used(network: nn.Module) -> None:
    """Give batch norms shifts, as training does: an exporter leaves out biases of 0."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.bias, std=0.1)


def compiled(network: nn.Module, method: str, size: int) -> str:
    """`kit`, or `no` where the method does not fit the blocks, or the error."""
    try:
        adapted = adapt(network, create_method(method))
    except PocketuneError:
        return "no"
    with tempfile.TemporaryDirectory() as folder:
        try:
            compile_kit(adapted, Path(folder) / "kit", batch=2, size=size)
        except PocketuneError as error:
            return f"error: {error}"
    return "kit"


def blocks_of(network: nn.Module) -> str:
    """The kinds of a network's blocks, with their numbers."""
    kinds = Counter(block.kind for block in anatomy(network).blocks)
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items())


def rows_of(name: str, size: int) -> list[list[str]]:
    """A row for each exporter."""
    rows = []
    torch.manual_seed(0)
    network = create_network(name, classes=5).eval()
    used(network)
    for exporter, (dynamo, opset) in EXPORTERS.items():
        if dynamo and find_spec("onnxscript") is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            export(network, path, dynamo=dynamo, opset=opset, size=size)
            loaded = load_onnx(path, size=size)
        same = "yes" if blocks_of(loaded) == blocks_of(network) else "no"
        results = [compiled(loaded, method, size) for method in METHODS]
        rows.append([name, exporter, blocks_of(loaded), same, *results])
        print(*rows[-1], sep=", ", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=NETWORKS, choices=NETWORKS)
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [row for name in options.networks for row in rows_of(name, options.size)]
    cells = [cell for row in rows for cell in row[4:]]
    text = (
        f"{options.size} px, batch 2. Of {len(cells)} pairs, {cells.count('kit')} compile to a kit "
        f"that trains as PyTorch does for five steps, and {cells.count('no')} are refused because "
        "the method does not fit the blocks (`no`).\n\n"
    )
    header = ["network", "exporter", "its blocks", "as the original's", *METHODS]
    write("onnx", "Networks from ONNX files and methods", text + table(header, rows))


if __name__ == "__main__":
    main()
