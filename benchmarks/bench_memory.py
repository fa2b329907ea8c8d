"""Predicted and measured peak memory of training runs from kits.

    python benchmarks/bench_memory.py [--masks] [--rows 1 2 3 ...]

Each row compiles a kit and trains it for a few steps on generated photos, validation included, in
a fresh process with Adam. The prediction is made there just before, as ``--budget`` makes it;
measured is the peak resident size of that process. The rows were chosen before any was measured.
With --masks, networks classify the pixels of the photos.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from data import class_names, write_photos
from report import table, write

CLASSES, PHOTOS = 5, 48
CAMERA = 640, 480  # what a small one takes
OPTIMIZER = "adam"
TOLERANCE = 0.10, 8_000_000
"""A prediction is good within this share or so many bytes, whichever is more."""


class Row(NamedTuple):
    """A network, what of it is trained, and on what."""

    network: str
    width: float
    method: str
    batch: int
    size: int
    backbone: str | None = None

    @property
    def name(self) -> str:
        """The network, its backbone if it has one, and its width if it is not 1."""
        name = f"{self.network} of {self.backbone}" if self.backbone else self.network
        return name if self.width == 1 else f"{name} x {self.width}"


ROWS = [
    Row("mobilenet_v2", 1.0, "last", 8, 224),
    Row("mobilenet_v2", 1.0, "blocks", 8, 224),
    Row("mobilenet_v2", 1.0, "bias", 8, 160),
    Row("mobilenet_v2", 1.0, "norm", 4, 160),
    Row("mobilenet_v2", 1.0, "full", 4, 128),
    Row("mobilenet_v2", 0.35, "full", 8, 96),
    Row("mobilenet_v3_small", 1.0, "blocks", 8, 224),
    Row("mobilenet_v3_large", 1.0, "last", 4, 224),
    Row("mcunet_5fps", 1.0, "bias", 8, 160),
    Row("proxylessnas_mobile", 1.0, "blocks", 4, 160),
    Row("resnet18", 1.0, "blocks", 4, 128),
    Row("resnet18", 1.0, "last", 8, 224),
    Row("resnet18", 0.25, "full", 8, 96),
    Row("resnet50", 1.0, "last", 2, 160),
]
MASKS = [
    Row("deeplabv3", 0.35, "last", 8, 256, "mobilenet_v2"),
    Row("deeplabv3", 0.35, "blocks", 4, 256, "mobilenet_v2"),
    Row("deeplabv3", 0.35, "mobiletl", 4, 176, "mobilenet_v2"),
    Row("deeplabv3", 0.35, "norm", 4, 176, "mobilenet_v2"),
    Row("deeplabv3", 0.35, "full", 4, 176, "mobilenet_v2"),
    Row("pspnet", 0.25, "bias", 4, 128, "resnet18_v1c"),
    Row("lraspp", 1.0, "blocks", 8, 224, "mobilenet_v3_large"),
    Row("deeplabv3", 0.35, "5 layers, filtered", 8, 240, "mobilenet_v2"),
]


def build_kit(row: Row, out: Path) -> None:
    import pocketune
    from bench_step import METHODS

    network = pocketune.create_network(
        row.network, width=row.width, classes=CLASSES, backbone=row.backbone
    )
    name, options = METHODS.get(row.method, (row.method, {}))
    adapted = pocketune.adapt(network, pocketune.create_method(name, **options))
    kind = pocketune.Segmentation if row.backbone else pocketune.Classification
    task = kind(tuple(class_names(CLASSES)))
    pocketune.compile(adapted, out, batch=row.batch, size=row.size, task=task)


def work(kit: str, photos: str, out: str) -> None:
    """Predict, train, and print both as JSON."""
    import pocketune
    from pocketune.device.memory.estimate import estimate_memory
    from pocketune.device.memory.process import process_memory, reclaim
    from pocketune.device.train import run  # noqa: F401 - as a run has imported by then
    from pocketune.device.train.optimizer import state_slots
    from pocketune.device.train.progress import Silent

    reclaim()
    predicted = estimate_memory(
        pocketune.Kit.open(kit).manifest,
        process=process_memory().current,
        classes=CLASSES,
        slots=state_slots(OPTIMIZER, 0.9),
    )
    result = pocketune.train(kit, photos, out=out, epochs=1, optimizer=OPTIMIZER, progress=Silent())
    parts = {name: getattr(predicted, name) for name in type(predicted).__dataclass_fields__}
    print(json.dumps({"parts": parts, "peak": result.peak_memory}))


def measure(row: Row, photos: Path) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as scratch:
        kit = Path(scratch) / "kit"
        fields = [json.dumps(value) for value in row]
        subprocess.run([sys.executable, __file__, "--build", *fields, str(kit)], check=True)
        done = subprocess.run(
            [sys.executable, __file__, "--worker", str(kit), str(photos), f"{scratch}/run"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        )
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def described(row: Row, result: dict) -> list[object]:
    predicted, measured = sum(result["parts"].values()), result["peak"]
    error = predicted - measured
    good = abs(error) <= max(TOLERANCE[0] * measured, TOLERANCE[1])
    megabytes = [f"{size / 1e6:.0f}" for size in (predicted, measured)]
    errors = [f"{error / 1e6:+.0f}", f"{error / measured:+.1%}"]
    return [row.name, row.method, row.batch, row.size, *megabytes, *errors, "yes" if good else "no"]


def publish(rows: list[list[object]], all_rows: list[Row]) -> None:
    """Write the finished rows of the table, since a row takes a minute or more."""
    header = ["network", "method", "batch", "px"]
    header += ["predicted MB", "measured MB", "error MB", "error", "within"]
    within = sum(row[-1] == "yes" for row in rows)
    note = (
        "Peak resident memory of the whole process, Python and runtime included, while a kit is "
        f"trained with {OPTIMIZER} on photos of 640 x 480 and validated. {within} of {len(rows)} "
        f"predictions are within 10 % or 8 MB, whichever is more ({len(all_rows)} rows in all)."
    )
    title = "Memory of training from a kit, predicted and measured"
    if all_rows is MASKS:
        write("memory_masks", f"{title}: masks", f"{note}\n\n{table(header, rows)}")
    else:
        write("memory", title, f"{note}\n\n{table(header, rows)}")


def main() -> None:
    if sys.argv[1:2] == ["--build"]:
        *fields, out = sys.argv[2:]
        build_kit(Row(*map(json.loads, fields)), Path(out))
        return
    if sys.argv[1:2] == ["--worker"]:
        work(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--masks", action="store_true", help="networks that classify pixels")
    parser.add_argument("--rows", type=int, nargs="+", help="by number; all by default")
    options = parser.parse_args()
    every, rows = MASKS if options.masks else ROWS, []
    with tempfile.TemporaryDirectory() as photos:
        write_photos(Path(photos), CLASSES, PHOTOS, CAMERA, grain=40, masks=options.masks)
        for number in options.rows or range(1, len(every) + 1):
            result = measure(every[number - 1], Path(photos))
            print(json.dumps(result), file=sys.stderr)
            rows.append(described(every[number - 1], result))
            publish(rows, every)


if __name__ == "__main__":
    main()
