"""Predict images in memory, one after the other, with a model that stays open."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from pocketune.arithmetic import usual_arithmetic
from pocketune.data import Batch
from pocketune.data.images.given import GivenImage, evaluated
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.use.model import Model, as_model
from pocketune.device.use.predict import Used
from pocketune.device.use.unknown import known_of
from pocketune.errors import check_positive
from pocketune.heap import save_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pocketune.arrays import StrPath
    from pocketune.tasks import Prediction


class Predictor:
    """A model that predicts images in memory, such as the frames of a camera.

    The graphs are opened at once and stay open, where `predict` opens them for each call. The files
    of the model are not read again. Several threads may use a predictor; they take turns.

    Example:
        >>> predictor = Predictor("runs/flowers")  # doctest: +SKIP
        >>> print(predictor.predict(frame))  # doctest: +SKIP
        rose 98.1%, tulip 1.2%, daisy 0.7%

    Args:
        model: A run or a kit.
        top: Number of classes or attributes to name for each image; by default the 5 most likely
            classes, or all attributes.
        unknown: Whether to tell images of none of the classes; see `predict`.

    Raises:
        PocketuneError: The model cannot be used, `top` is below 1, or the run does not describe its
            classes.
    """

    def __init__(
        self, model: Model | StrPath, *, top: int | None = None, unknown: bool = False
    ) -> None:
        if top is not None:
            check_positive(top=top)
        save_memory()
        self.model: Model = as_model(model)
        self._top, self._lock = top, threading.Lock()
        self._used = Used("", self.model, known_of(self.model) if unknown else None)
        self._engine = OnnxEngine(self.model.kit, self.model.state)
        size = self.model.manifest.size
        self._engine.predict(np.zeros((1, size, size, 3), np.uint8))  # opens the graphs now

    def __repr__(self) -> str:
        return f"Predictor({self.model!r})"

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes or attributes, in the order of the logits."""
        return self.model.classes

    def predict(self, image: GivenImage, name: str = "") -> Prediction:
        """Predict one image.

        Args:
            image: An image of Pillow; an array uint8 (height, width, 3), red, green, blue, or
                (height, width), gray; or the bytes of an image file. It is not changed.
            name: The name of the prediction.

        Returns:
            The prediction of the model's task; with `unknown`, a `JudgedPrediction`.

        Raises:
            UnreadableImage: The image is damaged, too large or empty.
            PocketuneError: It is of another type or shape.
        """
        (prediction,) = self.predict_batch([image], [name])
        return prediction

    @usual_arithmetic
    def predict_batch(
        self, images: Sequence[GivenImage], names: Sequence[str] | None = None
    ) -> list[Prediction]:
        """Predict several images, as many at once as are in a batch of the kit.

        Args:
            images: See `predict`.
            names: The names of the predictions.

        Raises:
            UnreadableImage, PocketuneError: See `predict`. Then no image is predicted.
            ValueError: There are not as many names as images.
        """
        names = [""] * len(images) if names is None else names
        size, batch, task = self.model.manifest.size, self.model.manifest.batch, self.model.task
        found = [
            evaluated(image, task, size, name) for image, name in zip(images, names, strict=True)
        ]
        predictions: list[Prediction] = []
        for start in range(0, len(found), batch):
            part = slice(start, start + batch)
            pixels = np.stack([each for each, _ in found[part]])
            seen = tuple(each for _, each in found[part])
            labels = np.full(len(pixels), -1)
            together = Batch(pixels, labels, tuple(names[part]), seen)
            with self._lock:
                prepared = self._engine.prepare(pixels)
                used = self._used.predictions(together, self._engine, prepared, self._top)
                predictions += used
        return predictions
