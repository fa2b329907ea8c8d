"""Default settings against tuned ones: methods, sets of photos of many sizes, optimizers.

    python benchmarks/bench_defaults.py [--data FOLDER] [--methods last ...] [--photos flowers ...]
        [--optimizer adam] [--variants default ...] [--scratch FOLDER]

Each method is trained with default rates and lengths, and with each of the `VARIANTS`: other rates,
another length. A run of fewer than 125 photos makes no steps unless it is asked to: there, the
default is the classifier computed from all photos, and stands beside the steps. "Tuned" is the best
of all of them on the test photos with one seed, which flatters it; steps with default rates and the
tuned run are then repeated with a second seed, and both columns are means of two.
Results in the .json are kept, so that a stopped run continues. The script is skipped if the data
are missing.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path
from statistics import mean
from typing import Any

from bench_accuracy import METHODS
from data import parse, unpack, unpack_cifar10
from pocketune.device.train import TrainSettings
from pocketune.device.train.defaults import DRAWS, TOO_FEW_TO_DIVIDE
from pocketune.kit import Kit
from pocketune.methods import compose_method
from pretrained import kept_kit
from report import keep, kept, table, write
from trials import Trials, Views

NETWORK = "mbv2-w0.35"
CLASSES = {"flowers": 12, "flower_photos": 5, "cifar10": 10}
SETS: dict[str, tuple[str, int | None]] = {
    "flowers": ("flowers", None),
    "flowers, 5 a class": ("flowers", 5),
    "flowers, 10 a class": ("flowers", 10),
    "flower_photos": ("flower_photos", None),
    "flower_photos, 5 a class": ("flower_photos", 5),
    "flower_photos, 10 a class": ("flower_photos", 10),
    "cifar10, 10 a class": ("cifar10", 10),
    "cifar10, 50 a class": ("cifar10", 50),
    "cifar10, 200 a class": ("cifar10", 200),
    "cifar10, 1,000 a class": ("cifar10", 1000),
}


def _scaled(settings: TrainSettings, factor: float, head: float = 1.0) -> TrainSettings:
    """The default rates of many photos times a factor, and that of the head times another."""
    main, bias, side, decode, top = (rate * factor for rate in astuple(settings.peak_rates()))
    return replace(
        settings, lr=main, bias_lr=bias, side_lr=side, decode_lr=decode, head_lr=top * head
    )


VARIANTS: dict[str, Callable[[TrainSettings, int], TrainSettings]] = {
    "default": lambda settings, _: settings,
    "rates / 3": lambda settings, _: _scaled(settings, 1 / 3),
    "rates / 3, not the head's": lambda settings, _: _scaled(settings, 1 / 3, head=3),
    "rates x 3": lambda settings, _: _scaled(settings, 3),
    "head x 3": lambda settings, _: _scaled(settings, 1, head=3),
    "2 x as long": lambda settings, steps: replace(settings, steps=2 * steps),
    "4 x as long": lambda settings, steps: replace(settings, steps=4 * steps),
    "half as long": lambda settings, steps: replace(settings, steps=steps // 2),
    "a quarter as long": lambda settings, steps: replace(settings, steps=steps // 4),
}


class Bench:
    """Trials by method, of one set of photos at a time."""

    def __init__(self, data: Path, scratch: Path, variants: list[str]) -> None:
        self._data, self._scratch, self._variants = data, scratch, variants
        self._views: tuple[str, Views] | None = None

    def fill(self, cell: dict[str, Any], photos: str, method: str, optimizer: str) -> None:
        """Measure what is missing of a cell: the start, each variant, and two of them again."""
        missing = [name for name in self._variants if name not in cell["top1"]]
        if not missing:
            return
        kit, views = self._kit(photos, method), self._load(photos)
        # A run of so many epochs keeps the features of a few crops, if the kit has a frozen part.
        views.draws = DRAWS if Kit.open(kit).manifest.features else None
        trials = Trials(kit, views)
        cell["start"] = trials.start()
        if makes_no_steps(photos):
            cell["computed"] = trials.computed()
        settings = TrainSettings(optimizer=optimizer)
        steps = settings.total_steps(views.steps)
        for name in missing:
            varied = VARIANTS[name](settings, steps)
            cell["top1"][name] = [trials.accuracy(varied)]
        for name in {"default", tuned(cell)}:
            if len(cell["top1"][name]) == 1:
                varied = replace(VARIANTS[name](settings, steps), seed=1)
                cell["top1"][name].append(trials.accuracy(varied))

    def _load(self, photos: str) -> Views:
        if self._views is None or self._views[0] != photos:
            self._views = None  # before the next ones take as much memory
            folder, per_class = SETS[photos]
            self._views = photos, Views(self._folder(folder), per_class)
        return self._views[1]

    def _folder(self, name: str) -> Path:
        folder = self._scratch / name
        if not folder.exists():
            if name == "cifar10":
                unpack_cifar10(self._data / "cifar10", folder, per_class=1000)
            else:
                unpack(self._data, name, folder)
        return folder

    def _kit(self, photos: str, method: str) -> Path:
        folder = SETS[photos][0]
        kit = self._scratch / "kits" / f"{folder} {method}"
        chosen = compose_method(*METHODS[method])
        return kept_kit(kit, chosen, self._data, NETWORK, self._folder(folder))


def makes_no_steps(photos: str) -> bool:
    """Whether a run of a set with nothing set is the computed classifier."""
    folder, per_class = SETS[photos]
    return per_class is not None and per_class * CLASSES[folder] < TOO_FEW_TO_DIVIDE


def _default(cell: dict[str, Any]) -> str:
    """The accuracy of a run with nothing set, if it was measured."""
    if makes_no_steps(cell["photos"]):
        return f"{cell['computed']:.1f}" if "computed" in cell else ""
    return f"{mean(cell['top1']['default']):.1f}"


def tuned(cell: dict[str, Any]) -> str:
    """The variant that is best with the first seed."""
    return max(cell["top1"], key=lambda name: cell["top1"][name][0])


def _place(cell: dict[str, Any]) -> tuple[int, int]:
    """Where a row stands in the table."""
    return list(SETS).index(cell["photos"]), list(METHODS).index(cell["method"])


def publish(name: str, results: dict[str, dict[str, Any]]) -> None:
    """Write the finished cells."""
    rows = []
    for cell in sorted(results.values(), key=_place):
        best, default = tuned(cell), mean(cell["top1"]["default"])
        photos = cell["photos"] + "*" * makes_no_steps(cell["photos"])
        row = [photos, cell["method"], f"{cell['start']:.1f}", _default(cell), f"{default:.1f}"]
        if len(cell["top1"]) > 1:
            other = mean(cell["top1"][best])
            row += [f"{other:.1f}", f"{default - other:+.1f}", f"{best}, of {len(cell['top1'])}"]
        else:
            row += ["", "", "not tuned"]
        rows.append(row)
    header = ["photos", "method", "start", "default", "steps", "tuned", "difference", "tuned by"]
    note = (
        f"{NETWORK} at 128 px, batch 8, {name.partition('_')[2]}. Top-1 in percent on the test "
        "photos: of the classifier from four fifths of the data alone, of a run with nothing set, "
        "of steps with default rates, and of the best of so many runs (out of "
        f"{', '.join(VARIANTS)}), chosen on the same photos; the difference is between the last "
        "two. A star marks fewer than 125 photos, of which a run makes no steps unless it is asked "
        "to: with nothing set, it is the classifier computed from all of them; an empty cell was "
        "not measured. The factors are on the rates of many photos. Steps are of four fifths of "
        "the photos. Means of two seeds."
    )
    keep(name, results)
    write(name, "Default settings against tuned ones", f"{note}\n\n{table(header, rows)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--photos", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--optimizer", choices=("adam", "adamw", "sgd"), default="adam")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--scratch", type=Path, help="keep photos and kits in this folder")
    options = parse(parser)
    name = f"defaults_{options.optimizer}"
    results = kept(name)
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(options.data, options.scratch or Path(temporary), options.variants)
        for photos in options.photos:
            for method in options.methods:
                blank = {"photos": photos, "method": method, "top1": {}}
                cell = results.setdefault(f"{photos}: {method}", blank)
                bench.fill(cell, photos, method, options.optimizer)
                publish(name, results)


if __name__ == "__main__":
    main()
