"""The papers' figures, drawn from our own accounting and results into docs/images.

    python benchmarks/figures.py [--out docs/images]

`mobiletl_blocks.svg`: MobileTL's figure 4, stored activations and FLOPs by the number of trained
blocks. `repnet_pruning.svg`: the memory of Rep-Net by block, before and after pruning with the
paper's ratios. `filter_patches.svg`: the work of one convolution's backward pass by the size of
the patches, after gradient filtering's figure 3, but for other layers and for both gradients (the
paper draws the input gradient of one U-Net layer). These are counted by the papers' own rules.
`accuracy_memory.svg` is measured: accuracy against memory, as in MobileTL's figure 5, from the
results of `bench_accuracy.py`; so is `forecast.svg`, from those of `bench_forecast.py`.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from torch import nn

import pocketune
from pocketune.accounting.plot import draw_blocks, finish
from pocketune.filtering import FilteredConv2d
from pocketune.papers import published_flops, published_memory, trace_modules
from pocketune.papers.gradfilter import GradientFilterFlops
from pocketune.papers.repnet import PRUNED
from report import RESULTS

BATCH, CLASSES = 8, 100
NETWORKS = ("mobilenet_v3_small", "proxylessnas_mobile")
LINES = (
    ("all of a block, exactly", "#e76f51", pocketune.TopBlocks),
    ("MobileTL", "#2a9d8f", pocketune.MobileTL),
)


def shapes(name: str, classes: int) -> nn.Module:
    """A network without values, which counting needs none of."""
    with torch.device("meta"):
        return pocketune.create_network(name, classes=classes)


def mobiletl_blocks() -> Figure:
    figure = Figure(figsize=(11, 7), layout="constrained")
    for name, (left, right) in zip(NETWORKS, figure.subplots(2, 2), strict=True):
        network = shapes(name, CLASSES)
        counts = range(1, len(pocketune.anatomy(network).blocks) + 1)
        stored: list[list[float]] = []
        flops: list[list[float]] = []
        for _, _, method in LINES:
            adapted = [pocketune.adapt(network, method(blocks=count)) for count in counts]
            stored.append([_stored(each) for each in adapted])
            flops.append([_gigaflops(each) for each in adapted])
        draw_lines(left, f"{name}: stored activations", counts, stored, "MB")
        draw_lines(right, f"{name}: forward and backward", counts, flops, "GFLOP")
    figure.supxlabel("trained blocks, from the last one", fontsize=9)
    return figure


def _stored(adapted: nn.Module) -> float:
    return published_memory(adapted, "mobiletl-stored", batch=BATCH).kept_bytes * BATCH / 1e6


def _gigaflops(adapted: nn.Module) -> float:
    return published_flops(adapted, "mobiletl", batch=BATCH).total / 1e9


def draw_lines(
    axes: Axes, title: str, counts: range, heights: list[list[float]], unit: str
) -> None:
    for (label, color, _), line in zip(LINES, heights, strict=True):
        axes.plot(counts, line, "o-", color=color, label=label, markersize=4, linewidth=1.5)
    axes.set_xticks(counts)
    finish(axes, title, max(map(max, heights)), unit=unit)


def repnet_pruning() -> Figure:
    network = pocketune.create_network("mobilenet_v2", classes=10)
    pruned = pocketune.prune(network, PRUNED, importance="weight")
    figure = Figure(figsize=(11, 8), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharey=True)
    ratios = ", ".join(f"{ratio:.0%}" for ratio in PRUNED.values())
    for axes, each, title in (
        (upper, network, "Rep-Net on MobileNetV2, one image of 224 px: memory by block"),
        (lower, pruned, f"Without {ratios} of the hidden channels of blocks 1 to 4"),
    ):
        blocks = pocketune.profile_memory(pocketune.adapt(each, pocketune.RepNet())).blocks
        draw_blocks(
            axes,
            title,
            names=[block.name for block in blocks],
            temporary=[block.temporary_bytes for block in blocks],
            kept=[block.cumulative_kept_bytes for block in blocks],
            peaks=[block.peak_bytes for block in blocks],
        )
    upper.set_ylim(0, 6.5)
    return figure


def filter_patches() -> Figure:
    """With what summing takes, kernel's taps and output's gradient, and one over r * r."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    patches = range(1, 15)
    for axes, (channels, side) in zip(figure.subplots(1, 2), ((64, 56), (128, 28)), strict=True):
        exact = nn.Conv2d(channels, channels, 3, padding=1, bias=False, device="meta")
        work = [_backward_flops(FilteredConv2d.from_convolution(exact, r), side) for r in patches]
        whole = _backward_flops(exact, side)
        axes.plot(patches, [flops / whole for flops in work], "o-", color="#2a9d8f", markersize=4)
        axes.plot(patches, [1 / r**2 for r in patches], ":", color="#777777")
        sums = 8 * channels**2 + channels * side**2
        axes.axhline(sums / whole, linestyle="--", color="#e76f51", linewidth=1)
        axes.legend(["filtered", "1 / r²", "summing"], fontsize=8, frameon=False)
        axes.set_yscale("log")
        axes.set_title(f"3x3, {channels} to {channels}, {side} x {side} pixels", fontsize=10)
        axes.set_ylabel("FLOPs of the backward pass / exact", fontsize=9)
    figure.supxlabel("rows and columns of a patch", fontsize=9)
    return figure


def _backward_flops(conv: nn.Module, side: int) -> int:
    seen = trace_modules(nn.Sequential(conv), (conv.in_channels, side, side), input_gradient=True)
    return GradientFilterFlops().count(seen).backward


def accuracy_memory() -> Figure:
    """Each method by the peak of a whole process and by its accuracy, a network a panel."""
    kept = sorted(RESULTS.glob("accuracy_*.json"))
    rows = -(-len(kept) // 2)
    figure = Figure(figsize=(11, 4.5 * rows), layout="constrained")
    names: defaultdict[Axes, list[tuple[str, tuple[float, float]]]] = defaultdict(list)
    for axes, path in zip(figure.subplots(rows, 2, squeeze=False).flat, kept, strict=False):
        for method, result in json.loads(path.read_text()).items():
            scores = result["top1"]["flowers"]
            axes.errorbar(
                result["peak"], mean(scores), stdev(scores), fmt="o", color="#2a9d8f", markersize=5
            )
            names[axes].append((method, (result["peak"], mean(scores))))
        axes.set_title(f"{path.stem.removeprefix('accuracy_')} on Flowers", fontsize=10)
        axes.set_xlabel("peak memory of the process, MB", fontsize=9)
        axes.set_ylabel("top-1, %", fontsize=9)
        axes.margins(x=0.3)
    figure.draw_without_rendering()  # from here on, sizes are those of the picture
    for axes, points in names.items():
        _write_names(axes, points)
    return figure


def _write_names(axes: Axes, points: list[tuple[str, tuple[float, float]]]) -> None:
    """Each name beside its point, at the first place where it covers no other name."""
    written: list[Bbox] = []
    for name, point in points:
        for place in ((6, 4), (6, -10), (-6, 4), (-6, -10), (6, 15), (-6, 15), (6, -21)):
            side = "left" if place[0] > 0 else "right"
            text = axes.annotate(
                name, point, place, textcoords="offset points", fontsize=8, ha=side
            )
            if not any(text.get_window_extent().overlaps(other) for other in written):
                break
            text.remove()
        else:
            raise SystemExit(f"there is no place for the name {name} in the picture")
        written.append(text.get_window_extent())


def activation_pruning() -> Figure:
    """Accuracy of full fine-tuning by what it keeps, as its activations are pruned, and L+B."""
    results = json.loads((RESULTS / "activation_pruning.json").read_text())
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    whole = {**results["full, drop 0"], "top1": results["full"]["top1"], "ratio": 0.0}
    lines = {True: ("both passes", "o-", "#2a9d8f"), False: ("the backward pass", "s--", "#e76f51")}
    for forward, (passes, style, color) in lines.items():
        pruned = [found for found in results.values() if found.get("forward") is forward]
        rows = [whole, *(found for found in pruned if found["ratio"] and "top1" in found)]
        if len(rows) == 1:
            continue
        points = [(row["kept"] / 1e6, mean(row["top1"].values())) for row in rows]
        label = f"everything, pruned in {passes}"
        axes.plot(*zip(*points, strict=True), style, color=color, markersize=5, label=label)
        for row, point in zip(rows, points, strict=True):
            share = f"{row['ratio']:.0%}"
            axes.annotate(share, point, (5, 5), textcoords="offset points", fontsize=8)
    tiny = results["L+B"]
    point = tiny["kept"] / 1e6, mean(tiny["top1"].values())
    axes.plot(*point, "D", color="#264653", markersize=7, label="TinyTL-L+B")
    axes.set_xlabel("kept for the backward pass of 8 images, MB", fontsize=9)
    axes.set_ylabel("top-1, %", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    return figure


def forecast() -> Figure:
    """Memory and time that were predicted from shapes, over what was measured."""
    rows = list(json.loads((RESULTS / "forecast.json").read_text()).values())
    figure = Figure(figsize=(11, 5), layout="constrained")
    memory, times = figure.subplots(1, 2)
    peaks = [(row["peak"] / 1e6, row["drafted"] / 1e6) for row in rows]
    steps = [(1e3 * min(row["steps"]), 1e3 * row["estimated"]) for row in rows]
    methods = [row["row"][2] for row in rows]
    _scatter(memory, "peak of a training process, MB", peaks, methods, (60, 80, 120, 200, 300, 400))
    _scatter(times, "a step in one thread, ms", steps, methods, (2, 5, 10, 20, 50, 100, 200))
    memory.legend(fontsize=8, frameon=False)
    return figure


def _scatter(
    axes: Axes,
    title: str,
    points: list[tuple[float, float]],
    methods: list[str],
    ticks: tuple[int, ...],
) -> None:
    """Points of each method in a color of its own, and the line where both are equal."""
    for number, method in enumerate(dict.fromkeys(methods)):
        chosen = [point for point, each in zip(points, methods, strict=True) if each == method]
        axes.plot(*zip(*chosen, strict=True), "o", color=f"C{number}", markersize=5, label=method)
    ends = [min(map(min, points)) * 0.9, max(map(max, points)) * 1.1]
    axes.plot(ends, ends, color="#777777", linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, labels=list(map(str, ticks)))
        axis.set_ticks([], minor=True)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("measured", fontsize=9)
    axes.set_ylabel("predicted from shapes", fontsize=9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    docs = Path(__file__).parents[1] / "docs" / "images"
    parser.add_argument("--out", type=Path, default=docs)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    matplotlib.rcParams.update({"svg.hashsalt": "pocketune", "svg.fonttype": "none"})
    drawings = (
        mobiletl_blocks,
        repnet_pruning,
        filter_patches,
        accuracy_memory,
        activation_pruning,
        forecast,
    )
    for draw in drawings:
        path = options.out / f"{draw.__name__}.svg"
        draw().savefig(path, metadata={"Date": None})
        print(path)


if __name__ == "__main__":
    main()
