"""Photos, settings and run folders of tiny kits."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pocketune.device.train.checkpoint import Checkpoint, Counters, TrainedNetwork
from pocketune.device.train.folder import RunIdentity
from pocketune.device.train.settings import TrainSettings
from pocketune.kit.kit import Kit
from pocketune.kit.names import BEST, LAST, METRICS
from pocketune.tasks import Score

from .tiny_kit import TinyKit

TIMES = ("images_per_second", "seconds", "elapsed", "memory")
"""Keys of the log whose values no two runs share."""
State = dict[str, np.ndarray]
DEFAULTS: dict[str, Any] = {"epochs": 2, "lr": 0.01, "checkpoint_seconds": None}
"""Settings that most tests do not care about."""


def write_photo(path: Path, seed: int) -> Path:
    """A photo of noise, stored without loss."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def write_photos(folder: Path, classes: tuple[str, ...], each: int) -> Path:
    """Class folders of photos."""
    for label, name in enumerate(classes):
        for index in range(each):
            write_photo(folder / name / f"{index}.png", 100 * label + index)
    return folder


def trained_state(tiny: TinyKit, seed: int = 7) -> State:
    """Values that are not the kit's."""
    rng = np.random.default_rng(seed)
    shapes = tiny.manifest().shapes(len(tiny.classes))
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def write_best(folder: Path, kit: Kit, state: State, classes: tuple[str, ...]) -> None:
    """The best values of a run."""
    trained = TrainedNetwork(
        state=state, classes=classes, kit=kit.identity, step=5, score=Score("accuracy", 0.5, 1.0)
    )
    trained.save(folder / BEST)


def write_run(folder: Path, tiny: TinyKit | None = None) -> Path:
    """A run of a tiny kit on the kit's own classes, with values that are not the kit's."""
    tiny = tiny or TinyKit()
    write_best(folder, tiny.write(folder), trained_state(tiny), tiny.classes)
    return folder


def write_last(
    folder: Path,
    kit: Kit,
    state: State,
    classes: tuple[str, ...],
    photos: Path,
    fingerprint: str = "photos",
    most: int | None = None,
    earlier: np.ndarray | None = None,
) -> None:
    """The last checkpoint of a run."""
    settings = TrainSettings(
        epochs=1, lr=0.01, optimizer="sgd", momentum=0.0, seed=3, val_fraction=0.25
    )
    statistics = {spec.name for spec in kit.manifest.statistics}
    checkpoint = Checkpoint(
        parameters={name: value for name, value in state.items() if name not in statistics},
        statistics={name: value for name, value in state.items() if name in statistics},
        optimizer={},
        counters=Counters(),
        settings=settings,
        photos=str(photos),
        identity=RunIdentity(kit.identity, fingerprint, classes),
        trained=np.zeros(0, np.uint32),
        most=most,
        earlier=earlier,
    )
    checkpoint.save(folder / LAST)


def make_settings(**changes: Any) -> TrainSettings:
    return TrainSettings(**{**DEFAULTS, **changes})


def lines(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, all or those of a kind."""
    read = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    return [line for line in read if kind in (None, line["kind"])]


def assert_same_end(first: Path, second: Path) -> None:
    """Check that two runs ended with the same bits and wrote the same log."""
    one, other = (Checkpoint.load(folder / LAST) for folder in (first, second))
    for group in ("parameters", "statistics", "optimizer"):
        mine, theirs = getattr(one, group), getattr(other, group)
        assert mine.keys() == theirs.keys()
        for name in mine:
            np.testing.assert_array_equal(mine[name], theirs[name])
    assert (first / BEST).read_bytes() == (second / BEST).read_bytes()
    for checkpoint in (one, other):
        checkpoint.counters.metrics_bytes = 0  # the lines hold speeds, whose length differs
    assert one.counters == other.counters
    assert [_repeatable(line) for line in lines(first)] == [
        _repeatable(line) for line in lines(second)
    ]


def _repeatable(line: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in line.items() if k not in TIMES}
