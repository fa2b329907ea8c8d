"""Predict the classes, attributes or masks of photos."""

import os
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pocketune.arithmetic import usually_computed
from pocketune.arrays import StrPath
from pocketune.data import (
    Batch,
    ImageDataset,
    Loader,
    Skipped,
    UnreadableImage,
    checked,
    open_images,
    unlabeled,
)
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.memory.budget import check_peak, check_prediction, limited
from pocketune.device.memory.sizes import parse_pixels
from pocketune.device.use.delta import Delta, as_delta
from pocketune.device.use.known import Known
from pocketune.device.use.model import Model, as_model
from pocketune.device.use.pictures import Pictures, map_use
from pocketune.device.use.unknown import known_of
from pocketune.device.use.windows import OVERLAP, Window, Windows, check_window
from pocketune.errors import PocketuneError, check_positive, printable
from pocketune.tasks import Prediction


@dataclass(frozen=True)
class DeltaPrediction(Prediction):
    """A prediction by one of several deltas.

    Attributes:
        name: The image's file.
        delta: The delta's file.
        prediction: The prediction.
    """

    name: str
    delta: str
    prediction: Prediction

    def to_dict(self) -> dict[str, Any]:
        """See `Prediction`."""
        return {"image": self.name, "delta": self.delta, **self.prediction.to_dict()}

    def __str__(self) -> str:
        return f"{self.delta}: {self.prediction}"


@dataclass(frozen=True)
class JudgedPrediction(Prediction):
    """A prediction that may be none of the classes.

    Attributes:
        name: The image's file.
        prediction: The prediction among the classes.
        distance: Distance to the nearest class, relative to the largest that is accepted.
    """

    name: str
    prediction: Prediction
    distance: float

    @property
    def unknown(self) -> bool:
        """Whether the image is of none of the classes."""
        return not self.distance <= 1

    def to_dict(self) -> dict[str, Any]:
        """See `Prediction`."""
        judged = {"unknown": self.unknown, "distance": self.distance}
        return {**self.prediction.to_dict(), **judged}

    def __str__(self) -> str:
        return f"none of these ({self.prediction})" if self.unknown else str(self.prediction)


def predict(
    model: Model | StrPath,
    paths: StrPath | Iterable[StrPath],
    *,
    top: int | None = None,
    deltas: Iterable[Delta | StrPath] = (),
    unknown: bool = False,
    out: StrPath | None = None,
    window: Window = "whole",
    overlap: float = OVERLAP,
    budget: int | str | None = None,
    max_pixels: int | str | None = None,
) -> Iterator[Prediction | Skipped]:
    """Predict images, a batch at a time.

    Example:
        >>> for result in predict("runs/flowers", ["photos/"]):  # doctest: +SKIP
        ...     print(result)
        ClassPrediction(name='photos/1.jpg', guesses=(Guess(label='rose', probability=0.98),))
        Skipped(name='photos/notes.txt', reason='not an image in a known format')

    Args:
        model: A run or a kit.
        paths: Image files, and folders and .zips of images; or one of these.
        top: Number of classes or attributes to name for each image; by default the 5 most likely
            classes, or all attributes.
        deltas: Deltas of the model's kit, or their files. Each image is predicted by each of them,
            in place of the model's own values. The frozen part runs once for each image, and no
            graph is opened again.
        unknown: Whether to tell images of none of the classes, by their distance to the classes of
            the run. 95 % of the run's own photos are accepted, as far as it could be measured on
            photos that it was not trained on.
        out: For masks, a new folder for `masks/` (palette PNGs, at the photos' size),
            `overlays/` and `classes.txt`.
        window: For masks, whether a photo is seen as a whole or through windows that slide over it.
        overlap: Share of a window that the next one repeats.
        budget: Memory limit of the whole process, such as `96MB`.
        max_pixels: Leave out images of more pixels, such as `12MP`, that would be decoded in
            full.

    Returns:
        An iterator over the predictions of the model's task, one for each image in the order of
        the paths, and again where another path names it; with `unknown`, a `JudgedPrediction`;
        with deltas, a `DeltaPrediction` for each image and delta. A file that cannot be read
        gives a `Skipped` after its batch.

    Raises:
        BudgetExceeded: The budget has no room for the model or for decoding an image, or has been
            exceeded.
        PocketuneError: The model or a path cannot be used, `top` is below 1, a delta belongs to
            another kit, or the run does not describe its classes; or `out` is not empty, or
            given for a model that predicts no masks.
    """
    if top is not None:
        check_positive(top=top)
    limit, before = limited(budget)
    model = as_model(model)
    check_window(model.task, window, overlap)
    models = [Used(each.name, each.model(model.kit)) for each in map(as_delta, deltas)]
    models = models or [Used("", model)]
    if unknown:
        models = [replace(each, known=known_of(each.model)) for each in models]
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    images = unlabeled(open_images(map(Path, paths), once=out is not None))
    manifest, task = model.manifest, model.task
    skipped: tuple[Skipped, ...] = ()
    if limit is not None or max_pixels is not None:
        most = None if max_pixels is None else parse_pixels(max_pixels)
        use = map_use(pictures=out is not None) if task.dense else None
        images, skipped, decoding = checked(images, manifest.size, most, use)
        batches = images if window == "whole" else None
        check_prediction(model, limit, before, decoding, batches, use)
    else:
        check_prediction(model, limit, before)
    pictures = None if out is None else _pictures(out, images, models)
    if window == "slide":
        found = _slid(models, images, Windows(manifest, overlap), top)
    else:
        size, batch = manifest.size, manifest.batch
        loader = Loader(images, size=size, batch=batch, train=False, task=task)
        found = _results(models, loader, top)
    if pictures is not None:
        found = _written(found, images, pictures)
    found = usually_computed(_followed(found, skipped))
    return found if limit is None else _within(limit, found)


@dataclass(frozen=True)
class Used:
    """A model, the delta that it is of, and what it knows, if that is asked for."""

    delta: str
    model: Model
    known: Known | None = None

    def predictions(
        self, batch: Batch, engine: OnnxEngine, prepared: NDArray[Any], top: int | None
    ) -> Iterator[Prediction]:
        """The predictions of a batch: its outputs are computed now, and maps when asked for."""
        task, limits = self.model.task, None
        if self.known is None:
            outputs = engine.complete(prepared)
        else:
            outputs, embeddings = engine.complete_with_embeddings(prepared)
            limits = self.known.distances(embeddings) / self.known.threshold
        rows = zip(batch.names, outputs, batch.seen, strict=True)
        found = (task.predict(name, row, top, seen) for name, row, seen in rows)
        if limits is not None:
            pairs = zip(found, limits.tolist(), strict=True)
            found = (JudgedPrediction(each.name, each, limit) for each, limit in pairs)
        return map(self.named, found)

    def named(self, found: Prediction) -> Prediction:
        """With the delta that a prediction is by, if there is one."""
        return DeltaPrediction(found.name, self.delta, found) if self.delta else found


def _results(models: list[Used], loader: Loader, top: int | None) -> Iterator[Prediction | Skipped]:
    """The predictions of models of one kit."""
    reported: set[Skipped] = set()
    engine = OnnxEngine(models[0].model.kit, models[0].model.state)
    for batch in loader.epoch(0):
        prepared, by_model = engine.prepare(batch.images), []
        for used in models:
            if used.delta:
                engine.swap(used.model.state)
            by_model.append(used.predictions(batch, engine, prepared, top))
        for _ in batch.names:
            for predictions in by_model:
                yield next(predictions)  # not held here: a prediction may be a large map
        yield from _new(loader, reported)
    yield from _new(loader, reported)


def _slid(
    models: list[Used], images: ImageDataset, windows: Windows, top: int | None
) -> Iterator[Prediction | Skipped]:
    """The same, from windows that slide over each image."""
    engine = OnnxEngine(models[0].model.kit, models[0].model.state)
    for index, name in enumerate(images.names):
        try:
            photo, seen = windows.open(images, index)
        except UnreadableImage as error:
            yield Skipped(printable(name), error.reason)
            continue
        for used in models:
            if used.delta:
                engine.swap(used.model.state)
            output = windows.output(engine, photo, seen)
            yield used.named(used.model.task.predict(name, output, top, seen))


def _followed(
    found: Iterator[Prediction | Skipped], skipped: tuple[Skipped, ...]
) -> Generator[Prediction | Skipped, None, None]:
    """The same, and then the files that were left out before.

    Closing it closes `found`, which `itertools.chain` would not do.
    """
    yield from found
    yield from skipped


def _within(limit: int, found: Iterator[Prediction | Skipped]) -> Iterator[Prediction | Skipped]:
    """The same, until memory exceeds the limit."""
    for each in found:
        check_peak(limit)
        yield each


def _new(loader: Loader, reported: set[Skipped]) -> Iterator[Skipped]:
    for skipped in loader.skipped:
        if skipped not in reported:
            reported.add(skipped)
            yield skipped


def _pictures(out: StrPath, images: ImageDataset, models: list[Used]) -> Pictures:
    """The folder of predicted masks."""
    task = models[0].model.task
    if not task.dense:
        raise PocketuneError(
            f"there are no masks to write into {out}: this model predicts {task.noun} of whole "
            "images; leave it out"
        )
    if len(models) > 1:
        raise PocketuneError(
            f"masks of {len(models)} deltas would overwrite each other in {out}; give one delta"
        )
    return Pictures(out, images, task.classes)


def _written(
    found: Iterator[Prediction | Skipped], images: ImageDataset, pictures: Pictures
) -> Iterator[Prediction | Skipped]:
    """The predictions, once their masks are written."""
    places = {name: index for index, name in enumerate(images.names)}
    for each in found:
        plain = each.prediction if isinstance(each, DeltaPrediction) else each
        if isinstance(plain, Prediction) and plain.class_map is not None:
            pictures.write(places[plain.name], plain.class_map)
        yield each
