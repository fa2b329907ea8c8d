"""TinyTL's table 4, made small: group norm with standardized kernels, and frozen batch norm.

    python benchmarks/bench_group_norm.py [--data FOLDER] [--size 128] [--follow 50] [--epochs 100]
        [--parts pretraining transfer] [--accelerator auto] [--rows last ...] [--batches 8 1]
        [--seeds 3] [--jobs 1] [--runs runs] [--fresh]

Two networks come from the same weights of mbv2-w0.35, whose norms are batch norms. One becomes a
network of group norms and standardized kernels: it first follows the blocks of the original. Then
both get lite residual modules, and all of each network learns the 1000 outputs of a larger one,
mbv2-w1.0 with kernels of 8 bits; the original as teacher would leave modules nothing to learn. All
of this takes the training photos of Imagenette and flower_photos without their labels, where the
paper has ImageNet. The second network keeps its batch norms, on fixed statistics in the transfer.

Both are transferred to 12 kinds of flowers, which the pretraining has not seen, in PyTorch with
Adam and a cosine to zero, from a classifier that is computed from the photos. Each row has its own
rate, the best of three on a fifth of the training photos in a shorter run. Random modules are drawn
anew in the pretrained network. Scores are those of the last step, on the test photos.

The pretraining is for a GPU: there it takes some minutes, on a CPU many hours. The transfers run on
the CPU, in as many processes as `--jobs`. Finished parts are kept in `--runs`, so that a stopped
script goes on; `--fresh` discards them. The script is skipped if the data are missing.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bench_repnet_accuracy import imagenette
from bench_supernet import everything
from data import parse, unpack
from pocketune.data import ImageDataset, Loader, load_splits
from pocketune.device.head import fit_head
from pocketune.device.train.display import console
from pocketune.layers import LiteResidual
from pocketune.methods import (
    FullFineTune,
    LastLayer,
    Method,
    NormAndLast,
    TinyTL,
    final_plan,
)
from pocketune.networks import anatomy, normalize
from pocketune.pruning import Recipe, retrain
from pocketune.tasks import Classification
from pocketune.weights import create_network, restore_batch_norm, sample_batches, save_network
from pretrained import NETWORKS, weights_file
from report import spread, table, write

NAME, TEACHER = "mbv2-w0.35", "mbv2-w1.0"
RATES = {8: (3e-4, 1e-3, 3e-3), 1: (1e-4, 3e-4, 1e-3)}
"""By the number of images in a step."""
RATE = 0.005
"""The peak of SGD's rate, to learn the outputs of the teacher; 0.02 first forgets the features."""
EPOCHS = {8: 10.0, 1: 2.0}
TRIED = {8: 2.0, 1: 0.5}
"""Epochs of the runs that choose a rate."""
NORMS: dict[str, dict[str, Any]] = {
    "group norm": {"norm": "group", "standardized": True},
    "frozen batch norm": {},
}
ROWS: dict[str, tuple[Method, bool]] = {  # the method, and whether the modules are drawn anew
    "last": (LastLayer(), False),
    "random L+B": (TinyTL(), True),
    "L+B": (TinyTL(), False),
    "norm+last": (NormAndLast(), False),
    "full": (FullFineTune(), False),
}
REPLACED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "norms": {"norm": "group"},
    "norms and kernels": {"norm": "group", "standardized": True},
}
"""What a network that loads the weights has in other kinds."""


class Photos:
    """Photos as the network sees them, each epoch's crops decoded once."""

    def __init__(self, folder: Path, size: int, seed: int) -> None:
        train = load_splits(folder / "train", val_fraction=0.0).train
        places = [np.flatnonzero(train.labels == label) for label in np.unique(train.labels)]
        fifth = [int(p) for part in places for p in part[: len(part) // 5]]
        rest = [int(p) for part in places for p in part[len(part) // 5 :]]
        self.size, self.seed, self.labeled = size, seed, train.labeled
        self.sets = {
            "train": train,
            "four fifths": train.subset(rest),
            "a fifth": train.subset(fifth),
            "test": load_splits(folder / "test", val_fraction=0.0).train,
        }
        self._kept: dict[tuple[str, int | None], tuple[Any, Any]] = {}

    def whole(self, name: str, epoch: int | None = None) -> tuple[Any, Any]:
        """All pixels and labels of a set: the crops of an epoch, or their centers."""
        if (name, epoch) not in self._kept:
            photos = self.sets[name]
            options: dict[str, Any] = {"size": self.size, "batch": 1, "seed": self.seed}
            found = list(Loader(photos, train=epoch is not None, **options).epoch(epoch or 0))
            images, labels = ([getattr(b, n) for b in found] for n in ("images", "labels"))
            self._kept[name, epoch] = np.concatenate(images), np.concatenate(labels)
        return self._kept[name, epoch]


@contextmanager
def unlabeled(data: Path) -> Iterator[ImageDataset]:
    """The photos of the pretraining."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        imagenette(data, scratch / "imagenette")
        yield everything(data, scratch, scratch / "all")


def measure_norms(options: argparse.Namespace, runs: Path) -> None:
    """Write the original network with its batch norms, which the published weights lack."""
    measured = runs / "measured.safetensors"
    if not measured.exists():
        with unlabeled(options.data) as photos:
            network = network_of(weights_file(options.data, NAME))
            restore_batch_norm(network, sample_batches(network, photos, size=options.size))
            save_network(network, measured)


def pretrain(norm: str, options: argparse.Namespace, runs: Path) -> None:
    """Write the file of a network with modules, unless it is there."""
    torch.manual_seed(0)
    measured = runs / "measured.safetensors"
    with unlabeled(options.data) as photos:
        recipe, start = Recipe(batch=64, size=options.size), measured
        if norm == "group norm":
            original = network_of(measured)
            other = network_of(original, **NORMS[norm])
            follow = replace(recipe, follow="blocks", epochs=options.follow)
            start = runs / "followed.safetensors"
            train(other, original, photos, start, follow, options.accelerator)
        larger = NETWORKS[TEACHER]
        teacher = create_network(
            larger.network,
            weights=options.data / "weights" / f"{TEACHER}.int8.npz",
            width=larger.width,
            padding=larger.padding,
        )
        student = TinyTL().insert_modules(network_of(start))
        learn = replace(recipe, epochs=options.epochs, lr=RATE)
        train(student, teacher, photos, pretrained(runs, norm), learn, options.accelerator)


def train(
    student: nn.Module,
    teacher: nn.Module,
    photos: ImageDataset,
    out: Path,
    recipe: Recipe,
    accelerator: str,
) -> None:
    """Write a network that has followed its teacher, unless an earlier run has finished it."""
    if not out.exists() or out.with_suffix(".progress.safetensors").exists():
        options: dict[str, Any] = {"accelerator": accelerator, "shown": console()}
        retrain(student, photos, out, recipe=recipe, teacher=teacher, **options)


def pretrained(runs: Path, norm: str) -> Path:
    """The file of a network with modules."""
    return runs / f"{norm.replace(' ', '_')}.safetensors"


def network_of(weights: Path | nn.Module, **options: Any) -> nn.Module:
    """The network with these weights, of 1000 classes unless the options say otherwise."""
    made_for = NETWORKS[NAME]
    return create_network(
        made_for.network,
        weights=weights,
        width=made_for.width,
        padding=made_for.padding,
        **options,
    )


def untrained(runs: Path, flowers: Photos) -> dict[str, float]:
    """Scores with a classifier from the flowers, before any transfer."""
    classes = len(flowers.labeled.classes)
    original = network_of(runs / "measured.safetensors", classes=classes)
    networks = {
        what: network_of(original, classes=classes, **norms) for what, norms in REPLACED.items()
    }
    for norm in NORMS:
        networks[f"{norm}, pretrained"] = network_of(pretrained(runs, norm), classes=classes)
    scores = {}
    for what, network in networks.items():
        fit_classifier(network, flowers, "train")
        scores[what] = accuracy(network, *flowers.whole("test"))
    return scores


def adapted(file: Path, row: str, classes: int, seed: int) -> nn.Module:
    """The pretrained network, ready for a row of the table; statistics of norms are fixed."""
    method, anew = ROWS[row]
    torch.manual_seed(seed)
    network = network_of(file, classes=classes)
    if anew:
        for module in network.modules():
            if isinstance(module, LiteResidual):
                module.reset_parameters()
    plan = replace(final_plan(method, network), batch_norms=frozenset())
    plan.apply(network, frozen_bits=32)
    return network


def fit_classifier(network: nn.Module, photos: Photos, name: str) -> None:
    """Set the classifier to the one that the set's own photos give."""
    task = Classification(photos.labeled.classes, ("weight", "bias"))
    images, labels = photos.whole(name)
    layer = network.get_submodule(anatomy(network).classifier[-1])
    seen: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    predict(network, images)
    hook.remove()
    head = fit_head(lambda: iter([(torch.cat(seen).numpy(), labels)]), task)
    assert head is not None, "a classification has a closed form"
    with torch.no_grad():
        layer.get_parameter("weight").copy_(torch.from_numpy(head.weight))
        layer.get_parameter("bias").copy_(torch.from_numpy(head.bias))


def predict(network: nn.Module, images: Any) -> Tensor:
    """Logits of images, uint8 (N, H, W, 3)."""
    network.eval()
    with torch.no_grad():
        parts = [network(normalize(network, part)) for part in np.array_split(images, 16)]
    return torch.cat(parts)


def accuracy(network: nn.Module, images: Any, labels: Any) -> float:
    """Top-1 in percent."""
    return 100 * float((predict(network, images).argmax(1).numpy() == labels).mean())


def transfer(
    network: nn.Module, photos: Photos, name: str, *, rate: float, batch: int, epochs: float
) -> None:
    """Train on a set of photos with Adam and a cosine to zero, in place."""
    fit_classifier(network, photos, name)
    optimizer = torch.optim.Adam([p for p in network.parameters() if p.requires_grad], lr=rate)
    an_epoch = len(photos.sets[name]) // batch
    steps = round(epochs * an_epoch)
    network.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 + math.cos(math.pi * step / steps)) / 2
        epoch, place = divmod(step, an_epoch)
        images, labels = photos.whole(name, epoch)
        part = slice(place * batch, (place + 1) * batch)
        logits = network(normalize(network, images[part]))
        loss = functional.cross_entropy(logits, torch.from_numpy(labels[part]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@dataclass(frozen=True)
class Run:
    """A transfer: one that chooses a rate on a fifth of the photos, or one for the table.

    Attributes:
        file: the pretrained network.
        row: of the table.
        batch: images in a step.
        rate: the peak of Adam's rate.
        seed: of modules and photos; None for a run that chooses the rate.
    """

    file: Path
    row: str
    batch: int
    rate: float
    seed: int | None = None

    @property
    def key(self) -> str:
        """What the score is kept under."""
        return f"{self.file.stem}, {self.row}, {self.batch}, {self.rate:g}, {self.seed}"


def score(run: Run, folder: Path, size: int) -> float:
    """Top-1 in percent after a run."""
    torch.set_num_threads(1)
    photos = Photos(folder, size, run.seed or 0)
    network = adapted(run.file, run.row, len(photos.labeled.classes), run.seed or 0)
    trial = run.seed is None
    learned, tested = ("four fifths", "a fifth") if trial else ("train", "test")
    epochs = (TRIED if trial else EPOCHS)[run.batch]
    transfer(network, photos, learned, rate=run.rate, batch=run.batch, epochs=epochs)
    return accuracy(network, *photos.whole(tested))


class Scores:
    """Scores of runs, kept in a file; those that it lacks are measured in other processes."""

    def __init__(self, path: Path, pool: Executor, folder: Path, size: int) -> None:
        self._path, self._pool, self._photos = path, pool, (folder, size)
        self.known: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}

    def measure(self, runs: Iterable[Run]) -> None:
        """Measure the runs that are not known; each is written down when it is done."""
        new = [run for run in runs if run.key not in self.known]
        waiting = {self._pool.submit(score, run, *self._photos): run for run in new}
        for done in as_completed(waiting):
            run = waiting[done]
            self.known[run.key] = done.result()
            self._path.write_text(json.dumps(self.known, indent=1))
            print(f"{run.key}: {self.known[run.key]:.1f}", flush=True)

    def best(self, runs: Iterable[Run]) -> Run:
        """The run of the highest score."""
        return max(runs, key=lambda run: self.known[run.key])


def compare(
    scores: Scores, files: dict[str, Path], options: argparse.Namespace
) -> dict[tuple[str, str, int], list[Run]]:
    """The runs of each cell of the table, with the rate that has done best."""
    cells = {
        (norm, row, batch): [Run(files[norm], row, batch, rate) for rate in RATES[batch]]
        for batch, row, norm in product(options.batches, options.rows, NORMS)
    }
    scores.measure(run for trials in cells.values() for run in trials)
    chosen = {
        cell: [replace(scores.best(trials), seed=seed) for seed in range(options.seeds)]
        for cell, trials in cells.items()
    }
    scores.measure(run for runs in chosen.values() for run in runs)
    return chosen


def publish(
    chosen: dict[tuple[str, str, int], list[Run]],
    scores: Scores,
    starts: dict[str, float],
    options: argparse.Namespace,
) -> None:
    """The table of the rows that are there."""
    columns = list(product(NORMS, options.batches))
    rows = []
    for row in options.rows:
        runs = [chosen[norm, row, batch] for norm, batch in columns]
        cells = [
            f"{spread([scores.known[r.key] for r in cell])} ({cell[0].rate:g})" for cell in runs
        ]
        rows.append([row, *cells])
    note = (
        f"MobileNetV2 0.35 at {options.size} px; 719 photos of 12 flowers to train on, 240 to "
        "test, so that a difference of 3 points is chance. Top-1 in percent, mean and standard "
        f"deviation of {options.seeds} seeds, after {EPOCHS[8]:g} epochs with batch 8 or "
        f"{EPOCHS[1]:g} with batch 1, beside it the rate, chosen on a fifth of the training "
        "photos. Pretraining, on the 2,700 training photos of Imagenette and flower_photos "
        "without labels: group norm follows the blocks of the network of batch norms for "
        f"{options.follow} epochs, then both learn the outputs of {TEACHER} for {options.epochs} "
        "epochs, with their modules."
    )
    before = (
        "Before any transfer, with a classifier computed from the photos: with the weights of "
        "batch norms in a network of other norms or kernels, and after the pretraining."
    )
    table_of_starts = table(
        ["network", "top-1"], [[what, f"{start:.1f}"] for what, start in starts.items()]
    )
    header = ["trained", *(f"{norm}, batch {batch}" for norm, batch in columns)]
    text = f"{note}\n\n{table(header, rows)}\n\n{before}\n\n{table_of_starts}"
    write("group_norm", "TinyTL's table 4, made small", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parts = ["pretraining", "transfer"]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--size", type=int, default=128, help="pixels of an image")
    parser.add_argument("--follow", type=int, default=50, help="epochs that follow the blocks")
    parser.add_argument("--epochs", type=int, default=100, help="epochs that follow the outputs")
    parser.add_argument("--accelerator", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--batches", type=int, nargs="+", choices=RATES, default=list(RATES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of finished parts")
    parser.add_argument("--fresh", action="store_true", help="discard finished parts")
    options = parse(parser)
    runs = options.runs / "group_norm"
    if options.fresh:
        shutil.rmtree(runs, ignore_errors=True)
    runs.mkdir(parents=True, exist_ok=True)
    # forked processes could not use a GPU
    with (
        ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool,
        tempfile.TemporaryDirectory() as scratch,
    ):
        if "pretraining" in options.parts:
            measure_norms(options, runs)
            for done in [pool.submit(pretrain, norm, options, runs) for norm in NORMS]:
                done.result()
        if "transfer" in options.parts:
            folder = unpack(options.data, "flowers", Path(scratch))
            scores = Scores(runs / "scores.json", pool, folder, options.size)
            chosen = compare(scores, {norm: pretrained(runs, norm) for norm in NORMS}, options)
            publish(chosen, scores, untrained(runs, Photos(folder, options.size, 0)), options)


if __name__ == "__main__":
    main()
