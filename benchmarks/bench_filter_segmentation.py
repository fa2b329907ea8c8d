"""Filtered gradients in segmentation: fine-tune on the other half of CamVid.

    python benchmarks/bench_filter_segmentation.py [--data FOLDER] [--parts accuracy steps]
        [--networks pspnet deeplabv3] [--seeds 3] [--epochs 8] [--rounds 15] [--device cpu]
        [--fresh]

The paper's protocol on a small scale. The training photos are divided into two halves by video
sequence. On the first half the decode head over a pretrained backbone is trained, and then the
whole network. On the second half the network is calibrated. From there the classifier alone, the
last five or ten convolutions of the paper's table 3, with exact and with filtered gradients, or the
whole network are trained. All are tested on CamVid's test photos. Eager PyTorch; what lies below
the last blocks runs once for every photo, unless all is trained.

`steps` are those of kits that train the same layers, measured as in bench_step.py, on one core.
That needs a machine which does nothing else.

Scores are kept in a .json for each network and steps in another, so that a stopped script goes on
and two processes can train a network each; `--fresh` discards what the chosen parts and networks
have. The page is written from all that is kept. Accuracy takes an hour on one core, less on
a GPU. Skipped if the data are missing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import nn

import bench_step
import pocketune
from camvid import (
    BATCH,
    CLASSES,
    HEIGHT,
    RATE,
    WIDTH,
    Photos,
    Score,
    Top,
    Whole,
    features,
    fit,
    score,
)
from data import parse
from pocketune.methods import Calibrate, FullFineTune, GradientFilter, Method, TopBlocks
from pocketune.networks import normalize
from pocketune.papers import trace_modules
from pocketune.papers.gradfilter import GradientFilterFlops
from pocketune.papers.gradfilter_tables import DENSE
from report import keep, kept, spread, table, write

NAME = "filter_segmentation"
STEPS = f"{NAME}_steps"
SQUARE = 208  # kits take squares; this one has 1.02 times as many pixels
RATE_OF_ALL = 3e-4
NETWORKS = {"pspnet": "PSPNet-M", "deeplabv3": "DeepLabV3-M"}
PARTS = ("accuracy", "steps")
ALL = "all"
SETTINGS = {
    "classifier": (0, False),
    "5": (5, False),
    "10": (10, False),
    "5, filtered": (5, True),
    "10, filtered": (10, True),
    ALL: (0, False),
}
"""How many convolutions are trained besides the classifier, and whether they are filtered."""
BEFORE = ("first half only", "calibrated")


def created(name: str, weights: Path | None = None) -> nn.Module:
    return pocketune.create_network(
        name,
        backbone="mobilenet_v2",
        width=0.35,
        head_channels=32,
        classes=CLASSES,
        weights=weights,
    )


def method(name: str, setting: str) -> Method:
    """What a setting trains; a patch of 0 in the paper's table leaves a layer exact."""
    if setting == ALL:
        return FullFineTune()
    count, filtered = SETTINGS[setting]
    layers = DENSE[NETWORKS[name]]
    patches = {0: {}, 5: layers.five, 10: {**layers.five, **layers.more}}[count]
    sizes = {layer: patch for layer, patch in patches.items() if patch and filtered}
    return GradientFilter(sizes, layers=tuple(patches))


def work(name: str, setting: str) -> float:
    """Billions of FLOPs of the backward pass for one photo, as the paper counts."""
    with torch.device("meta"):
        adapted = pocketune.adapt(created(name), method(name, setting))
    return GradientFilterFlops().count(trace_modules(adapted, (3, HEIGHT, WIDTH))).total / 1e9


def calibrated(name: str, photos: Photos, options: argparse.Namespace) -> tuple[nn.Module, Score]:
    """A network trained on the first half and calibrated on the second; its score between."""
    torch.manual_seed(0)
    network = created(name, options.data / "weights" / "mbv2-w0.35.float32.safetensors")
    chosen = photos.first[torch.linspace(0, len(photos.first) - 1, 96).long()].split(BATCH)
    batches = (normalize(network, photos.images[part].cpu()) for part in chosen)
    pocketune.restore_batch_norm(network, batches)
    head = pocketune.adapt(network, TopBlocks(blocks=0)).to(options.device)
    fit(Top(head), features(head, photos), photos, photos.first, 2 * options.epochs)
    network.load_state_dict(head.state_dict(), strict=False)
    every = pocketune.adapt(network, FullFineTune()).to(options.device)
    images = photos.mirrored
    fit(Whole(every), images, photos, photos.first, 2 * options.epochs, RATE_OF_ALL)
    network.load_state_dict(every.state_dict(), strict=False)
    between = score(Whole(every), images, photos)
    moved = pocketune.adapt(network, Calibrate()).to(options.device)
    fit(Whole(moved), images, photos, photos.second, max(options.epochs // 3, 1))
    network.load_state_dict(moved.state_dict(), strict=False)
    return network, between


def accuracy(name: str, photos: Photos, options: argparse.Namespace) -> None:
    """Scores of all settings and seeds that are not kept."""
    results: dict[str, dict[str, Any]] = {} if options.fresh else kept(f"{NAME}_{name}")
    missing = [
        (setting, seed)
        for setting in SETTINGS
        for seed in range(options.seeds)
        if str(seed) not in results.get(setting, {})
    ]
    if not missing:
        return

    def note(setting: str, seed: int, scores: Score) -> None:
        results.setdefault(setting, {})[str(seed)] = scores
        keep(f"{NAME}_{name}", results)
        print(name, setting, seed, *(f"{each:.1f}" for each in scores), flush=True)

    on = torch.cuda.get_device_name() if options.device == "cuda" else "the processor"
    results["machine"] = {"torch": torch.__version__, "device": on}
    network, between = calibrated(name, photos, options)
    start = pocketune.adapt(network, method(name, "classifier")).to(options.device)
    maps = features(start, photos)
    for setting, scores in zip(BEFORE, (between, score(Top(start), maps, photos)), strict=True):
        note(setting, 0, scores)
    for setting, seed in missing:
        torch.manual_seed(seed)
        adapted = pocketune.adapt(network, method(name, setting)).to(options.device)
        whole = setting == ALL
        module, inputs = (Whole(adapted), photos.mirrored) if whole else (Top(adapted), maps)
        rate = RATE_OF_ALL if whole else RATE
        fit(module, inputs, photos, photos.second, options.epochs, rate)
        note(setting, seed, score(module, inputs, photos))


def steps(name: str, options: argparse.Namespace) -> None:
    """Median milliseconds of a step of a kit, and the peak megabytes of its process."""
    results = kept(STEPS)
    if name in results and not options.fresh:
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as scratch:
        kits = {setting: Path(scratch) / setting for setting in SETTINGS}
        for setting, kit in kits.items():
            adapted = pocketune.adapt(created(name), method(name, setting))
            bench_step.build_kit(adapted, setting, BATCH, SQUARE, kit)
        of = argparse.Namespace(width=0.35, batch=BATCH, size=SQUARE, rounds=options.rounds)
        rows = bench_step.take_turns(name, [(setting, "kit") for setting in SETTINGS], of, kits)
    results[name] = {str(setting): [ms, megabytes] for setting, _, ms, *_, megabytes in rows}
    keep(STEPS, results)


def page(photos: Photos, options: argparse.Namespace) -> str:
    """All that is kept, and what filtering costs and saves."""
    rows, claims, machines = [], [], {}
    for name, label in NETWORKS.items():
        scores, measured = kept(f"{NAME}_{name}"), kept(STEPS).get(name, {})
        machines.update(scores.get("machine", {}))
        flops = {setting: work(name, setting) for setting in SETTINGS}
        for setting in (*BEFORE, *SETTINGS):
            found = scores.get(setting, {}).values()
            shares = [spread(column) for column in zip(*found, strict=True)] or [""] * 3
            billions = f"{flops[setting]:.4f}" if setting in flops else ""
            rows.append([label, setting, *shares, billions, *measured.get(setting, ["", ""])])
        for count in ("5", "10"):
            exact, filtered = count, f"{count}, filtered"
            if exact in scores and filtered in scores and measured:
                ious = [mean(s[0] for s in scores[each].values()) for each in (exact, filtered)]
                took = [[float(x) for x in measured[each]] for each in (exact, filtered)]
                ratios = [a / b for a, b in zip(*took, strict=True)]
                less = f"{flops[exact] / flops[filtered]:.0f}"
                lost = f"{ious[0] - ious[1]:.1f}"
                claims.append([label, count, lost, less, *(f"{each:.2f}" for each in ratios)])
    header = ["network", "trained", "mIoU, %", "mAcc, %", "pixel accuracy, %", "GFLOPs"]
    lost = ["network", "convolutions", "points of mIoU lost", "times fewer FLOPs"]
    return (
        f"MobileNetV2 0.35 of ImageNet, decode head of 32 channels, batch {BATCH}. On "
        f"{len(photos.first)} photos of sequence 0016E5 the head is trained for "
        f"{2 * options.epochs} epochs, then the whole network for as many. On "
        f"{len(photos.second)} photos of the others it is calibrated for "
        f"{max(options.epochs // 3, 1)} and fine-tuned for {options.epochs}; "
        f"{len(photos.test)} to test on, {WIDTH} x {HEIGHT} px; {options.seeds} seeds of the "
        "fine-tuning: mean ± standard deviation. Classes are weighted. FLOPs are those of the "
        "backward pass for one photo, as the paper counts them, without the classifier. Steps are "
        f"those of kits for {SQUARE} x {SQUARE} px on one core, with random photos: the median of "
        "steps that took turns, and the peak of a process. Accuracy is of PyTorch "
        f"{' on '.join(machines.values())}.\n\n"
        f"{table([*header, 'step, ms', 'peak process MB'], rows)}\n\n"
        "Exact gradients against filtered ones:\n\n"
        f"{table([*lost, 'step, times faster', 'peak, times less'], claims)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--fresh", action="store_true", help="forget what is in the .json")
    options = parse(parser)
    torch.backends.cudnn.allow_tf32 = False  # exact gradients have all bits
    photos = Photos(options.data, options.device)
    for name in options.networks:
        if "accuracy" in options.parts:
            accuracy(name, photos, options)
        if "steps" in options.parts:
            steps(name, options)
    title = "Filtered gradients in segmentation, on halves of CamVid"
    write(NAME, title, page(photos, options))


if __name__ == "__main__":
    main()
