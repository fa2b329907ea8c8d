"""From photos to a model in a few minutes: Pocketune's plan against fixed recipes in PyTorch.

    python benchmarks/bench_cold_start.py [--data FOLDER] [--seconds 90 300] [--budget 96MB]

`pocketune train --budget --time --weights-dir` on flower_photos, with all pretrained networks to
choose from, and with each limit of time. Beside it, PyTorch trains the largest of these networks as
a practitioner would, its last layer, and all of it, for the whole limit from the start of the
process to the last step; Pocketune ends where it gains no more.
These have no limit of memory; batch 32, Adam, cosine decay to zero at the end of the time. All see
the same 2,000 photos with the same crops and are judged by the same 500 test photos afterwards.
Results in the .json are kept, so that a stopped run continues; `--fresh` discards them.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pocketune
from data import parse, unpack
from pocketune.device.train.record import RunRecord
from pocketune.processes.command import run_command
from pretrained import NETWORKS, weights_file
from report import keep, kept, table, write

if TYPE_CHECKING:
    from torch import nn

NETWORK, SIZE, BATCH = "mbv2-w1.0", 160, 32
RATES = {"last layer": 3e-3, "all layers": 3e-4}
LAST_STEP = 0.97
"""Share of the time in which steps begin."""


def planned(data: Path, photos: Path, run: Path, budget: str, seconds: int) -> dict[str, Any]:
    """Pocketune's choice, trained."""
    began = time.monotonic()
    code, errors = run_command(
        *("train", photos / "train", "--out", run, "--weights-dir", data / "weights"),
        *("--budget", budget, "--time", seconds),
        quiet=True,
        keep_errors=True,
    )
    if code:
        raise SystemExit(errors)
    taken = time.monotonic() - began
    record = RunRecord.read(run)
    choice = f"{record.network['name']} {record.network['width']:g}, {record.size} px"
    return {
        "what": f"Pocketune: {choice}, {record.method['name']}",
        "steps": record.steps,
        "images": record.batch,
        "seconds": taken,
        "peak": record.peak_memory / 1e6,
        "test": 100 * pocketune.evaluate(run, photos / "test").top1,
    }


def fixed(data: Path, photos: Path, what: str, seconds: int) -> dict[str, Any]:
    """A recipe in PyTorch, in a fresh process."""
    job = [str(weights_file(data, NETWORK)), str(photos), what, str(seconds)]
    done = subprocess.run(
        [sys.executable, __file__, "--worker", *job], check=True, stdout=subprocess.PIPE, text=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def worker(weights: str, photos: str, what: str, seconds: float, began: float) -> dict[str, Any]:
    """Train in PyTorch until the time is over."""
    import torch
    from torch.nn.functional import cross_entropy

    from pocketune.data import Loader, load_splits
    from pocketune.device.memory.process import process_memory
    from pocketune.networks import anatomy, normalize
    from pocketune.weights import create_network

    torch.manual_seed(0)
    train = load_splits(Path(photos) / "train", val_fraction=0.0).train
    one = NETWORKS[NETWORK]
    network = create_network(one.network, **one.options(weights), classes=len(train.classes))
    head = network.get_submodule(anatomy(network).classifier[-1])
    network.requires_grad_(what == "all layers")
    head.requires_grad_(True)
    trained = [each for each in network.parameters() if each.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=RATES[what])
    steps, loader = 0, Loader(train, size=SIZE, batch=BATCH, train=True)
    network.eval()  # the published weights have their norms folded in, with the statistics

    def passed() -> float:
        return (time.monotonic() - began) / (LAST_STEP * seconds)

    for batch in (each for epoch in count() for each in loader.epoch(epoch)):
        if passed() >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = RATES[what] * (1 + math.cos(math.pi * passed())) / 2
        logits = network(normalize(network, batch.images))
        optimizer.zero_grad()
        cross_entropy(logits, torch.from_numpy(batch.labels)).backward()
        optimizer.step()
        steps += 1
    taken, peak = time.monotonic() - began, process_memory().peak
    return {
        "what": f"PyTorch: {one.network} {one.width:g}, {SIZE} px, {what}",
        "steps": steps,
        "images": BATCH,
        "seconds": taken,
        "peak": peak / 1e6,
        "test": accuracy(network, Path(photos) / "test"),
    }


def accuracy(network: nn.Module, photos: Path) -> float:
    """Percent of the photos of the right class."""
    import torch

    from pocketune.data import Loader, load_splits
    from pocketune.networks import normalize

    test, right = load_splits(photos, val_fraction=1.0).val, 0
    with torch.inference_mode():
        for batch in Loader(test, size=SIZE, batch=BATCH, train=False).epoch(0):
            found = network(normalize(network, batch.images)).argmax(1).numpy()
            right += int((found == batch.labels).sum())
    return 100 * right / len(test)


def publish(results: dict[str, dict[str, dict[str, Any]]], budget: str) -> None:
    """Write what is known so far."""
    rows = [
        [
            f"{limit} s",
            found["what"],
            f"{found['seconds']:.0f}",
            f"{found['peak']:.0f}",
            f"{found['steps']} of {found['images']}",
            f"{found['test']:.1f}",
        ]
        for limit, recipes in results.items()
        for found in (recipes[what] for what in ("plan", *RATES) if what in recipes)
    ]
    header = ["limit", "recipe", "seconds", "peak MB", "steps of images", "test, %"]
    note = (
        f"flower_photos: 2,000 photos of 5 flowers, a limit of time from nothing, and a budget of "
        f"{budget} for Pocketune, which chooses among four networks, three resolutions and four "
        "methods in this time. PyTorch trains the largest network without a limit of memory."
    )
    keep("cold_start", results)
    write(
        "cold_start", "From photos to a model in a few minutes", f"{note}\n\n{table(header, rows)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, nargs="+", default=[90, 300])
    parser.add_argument("--budget", default="96MB")
    parser.add_argument("--fresh", action="store_true", help="keep nothing of the .json")
    options = parse(parser)
    results: dict[str, Any] = {} if options.fresh else kept("cold_start")
    with tempfile.TemporaryDirectory() as scratch:
        photos = unpack(options.data, "flower_photos", Path(scratch) / "photos")
        for seconds in options.seconds:
            recipes = results.setdefault(str(seconds), {})
            if "plan" not in recipes:
                run = Path(scratch) / f"run-{seconds}"
                recipes["plan"] = planned(options.data, photos, run, options.budget, seconds)
                publish(results, options.budget)
            for what in RATES:
                if what not in recipes:
                    recipes[what] = fixed(options.data, photos, what, seconds)
                    publish(results, options.budget)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        started = time.monotonic()
        weights, photos, what, seconds = sys.argv[2:]
        print(json.dumps(worker(weights, photos, what, float(seconds), started)))
    else:
        main()
