"""Ratios found for a memory target, with predicted, compiled and measured memory.

    python benchmarks/bench_prune.py [--networks mobilenet_v2 ...] [--size 224] [--batch 8]

Networks have random weights, since memory does not depend on them. For each one: the peak of one
image by the papers' rules before and after pruning to the target, what the compiled Rep-Net step
really needs: the live bytes at the peak of the frozen part (one image at a time) and of the step
(a batch), and the peak resident memory of a fresh process that trains the kit.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

import pocketune
from bench_tinytl import CLASSES, PHOTOS
from data import class_names, write_photos
from fresh import kit_peak
from pocketune.pruning import PruningPlan, plan_pruning
from pocketune.surgery import prune
from report import table, write

NETWORKS = ("mobilenet_v2", "mobilenet_v3_small", "proxylessnas_mobile", "mcunet_5fps")


def compiled(network: torch.nn.Module, size: int, batch: int) -> tuple[str, str]:
    """Live bytes of a Rep-Net kit's graphs, and the peak of a process that trains it."""
    adapted = pocketune.adapt(network, pocketune.RepNet())
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        task = pocketune.Classification(tuple(class_names(CLASSES)))
        kit = pocketune.compile(adapted, scratch / "kit", batch=batch, size=size, task=task)
        graphs = kit.manifest.graphs
        photos = write_photos(scratch / "photos", CLASSES, PHOTOS)
        peak = kit_peak(kit.path, photos, scratch / "run")
    parts = (graphs[name].memory if name in graphs else 0 for name in ("features", "step"))
    live = " / ".join(f"{part / 1e6:.2f}" for part in parts)
    return live, f"{peak:.0f}"


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
        network = pocketune.create_network(name, classes=CLASSES)
        plan = plan_pruning(network, options.target, size=options.size)
        pruned = prune(network, plan.ratios, importance="weight")
        before, after = (compiled(each, options.size, options.batch) for each in (network, pruned))
        rows.append(
            [
                name,
                f"{plan.target_bytes / 1e6:.2f}",
                ratios(plan),
                f"{plan.before.peak.peak_bytes / 1e6:.2f}",
                f"{plan.after.peak.peak_bytes / 1e6:.2f}",
                *(cell for cells in zip(before, after, strict=True) for cell in cells),
            ]
        )
        print(*rows[-1], flush=True)
    header = [
        "network",
        "target",
        "hidden channels left, by block",
        "peak before",
        "peak after",
        "compiled before, frozen part / step",
        "compiled after",
        "process before",
        "process after",
    ]
    note = (
        f"MB of 10^6 bytes, {options.size} px. Target and peaks are for one image by the papers' "
        f"rules; compiled are the live bytes of the kit's graphs: the frozen part for one image, "
        f"the step for a batch of {options.batch}. The process is one that trains the kit, Python "
        "and runtime included."
    )
    write("prune", f"Pruning for a target of {options.target}", f"{note}\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
