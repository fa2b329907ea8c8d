"""A class for each pixel."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray, State
from pocketune.errors import PocketuneError, check_positive
from pocketune.files import shown
from pocketune.tasks.base import SIZE, RowReader, Task, register_task
from pocketune.tasks.classification import softmax
from pocketune.tasks.maps import (
    IGNORED,
    ClassMap,
    Comparison,
    Truth,
    cells_inside,
    class_map,
    compare,
    count_values,
)
from pocketune.tasks.overlap import Overlap, SegmentationEvaluation, SegmentationPrediction
from pocketune.tasks.results import Labels, Score, Values, Verdict, share
from pocketune.tasks.views import (
    Box,
    Seen,
    View,
    random_colors,
    random_square,
    whole_view,
)

COLUMN = "mask"
MOST_OF_ONE = 0.75
"""Largest share of one class in a training view, unless all of ten draws have more."""
DRAWS = 10
STRIDE = 8


class Mask(NamedTuple):
    """The label of an image, before it is encoded.

    Attributes:
        name: The mask's file.
        pixels: The number of pixels of each value that occurs.
    """

    name: str
    pixels: tuple[tuple[int, int], ...] = ()


@register_task
@dataclass(frozen=True)
class Segmentation(Task):
    """Predict the class of each pixel of an image.

    A label is a mask, uint8 (height, width), with 255 for pixels that do not count. Encoded labels
    are the names of the masks' files with the pixels of each class, since masks are read one by
    one.

    Attributes:
        loss_stride: Rows and columns of the labels between those that the loss of a step is taken
            at; 1 for all.
        output_size: Height and width of the network's output; empty before there is a network.
        class_weights: The weight of a pixel of each class in the loss; empty if they are equal.
    """

    loss_stride: int = 1
    output_size: tuple[int, ...] = ()
    class_weights: tuple[float, ...] = ()

    name = "segmentation"
    table = "image and mask"
    dense = True
    label_dims = (SIZE, SIZE)
    label_type = np.uint8
    activation = "softmax"
    metric_name = "mIoU"
    step_metrics = ("correct", "pixels")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(loss_stride=self.loss_stride)
        if len(self.classes) > IGNORED:
            raise PocketuneError(
                f"{len(self.classes)} classes are more than the {IGNORED} that masks of 8 bits "
                "have numbers for"
            )

    # Labels.

    @classmethod
    def columns(cls, titles: Sequence[str], free: Sequence[int], table: str) -> RowReader | None:
        """See `Task`; the column `mask` holds the files of the masks."""
        column = next((each for each in free if titles[each].casefold() == COLUMN), None)
        return None if column is None else _MaskReader(column, table)

    @classmethod
    def find_classes(cls, labels: Iterable[Hashable], titles: tuple[str, ...]) -> tuple[str, ...]:
        """The names of pixel values, in order; `titles` has one for each value that counts."""
        return tuple(dict.fromkeys(title for title in titles if title))

    def encode(
        self, labels: Sequence[Hashable], titles: tuple[str, ...], where: str, *, complete: bool
    ) -> Labels:
        """The file of each image's mask and the pixels of each class there.

        A structured array (n,) of the fields `mask` and `pixels` (classes,). Not every class
        has to occur.
        """
        numbers = class_numbers(titles, self.classes)
        masks = cast("Sequence[Mask]", labels)
        self._refuse_strange(masks, titles, numbers, where)
        length = max((len(mask.name) for mask in masks), default=1)
        # The shape in brackets: NumPy 1 takes a field of one value for a scalar otherwise.
        rows = np.zeros(
            len(masks), [("mask", f"U{length}"), ("pixels", np.int64, (len(self.classes),))]
        )
        for row, mask in zip(rows, masks, strict=True):
            row["mask"] = mask.name
            for value, pixels in mask.pixels:
                if numbers[value] != IGNORED:
                    row["pixels"][numbers[value]] += pixels
        return rows

    def _refuse_strange(
        self,
        masks: Sequence[Mask],
        titles: tuple[str, ...],
        numbers: ClassMap,
        where: str,
    ) -> None:
        """Refuse a class that was not trained."""
        for mask in masks:
            for value, _ in mask.pixels:
                if titles[value] and numbers[value] == IGNORED:
                    raise PocketuneError(
                        f"{where} has pixels of the class {shown(titles[value])!r} in "
                        f"{shown(mask.name)}, which is not one of the {len(self.classes)} classes "
                        f"trained: {shown(', '.join(self.classes), 200)}; ignore that class, or "
                        "give masks without it"
                    )

    def check_training(self, training: Labels, validation: Labels, where: str) -> None:
        """See `Task`; the training masks need two classes, and validation masks any."""
        present = np.flatnonzero(training["pixels"].sum(axis=0))
        if len(present) == 0:
            raise PocketuneError(
                f"every pixel of the training masks in {where} is ignored; check the values of the "
                "masks and which of them are ignored"
            )
        if len(present) == 1:
            raise PocketuneError(
                f"the training masks in {where} show one class only, "
                f"{shown(self.classes[present[0]])!r}; add masks that show another one, or check "
                "which values are ignored"
            )
        if len(validation) and not validation["pixels"].any():
            raise PocketuneError(
                f"every pixel of the {len(validation)} validation masks in {where} is ignored; "
                "choose others"
            )

    def counts(self, labels: Labels) -> NDArray[np.int64]:
        """The number of images (classes,) that show each class."""
        images: NDArray[np.int64] = (labels["pixels"] > 0).sum(axis=0, dtype=np.int64)
        return images

    def step_inputs(self, classes: int | None = None) -> State:
        """`class_weights` (classes,): the weight of a pixel of each class in the loss."""
        count = len(self.classes) if classes is None else classes
        weights = self.class_weights or (1.0,) * count
        return {"class_weights": np.array(weights, np.float32)}

    def loss_weight(self, labels: Labels, inputs: Mapping[str, FloatArray]) -> float:
        """See `Task`: the class weights of the pixels that the loss reads, without ignored ones."""
        weights, stride = inputs["class_weights"], self.loss_stride
        counts = count_values(labels[:, ::stride, ::stride])
        return float(counts[: len(weights)] @ weights)

    def balanced(self, labels: Labels) -> Segmentation:
        """See `Task` and `balanced_weights`."""
        weights = balanced_weights(labels["pixels"].sum(axis=0))
        return replace(self, class_weights=tuple(weights.tolist()))

    def fitted(self, head: tuple[str, ...], output_shape: tuple[int, ...]) -> Segmentation:
        """See `Task`."""
        return replace(self, head=head, output_size=tuple(output_shape[1:]))

    def output_shape(self, size: int, classes: int | None = None) -> tuple[int, ...]:
        """See `Task`; without a network, a cell of the output is 8 x 8 pixels."""
        count = len(self.classes) if classes is None else classes
        return (count, *(self.output_size or (-(-size // STRIDE),) * 2))

    # Views.

    def training_view(
        self, label: Labels, width: int, height: int, size: int, rng: np.random.Generator
    ) -> View:
        """See `Task`: a square of random scale and place, mirrored and recolored at random.

        It is drawn up to ten times, until no class has more than 75 % of its pixels.
        """
        for _ in range(DRAWS):
            view = View(random_square(width, height, rng), size)
            if _largest_share(self.transform(label, view)) <= MOST_OF_ONE:
                break
        return view._replace(mirrored=bool(rng.random() < 0.5), colors=random_colors(rng))

    def evaluation_view(self, width: int, height: int, size: int) -> View:
        """See `Task`: the whole image, in its proportions."""
        return whole_view(width, height, size)

    def transform(self, label: Labels, view: View) -> ClassMap:
        """The mask (size, size) of a view, by nearest neighbor; 255 beyond the image."""
        box, place = view.placed(label.shape[1], label.shape[0])
        mask = np.full((view.size, view.size), IGNORED, np.uint8)
        rows = _nearest(box.top, box.height, place.bottom - place.top, label.shape[0])
        columns = _nearest(box.left, box.width, place.right - place.left, label.shape[1])
        mask[place.top : place.bottom, place.left : place.right] = label[np.ix_(rows, columns)]
        return np.ascontiguousarray(mask[:, ::-1]) if view.mirrored else mask

    def truth(self, label: Labels, view: View) -> Truth:
        """See `Task`: the whole mask, at its own size."""
        return Truth(label, view.box)

    def collate(self, labels: Sequence[Any]) -> Labels:
        """Masks (B, size, size) of a step; or an array (B,) of the truths of an evaluation."""
        if not labels or not isinstance(labels[0], Truth):
            return np.stack(labels)
        truths = np.empty(len(labels), object)
        for position, label in enumerate(labels):
            truths[position] = label
        return truths

    # The metric, evaluation and predictions.

    def losses(self, outputs: FloatArray, labels: Labels) -> Values:
        """The mean cross-entropy (N,) of each image's pixels; 0 where all are ignored."""
        found = _compared(outputs, labels)
        return np.array([each.loss / max(1, each.pixels) for each in found])

    def marks(self, outputs: FloatArray, labels: Labels) -> Values:
        """The share (N,) of each image's pixels that are predicted correctly; 0 without any."""
        found = _compared(outputs, labels)
        return np.array([each.confusion.trace() / max(1, each.pixels) for each in found])

    def step_score(self, loss: float, metrics: Mapping[str, float], images: int) -> Score:
        """The share of the pixels of training steps that were predicted correctly."""
        correct, pixels = (metrics[name] for name in self.step_metrics)
        return Score("accuracy", share(correct, pixels), loss)

    def metric(self) -> Overlap:
        """See `Task`: the mean IoU of all images together."""
        return Overlap(self)

    def evaluate(self, batches: Iterable[tuple[FloatArray, Labels]]) -> SegmentationEvaluation:
        """See `Task`; labels are of `Truth`."""
        metric = self.metric()
        for outputs, labels in batches:
            metric.update(outputs, labels)
        return SegmentationEvaluation(self.classes, metric.confusion, metric.images)

    def predict(
        self, name: str, output: FloatArray, top: int | None, seen: Seen | None = None
    ) -> SegmentationPrediction:
        """See `Task`; without `seen`, the map is as large as the output."""
        height, width = output.shape[1:]
        if seen is None:
            seen = Seen(width, height, Box(0, 0, width, height))
        return SegmentationPrediction(name, self.classes, class_map(output, seen), top)

    def verdict(self, output: FloatArray, label: Labels, seen: Seen | None = None) -> Verdict:
        """The classes with most pixels, and those with most of the probability."""
        cells = output if seen is None else cells_inside(output, seen)
        probabilities = softmax(np.moveaxis(cells, 0, -1)).mean(axis=(0, 1))
        pixels = label["pixels"]
        return Verdict(self._most(pixels / max(1, pixels.sum())), self._most(probabilities))

    def _most(self, shares: Values) -> str:
        best = np.argsort(-shares, kind="stable")[:3]
        return ", ".join(f"{self.classes[i]} ({shares[i]:.0%})" for i in best if shares[i] > 0)


def class_numbers(titles: Sequence[str], classes: Sequence[str]) -> ClassMap:
    """The number (256,) of the class of each pixel value, by their names; 255 for all others."""
    known = {name: number for number, name in enumerate(classes)}
    return np.array([known.get(title, IGNORED) for title in titles], np.uint8)


def balanced_weights(pixels: NDArray[np.int64]) -> Values:
    """The weight (classes,) of a pixel: the root of the median share of a class over its own.

    They are scaled to a mean of 1 over all pixels. This is the square root of the median frequency
    balancing of Eigen and Fergus (ICCV 2015, section 6.3.2), whose own weights are too large for
    classes of few pixels. A class that does not occur has the weight 1.
    """
    weights, present = np.ones(len(pixels)), pixels > 0
    if present.any():
        shares = pixels[present] / pixels.sum()
        roots = np.sqrt(np.median(shares) / shares)
        weights[present] = roots / (roots * shares).sum()
    return weights


def _compared(outputs: FloatArray, labels: Labels) -> list[Comparison]:
    return [compare(*pair) for pair in zip(outputs, labels, strict=True)]


def _largest_share(mask: ClassMap) -> float:
    """The share of the class with most of the pixels that count; 1 if none counts."""
    pixels = count_values(mask)[:IGNORED]
    total = int(pixels.sum())
    return float(pixels.max()) / total if total else 1.0


def _nearest(start: float, length: float, count: int, limit: int) -> NDArray[np.intp]:
    """The pixel at the center of each of `count` parts of a length."""
    centers = start + (np.arange(count) + 0.5) * (length / count)
    return centers.astype(np.intp).clip(0, limit - 1)


class _MaskReader:
    """Reads the file of the mask; see `RowReader`."""

    titles: tuple[str, ...] = ()

    def __init__(self, column: int, table: str) -> None:
        self._column, self._table = column, table

    def __call__(self, row: Sequence[str], line: int) -> Mask:
        value = row[self._column]
        if not value:
            raise PocketuneError(
                f"{shown(self._table)} has no mask in line {line}; add it or remove the line"
            )
        return Mask(value.replace("\\", "/"))
