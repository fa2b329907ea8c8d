"""Settings of training on masks, on two halves of CamVid: stride of the loss, rates, classifier.

    python benchmarks/bench_masks.py [--parts start] [--seeds 1] [--steps 300] [--fresh]

DeepLabV3 over MobileNetV2 0.35 of ImageNet, 144 px, batch 8, decode head of 32 channels, balanced
weights of classes. The training photos are divided by video sequence: 204 of 0016E5, and 163 of the
others. Each run trains on one half, in kits, and is tested on CamVid's 233 test photos with the
values after its last step, so that nothing is chosen by their masks but what the table shows.
Finished cells are in the .json, and a stopped script continues. Skipped if the data are missing.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from data import parse
from pocketune.data import ImageDataset, MaskOptions, Splits, load_splits
from pocketune.errors import counted
from report import keep, kept, spread, table, write

FIRST = "0016E5"
HALVES = ("first", "second")
STRIDES = (1, 2, 4, 8)
RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
STRIDE_RATES = {"lr": 4e-3, "bias_lr": 2e-3, "head_lr": 1e-3}
TRAINED = {
    "classifier": ("last", None),
    "decode head": ("blocks", 0),
    "everything": ("full", None),
}
SIZE, BATCH, CHANNELS = 144, 8, 32
STARTS = {"drawn at random": "random", "computed": "auto"}
PARTS = ("stride", "rates", "start")

RUN = """
import json, sys, time
from pocketune.device.train import train
from pocketune.device.train.progress import Silent

began = time.process_time()
kit, photos, out, settings = sys.argv[1:]
settings = json.loads(settings)
result = train(kit, photos, out=out, progress=Silent(), val_fraction=0.0,
               ignore="void", class_weights="balanced", **settings)
print((time.process_time() - began) * 1e3 / max(result.steps, 1), result.peak_memory / 1e6)
"""


def unpack(data: Path, folder: Path) -> dict[str, Path]:
    """The set, and a table of the photos of each half and of those to test on."""
    with zipfile.ZipFile(data / "segmentation" / "camvid_12cls_180x240.zip") as archive:
        archive.extractall(folder)
        names = [name for name in archive.namelist() if "/images/" in name]
    for number, half in enumerate(HALVES):
        with (folder / f"{half}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["image", "mask", "split"])
            for name in names:
                part = name.partition("/")[0]
                in_half = (Path(name).name.startswith(FIRST)) == (number == 0)
                if part == "test" or (part == "train" and in_half):
                    mask = name.replace("/images/", "/masks/").replace(".jpg", ".png")
                    writer.writerow([name, mask, part])
    return {half: folder / f"{half}.csv" for half in HALVES}


class Runs:
    """Trains kits, each built once, in processes of their own."""

    def __init__(self, data: Path, scratch: Path, steps: int) -> None:
        self._data, self._scratch, self._steps = data, scratch, steps
        self._halves = unpack(data, scratch / "camvid")

    def measured(
        self,
        half: str,
        trained: str,
        stride: int,
        settings: Mapping[str, Any],
        *,
        pretrained: bool = False,
    ) -> dict[str, Any]:
        """The scores in percent, the peak in MB, and CPU milliseconds of a step.

        Args:
            half: The half to train on.
            trained: What is trained.
            stride: That of the loss.
            settings: Of the run.
            pretrained: Whether the decode head was trained on the first half.
        """
        from pocketune.device.use.evaluate import evaluate

        out = self._scratch / "run"
        given = {"steps": self._steps, **settings}
        weights = self._pretrained() if pretrained else self._backbone
        kit = self._kit(trained, stride, weights)
        command = ["-c", RUN, str(kit), str(self._halves[half])]
        done = subprocess.run(
            [sys.executable, *command, str(out), json.dumps(given)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        milliseconds, megabytes = map(float, done.stdout.split()[-2:])
        found = evaluate(out, self._halves[half], test=True)
        shutil.rmtree(out)
        return {
            "miou": 100 * found.miou,
            "pixels": 100 * found.pixel_accuracy,
            "peak": megabytes,
            "cpu_ms": milliseconds,
        }

    @property
    def _backbone(self) -> Path:
        return self._data / "weights" / "mbv2-w0.35.float32.safetensors"

    def _pretrained(self) -> Path:
        """The network, with a decode head that was trained on the first half."""
        import pocketune
        from pocketune.device.train.progress import Silent
        from pocketune.device.train.run import train
        from pocketune.device.use.model import Model
        from pocketune.tasks import Segmentation

        path = self._scratch / "pretrained.safetensors"
        if path.exists():
            return path
        photos = self._photos(self._halves["first"]).train
        network = self._untrained(photos)
        adapted = pocketune.adapt(network, pocketune.TopBlocks(blocks=0))
        kit, out = self._scratch / "pretraining.zip", self._scratch / "pretraining"
        task = Segmentation(photos.classes)
        pocketune.compile(adapted, kit, batch=BATCH, size=SIZE, task=task)
        train(
            kit,
            self._halves["first"],
            out,
            steps=self._steps,
            progress=Silent(),
            val_fraction=0.0,
            ignore="void",
            class_weights="balanced",
        )
        state = {name: torch.from_numpy(v) for name, v in Model.open(out).state.items()}
        network.load_state_dict(state, strict=False)
        pocketune.save_network(network, path)
        return path

    def _untrained(self, photos: ImageDataset) -> nn.Module:
        """The network with a new decode head; its norms are restored on the photos."""
        import pocketune
        from pocketune.data import sample
        from pocketune.networks import normalize

        network = pocketune.create_network(
            "deeplabv3",
            backbone="mobilenet_v2",
            width=0.35,
            head_channels=CHANNELS,
            classes=len(photos.classes),
            weights=self._backbone,
        )
        batches = (
            normalize(network, torch.from_numpy(batch.images))
            for batch in sample(photos, size=SIZE, count=96)
        )
        pocketune.restore_batch_norm(network, batches)
        return network

    def _photos(self, path: Path) -> Splits:
        return load_splits(path, masks=MaskOptions(ignore="void"))

    def _kit(self, trained: str, stride: int, weights: Path) -> Path:
        """The kit of what is trained.

        The norms of a backbone without a decode head are restored on the training photos of both
        halves.
        """
        from pocketune.authoring import build_kit
        from pocketune.methods import create_method

        kit = self._scratch / "kits" / f"{trained} {stride} {weights.stem}"
        if not kit.exists():
            method, blocks = TRAINED[trained]
            headless = weights == self._backbone
            build_kit(
                kit,
                network="deeplabv3",
                method=create_method(method, **({} if blocks is None else {"blocks": blocks})),
                backbone="mobilenet_v2",
                width=0.35,
                head_channels=CHANNELS,
                weights=str(weights),
                size=SIZE,
                batch=BATCH,
                loss_stride=stride,
                photos=self._photos(self._scratch / "camvid").train if headless else None,
            )
        return kit


Cells = dict[str, dict[str, Any]]


def fill(cells: Cells, key: str, runs: Runs, seeds: int, **cell: Any) -> dict[str, Any]:
    """A cell with as many seeds as are asked for; what is there is kept."""
    found = cells.setdefault(key, {"runs": []})["runs"]
    settings = cell.pop("settings", {})
    for seed in range(len(found), seeds):
        found.append(runs.measured(**cell, settings={**settings, "seed": seed}))
        print(key, found[-1], flush=True)
    return cells[key]


def column(cell: Mapping[str, Any], name: str) -> list[float]:
    """What the runs of a cell measured."""
    return [run[name] for run in cell["runs"]]


def stride(runs: Runs, cells: Cells, options: argparse.Namespace) -> str:
    """A row for each half and stride of the loss."""
    rows = []
    for half in options.halves:
        for step in STRIDES:
            cell = fill(
                cells,
                f"{half}: {step}",
                runs,
                options.seeds,
                half=half,
                trained="decode head",
                stride=step,
                settings=STRIDE_RATES,
            )
            keep("masks_stride", cells)
            scores = [spread(column(cell, name)) for name in ("miou", "pixels")]
            taken = [f"{min(column(cell, name)):.0f}" for name in ("cpu_ms", "peak")]
            rows.append([half, step, *scores, *taken])
    header = ["half", "stride", "mIoU, %", "pixel accuracy, %", "CPU ms a step", "peak MB"]
    return (
        "The decode head is trained, at the default rates. CPU time is that of the whole process, "
        "decoding included, over the steps.\n\n" + table(header, rows)
    )


def rates(runs: Runs, cells: Cells, options: argparse.Namespace) -> str:
    """A row for each half, what is trained, and the rate of the weights."""
    rows = []
    for trained in options.trained:
        for half in options.halves:
            for rate in RATES:
                cell = fill(
                    cells,
                    f"{half}: {trained}: {rate:g}",
                    runs,
                    options.seeds,
                    half=half,
                    trained=trained,
                    stride=1,
                    settings={"lr": rate, "bias_lr": 2e-3, "head_lr": rate},
                )
                keep("masks_rates", cells)
                scores = [spread(column(cell, name)) for name in ("miou", "pixels")]
                rows.append([trained, half, f"{rate:g}", *scores])
    return table(["trained", "half", "rate", "mIoU, %", "pixel accuracy, %"], rows)


def start(runs: Runs, cells: Cells, options: argparse.Namespace) -> str:
    """A row for each thing that is trained and start of the classifier, above a trained head."""
    rows = []
    for trained in ("classifier", "decode head"):
        for name, head_start in STARTS.items():
            scores = []
            for steps in (0, None):
                settings = {"head_start": head_start}
                cell = fill(
                    cells,
                    f"{trained}: {name}: {'start' if steps == 0 else 'end'}",
                    runs,
                    options.seeds,
                    half="second",
                    trained=trained,
                    stride=1,
                    pretrained=True,
                    settings={**settings, "epochs": 0, "steps": None} if steps == 0 else settings,
                )
                keep("masks_start", cells)
                scores += [spread(column(cell, value)) for value in ("miou", "pixels")]
            peak = f"{max(column(cell, 'peak')):.0f}"
            rows.append([trained, name, *scores, peak])
    header = ["trained", "classifier", "start: mIoU, %", "pixel accuracy, %", "end: mIoU, %"]
    return (
        "The decode head was trained on the first half. The classifier is one of other classes, so "
        "that it starts anew on the second half.\n\n"
        + table([*header, "pixel accuracy, %", "peak MB"], rows)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--trained", nargs="+", choices=TRAINED, default=["decode head", "everything"]
    )
    parser.add_argument("--halves", nargs="+", choices=HALVES, default=list(HALVES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--fresh", action="store_true", help="forget what is in the .json")
    options = parse(parser)
    makers = {"stride": stride, "rates": rates, "start": start}
    with tempfile.TemporaryDirectory() as scratch:
        runs = Runs(options.data, Path(scratch), options.steps)
        for part in options.parts:
            name = f"masks_{part}"
            cells = {} if options.fresh else kept(name)
            text = makers[part](runs, cells, options)
            seeds = counted(options.seeds, "seed")
            note = (
                f"DeepLabV3 of MobileNetV2 0.35, {SIZE} px, batch {BATCH}, decode head of "
                f"{CHANNELS} channels, {options.steps} steps, {seeds}. The halves are 204 photos "
                "of one video sequence and 163 of two others; 233 photos test."
            )
            write(name, f"Training on masks: {part}", f"{note}\n\n{text}")


if __name__ == "__main__":
    main()
