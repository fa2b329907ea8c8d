"""Ratios found for a memory target, with predicted and compiled memory.

    python benchmarks/bench_prune.py [--networks mobilenet_v2 ...] [--size 224] [--batch 8]

Networks have random weights, since memory does not depend on them. For each one: the peak of one
image by the papers' rules before and after pruning to the target, and what the compiled Rep-Net
step really needs: the live bytes at the peak of the frozen part (one image at a time) and of the
step (a batch).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

import pocketune
from pocketune.pruning import PruningPlan, plan_pruning
from pocketune.surgery import prune
from report import table, write

NETWORKS = ("mobilenet_v2", "mobilenet_v3_small", "proxylessnas_mobile", "mcunet_5fps")


def compiled_bytes(network: torch.nn.Module, size: int, batch: int) -> str:
    """Live bytes of a Rep-Net kit's graphs."""
    adapted = pocketune.adapt(network, pocketune.RepNet())
    with tempfile.TemporaryDirectory() as scratch:
        kit = pocketune.compile(adapted, Path(scratch) / "kit", batch=batch, size=size)
        memory = kit.manifest.memory
    return " / ".join(f"{memory.get(part, 0) / 1e6:.2f}" for part in ("features", "step"))


def ratios(plan: PruningPlan) -> str:
    """The blocks that lose channels."""
    parts = [
        f"{block.rpartition('.')[2]}: {left} of {count}"
        for block, (count, left) in plan.channels.items()
    ]
    return ", ".join(parts) or "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--target", default="cumulative")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    rows = []
    for name in options.networks:
        network = pocketune.create_network(name, classes=10)
        plan = plan_pruning(network, options.target, size=options.size)
        pruned = prune(network, plan.ratios, importance="weight")
        rows.append(
            [
                name,
                f"{plan.target_bytes / 1e6:.2f}",
                ratios(plan),
                f"{plan.before.peak.peak_bytes / 1e6:.2f}",
                f"{plan.after.peak.peak_bytes / 1e6:.2f}",
                compiled_bytes(network, options.size, options.batch),
                compiled_bytes(pruned, options.size, options.batch),
            ]
        )
    header = [
        "network",
        "target",
        "hidden channels left, by block",
        "peak before",
        "peak after",
        "compiled before, frozen part / step",
        "compiled after",
    ]
    note = (
        f"MB of 10^6 bytes, {options.size} px. Target and peaks are for one image by the papers' "
        f"rules; compiled are the live bytes of the kit's graphs: the frozen part for one image, "
        f"the step for a batch of {options.batch}."
    )
    write("prune", f"Pruning for a target of {options.target}", f"{note}\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
