"""How well does a model know labelled photos?"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pocketune.data import Batch, ImageDataset, Loader, Skipped, load_splits
from pocketune.device.checkpoint import LAST, Checkpoint
from pocketune.device.engine import Engine, EngineFactory
from pocketune.device.model import Model, StrPath, as_model
from pocketune.device.onnx_engine import OnnxEngine
from pocketune.errors import PocketuneError

TOP = 5


@dataclass(frozen=True)
class ClassResult:
    """One class's photos.

    Attributes:
        name: The class.
        images: Photos of it.
        predicted: Photos of any class that were taken for it.
        correct: Photos of it that were taken for it.
    """

    name: str
    images: int
    predicted: int
    correct: int

    @property
    def recall(self) -> float:
        """Share of its photos that were recognised; nan without photos."""
        return _share(self.correct, self.images)

    @property
    def precision(self) -> float:
        """Share of the photos taken for it that are of it; nan where none was."""
        return _share(self.correct, self.predicted)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What an evaluation counted.

    Attributes:
        classes: Names of the classes.
        confusion: int64 (classes, classes), photos by their class (row) and what they were taken
            for (column).
        among_top5: Photos whose class is among the five likeliest.
        skipped: Files that were left out, with the reason.
    """

    classes: tuple[str, ...]
    confusion: NDArray[np.int64]
    among_top5: int
    skipped: tuple[Skipped, ...]

    @property
    def images(self) -> int:
        """Photos evaluated."""
        return int(self.confusion.sum())

    @property
    def top1(self) -> float:
        """Share of photos recognised."""
        return _share(int(self.confusion.trace()), self.images)

    @property
    def top5(self) -> float:
        """Share of photos whose class is among the five likeliest; 1 for up to five classes."""
        return _share(self.among_top5, self.images)

    @property
    def per_class(self) -> tuple[ClassResult, ...]:
        """The same by class, in the order of the classes."""
        images, predicted = self.confusion.sum(1).tolist(), self.confusion.sum(0).tolist()
        correct = self.confusion.diagonal().tolist()
        return tuple(map(ClassResult, self.classes, images, predicted, correct))

    def write_confusion(self, path: StrPath) -> None:
        """Write the confusion matrix as CSV: a row for each class, a column for each guess.

        Raises:
            PocketuneError: The file cannot be written.
        """
        rows = zip(self.classes, self.confusion.tolist(), strict=True)
        _write_csv(path, ["class", *self.classes], ([name, *row] for name, row in rows))

    def write_per_class(self, path: StrPath) -> None:
        """Write a row for each class as CSV: images, correct, recall and precision.

        Raises:
            PocketuneError: The file cannot be written.
        """
        _write_csv(
            path,
            ["class", "images", "correct", "recall", "precision"],
            ([c.name, c.images, c.correct, c.recall, c.precision] for c in self.per_class),
        )


def evaluate(
    model: Model | StrPath,
    photos: StrPath | None = None,
    *,
    engine: EngineFactory = OnnxEngine,
) -> Evaluation:
    """Classify labelled photos and count.

    Args:
        model: The folder of a run, or a kit.
        photos: A folder of class folders, a CSV of file and label, or a .zip of either. Where
            they come divided, those that validate; else all of them. None for the photos that
            the run itself has held back.
        engine: What computes.

    Raises:
        PocketuneError: The model or the photos cannot be used, the photos have a class that the
            model does not know, or ``photos`` is missing and the model is not a run.
    """
    model = as_model(model)
    dataset, skipped = _held_back(model) if photos is None else _all(photos, model.classes)
    manifest = model.kit.manifest
    loader = Loader(dataset, size=manifest.size, batch=manifest.batch, train=False)
    live = engine(model.kit, model.state)
    confusion, among_top5 = _count(live, loader.epoch(0), len(model.classes))
    if not confusion.any():
        raise PocketuneError(f"{dataset.root} has no photo to evaluate that can be decoded")
    return Evaluation(model.classes, confusion, among_top5, (*skipped, *loader.skipped))


_Found = tuple[ImageDataset, tuple[Skipped, ...]]


def _all(photos: StrPath, classes: tuple[str, ...]) -> _Found:
    splits = load_splits(Path(photos), val_fraction=1.0, classes=classes)
    return splits.val, splits.skipped


def _held_back(model: Model) -> _Found:
    last = model.kit.path / LAST
    if not last.is_file():
        raise PocketuneError(f"{model.kit.path} is not a run: name the photos to evaluate it on")
    settings = Checkpoint.load(last).settings
    splits = load_splits(
        settings.photos,
        val_fraction=settings.val_fraction,
        seed=settings.seed,
        classes=model.classes,
    )
    if not len(splits.val):
        raise PocketuneError(f"the run {model.kit.path} held no photos back: name some to evaluate")
    return splits.val, splits.skipped


def _count(engine: Engine, batches: Iterable[Batch], classes: int) -> tuple[NDArray[np.int64], int]:
    confusion = np.zeros((classes, classes), np.int64)
    among_top = 0
    for batch in batches:
        likeliest = np.argsort(-engine.predict(batch.images), axis=1, kind="stable")[:, :TOP]
        np.add.at(confusion, (batch.labels, likeliest[:, 0]), 1)
        among_top += int((likeliest == batch.labels[:, None]).sum())
    return confusion, among_top


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _write_csv(
    path: StrPath, header: Sequence[str], rows: Iterable[Sequence[str | int | float]]
) -> None:
    try:
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])
    except OSError as error:
        raise PocketuneError(f"{path} cannot be written: {error.strerror or error}") from error
