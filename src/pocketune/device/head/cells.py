"""The classifier of a decode head in closed form, judged by photos that it was not fitted to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pocketune.device.head.fit import LIBRARY, STRENGTHS, Head
from pocketune.device.head.pixels import BLOCK, PixelRidge, known_cells
from pocketune.device.head.trial import TEMPERATURES, lowest
from pocketune.tasks.classification import cross_entropy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pocketune.arrays import FloatArray
    from pocketune.device.head.sums import Exact
    from pocketune.kit.manifest import Manifest
    from pocketune.tasks import Score, Task
    from pocketune.tasks.maps import Truth

    Layer = tuple[Exact, Exact]

SAMPLED = 1 << 20
"""Values of the cells that are kept to compare classifiers: 4 MB."""
JUDGED = 64
"""Cells that the metric sees as an image."""
_MATRICES = 8
"""Matrices of C x C values at once: those of both halves, and a system of equations with copies."""


class CellFit:
    """Ridge regression on all cells of feature maps, which are added photo by photo.

    Photos belong to one of two halves in turn. The penalty, and a factor on the logits, are those
    of the lowest loss of each half by the fit to the other one, on a sample of its cells; the
    result is fitted to both. Classes weigh as in the loss of a step.

    Args:
        task: What is learned, with the weights of its classes.
        channels: C, the channels of the maps.
        photos: About how many are added, so that each has a fair part of the sample.
    """

    def __init__(self, task: Task, channels: int, photos: int) -> None:
        weights = task.step_inputs().get("class_weights")
        self._task = task
        self._channels = channels
        self._weights: Exact = np.ones(len(task.classes))
        if weights is not None:
            self._weights = weights.astype(np.float64)
        self._halves = PixelRidge(channels, self._weights), PixelRidge(channels, self._weights)
        self._sample: tuple[list[tuple[FloatArray, NDArray[np.uint8]]], ...] = ([], [])
        self._room = max(1, SAMPLED // channels)
        self._share = max(1, self._room // max(1, photos))
        self._rng = np.random.default_rng(0)
        self.photos = 0

    def add(self, maps: FloatArray, label: Truth) -> None:
        """Add the feature maps (C, h, w) of a photo with its mask."""
        half, (rows, classes) = self.photos % 2, known_cells(maps, label)
        self.photos += 1
        self._halves[half].add(rows, classes)
        count = min(self._share, self._room, len(rows))
        if count:
            self._room -= count
            drawn = np.sort(self._rng.choice(len(rows), count, replace=False))
            self._sample[half].append((rows[drawn], classes[drawn]))

    def head(self) -> Head | None:
        """The classifier of all photos; None if no cell counts.

        Its score is that of each half by the fit to the other one. It has none if only one half has
        cells that count.
        """
        if not any(self._sample):
            return None
        whole, known = self._whole(), all(self._sample)
        fits = self._halves[::-1] if known else (whole, whole)
        strength, factor = self._choose(fits)
        layers = [_scaled(fit.layer(strength), factor) for fit in (whole, *fits)]
        weight, bias = (part.astype(np.float32) for part in layers[0])
        return Head(weight, bias, "ridge", strength, self._score(layers[1:]) if known else None)

    def score(self, weight: FloatArray, bias: FloatArray) -> Score:
        """The score of another classifier, (classes, C) and (classes,), on the same cells."""
        layer = weight.astype(np.float64), bias.astype(np.float64)
        return self._score([layer, layer])

    def _whole(self) -> PixelRidge:
        whole = PixelRidge(self._channels, self._weights)
        for half in self._halves:
            whole.join(half)
        return whole

    def _choose(self, fits: tuple[PixelRidge, ...]) -> tuple[float, float]:
        """The penalty, and the factor on the logits, of the lowest loss."""
        losses = np.array(
            [self._losses([fit.layer(strength) for fit in fits]) for strength in STRENGTHS.tolist()]
        )
        chosen = int(losses.min(axis=1).argmin())
        # A sample of cells without a mistake is no evidence for a lower loss, as in `try_out`.
        floor = 1 / (sum(len(classes) for half in self._sample for _, classes in half) + 2)
        near = int(np.maximum(losses[chosen], floor).argmin())
        return float(STRENGTHS[chosen]), lowest(TEMPERATURES, losses[chosen], near)[0]

    def _losses(self, layers: list[Layer]) -> Exact:
        """The mean loss with each of `TEMPERATURES`, weighted by class."""
        losses, total = np.zeros(len(TEMPERATURES)), 0.0
        for logits, classes in self._logits(layers):
            weights = self._weights[classes]
            total += float(weights.sum())
            for position, factor in enumerate(TEMPERATURES.tolist()):
                losses[position] += weights @ cross_entropy(factor * logits, classes)
        return losses / total

    def _score(self, layers: list[Layer]) -> Score:
        metric = self._task.metric()
        for logits, classes in self._logits(layers):
            for start in range(0, len(classes), JUDGED):
                some = slice(start, start + JUDGED)
                image: FloatArray = logits[some].T[None, :, None].astype(np.float32)
                metric.update(image, classes[None, None, some])
        return metric.score

    def _logits(self, layers: list[Layer]) -> Iterator[tuple[Exact, NDArray[np.uint8]]]:
        """Logits (N, classes) and classes (N,) of the sample, each half by a layer of its own."""
        for half, (weight, bias) in zip(self._sample, layers, strict=True):
            for rows, classes in half:
                for start in range(0, len(rows), BLOCK):
                    some = slice(start, start + BLOCK)
                    yield rows[some] @ weight.T + bias, classes[some]


def _scaled(layer: Layer, factor: float) -> Layer:
    weight, bias = layer
    return factor * weight, factor * bias


def cell_channels(manifest: Manifest, *, trained: bool) -> int | None:
    """Channels of the maps that the classifier of a kit for masks reads.

    None if it is not computed from the photos: it is not a 1x1 convolution with a bias, or steps
    will change the decode head below it, whose values are random.

    Args:
        manifest: Of the kit.
        trained: Whether the decode head has been trained since the kit was built.
    """
    task, shapes = manifest.task, {spec.name: spec.shape for spec in manifest.parameters}
    if not task.dense or task.activation != "softmax" or len(task.head) != 2:
        return None
    if not trained and any(spec.group == "decode_head" for spec in manifest.parameters):
        return None
    weight = shapes[task.head[0]]
    return weight[1] if len(weight) == 4 and weight[2:] == (1, 1) else None


def cell_bytes(channels: int, classes: int, cells: int) -> int:
    """Bytes that a `CellFit` takes at its peak, with the maps of `cells` cells of a photo.

    There are the maps as the runtime gives them and twice as rows, the sample, a block of cells as
    exact values, the sums of both halves, and the systems of equations.
    """
    maps = 3 * 4 * channels * cells
    blocks = 8 * BLOCK * (2 * channels + 6 * classes)
    return (
        LIBRARY + maps + 4 * SAMPLED + blocks + 8 * channels * (_MATRICES * channels + 8 * classes)
    )
