"""Softmax cross-entropy over the classes of each pixel.

Networks give logits (N, C, h, w) at a resolution of their own. They are resized to the labels
(N, H, W) as `functional.interpolate(..., mode="bilinear", align_corners=False)` does, and the loss
reads every `loss_stride`-th row and column. Only these pixels are ever resized: along each side
they are a constant matrix times the logits, and the gradient is its transpose times theirs.

A tensor of all classes of all pixels would be the largest of a step, so a kit's graph computes the
loss of a batch in parts of up to `PART` pixels, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor
from torch.nn import functional

from pocketune.objectives.base import Builder, Objective, Operand, register_objective
from pocketune.tasks import Labels, Segmentation
from pocketune.tasks.maps import IGNORED

PART = 1 << 14
"""Most pixels of a part: small enough that the classes of all of them stay in a processor's cache,
large enough that a batch has few parts, because the runtime needs memory for every node."""

TINY = float(np.finfo(np.float32).tiny)
"""Divides the loss of a batch in which no pixel counts, which is 0."""

Step = tuple[Tensor, Tensor, Tensor, Tensor]


@torch.library.custom_op("pocketune::pixel_cross_entropy", mutates_args=())
def pixel_cross_entropy(
    logits: Tensor, labels: Tensor, class_weights: Tensor, loss_stride: int
) -> Step:
    """Loss (), correct pixels (), pixels that count () and gradient by `logits` (N, C, h, w).

    `labels` are uint8 (N, H, W), `class_weights` (C,).
    """
    vertical, horizontal = (
        matrix.to(logits.dtype) for matrix in resizing(logits.shape, labels.shape, loss_stride)
    )
    target = labels[:, ::loss_stride, ::loss_stride].long()
    log_probability = (vertical @ logits @ horizontal.T).log_softmax(1)
    one_hot = functional.one_hot(target, IGNORED + 1)[..., : logits.shape[1]].movedim(-1, 1)
    weighted = one_hot * class_weights.view(-1, 1, 1)
    weights = weighted.sum(1, keepdim=True)
    total = weights.sum().clamp(min=TINY)
    gradient = (log_probability.exp() * weights - weighted) / total
    return (
        -(weighted * log_probability).sum() / total,
        *_correct(log_probability, target),
        vertical.T @ gradient @ horizontal,
    )


@pixel_cross_entropy.register_fake
def _(logits: Tensor, labels: Tensor, class_weights: Tensor, loss_stride: int) -> Step:
    count = labels.new_empty((), dtype=torch.int64)
    return logits.new_empty(()), count, torch.empty_like(count), torch.empty_like(logits)


@register_objective(Segmentation)
class PixelCrossEntropy(Objective):
    """The weighted mean over the pixels that are not ignored, as `functional.cross_entropy` has it.

    It is 0 if all pixels are ignored. The step metrics are the number of pixels that are classified
    correctly, and that of all pixels that are not ignored; both count what the loss reads.
    """

    task: Segmentation
    operator = torch.ops.pocketune.pixel_cross_entropy.default

    @property
    def options(self) -> tuple[float, ...]:
        """The loss stride."""
        return (self.task.loss_stride,)

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """See `Objective`; labels are uint8 (N, H, W)."""
        weights = self.inputs["class_weights"].to(outputs)
        scores, target = self._pixels(outputs, labels)
        total = functional.cross_entropy(
            scores, target, weights, ignore_index=IGNORED, reduction="sum"
        )
        padded = functional.pad(weights, (0, IGNORED + 1 - len(weights)))
        return total / padded[target].sum().clamp(min=TINY)

    def metrics(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """See `Objective`: the correct pixels, and all that are not ignored."""
        return _correct(*self._pixels(outputs, labels))

    def _pixels(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (N, C, H', W') and labels int64 (N, H', W') of the pixels that the loss reads."""
        stride = self.task.loss_stride
        scores = functional.interpolate(
            outputs, labels.shape[1:], mode="bilinear", align_corners=False
        )
        return scores[..., ::stride, ::stride], labels[:, ::stride, ::stride].long()

    @classmethod
    def lower(
        cls, b: Builder, outputs: Operand, labels: Operand, *arguments: Any
    ) -> tuple[str, ...]:
        """See `Objective`."""
        weights, stride = arguments
        return _Lowering(b, outputs, labels, weights.name, stride).results()

    def draw_labels(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Labels:
        """See `Objective`: blocks of a class, and some that are ignored."""
        batch, height, width = shape
        coarse = rng.integers(0, len(self.task.classes) + 1, (batch, 4, 4))
        coarse[coarse == len(self.task.classes)] = IGNORED
        rows, columns = (np.arange(n) * 4 // n for n in (height, width))
        return coarse[:, rows[:, None], columns].astype(np.uint8)


def resizing(old: torch.Size, new: torch.Size, stride: int) -> tuple[Tensor, Tensor]:
    """Matrices (H', h) and (W', w) in float64 that give every `stride`-th pixel of a resized map.

    Args:
        old: (..., h, w).
        new: (..., H, W).
        stride: Of rows and columns.
    """
    vertical, horizontal = (
        functional.interpolate(
            torch.eye(before, dtype=torch.float64).view(before, 1, before, 1),
            (after, 1),
            mode="bilinear",
            align_corners=False,
        )
        .view(before, after)
        .T[::stride]
        for before, after in zip(old[-2:], new[-2:], strict=True)
    )
    return vertical, horizontal


def _correct(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    return (scores.argmax(1) == target).sum(), (target != IGNORED).sum()


class Part(NamedTuple):
    """Some rows of some images, which the loss computes at once."""

    images: range
    rows: range


def parts(batch: int, height: int, width: int) -> Iterator[list[Part]]:
    """The parts of a batch in groups, each with all rows of some images."""
    images = max(1, PART // (height * width))
    rows = min(height, max(1, PART // width))
    for start in range(0, batch, images):
        several = range(start, min(start + images, batch))
        yield [Part(several, range(r, min(r + rows, height))) for r in range(0, height, rows)]


class _Lowering:
    """The nodes of one loss. Pixels are rows of a matrix and classes its columns."""

    def __init__(
        self, b: Builder, outputs: Operand, labels: Operand, weights: str, stride: int
    ) -> None:
        self._b = b
        self._outputs, self._scores = outputs.shape, outputs.name
        matrices = resizing(torch.Size(outputs.shape), torch.Size(labels.shape), stride)
        self._vertical, self._horizontal = (m.float().numpy() for m in matrices)
        self._labels = self._strided(labels, stride)
        self._table = self._weights_by_label(weights)
        self._row_sums = b.add("ReduceSum", self._table, self._b.constant([1]), keepdims=1)

    def results(self) -> tuple[str, ...]:
        """Loss, correct pixels, pixels that count, gradient."""
        b = self._b
        batch, _, height, width = self._outputs
        last = b.add("Transpose", self._scores, perm=[0, 2, 3, 1])
        flat = self._reshape(last, batch, height, -1)  # (N, h, w C)
        found = [self._group(flat, group) for group in parts(batch, *self._size)]
        sums = [self._add(terms) for terms in zip(*(scalars for scalars, _ in found), strict=True)]
        loss, weight, correct, pixels = sums
        scale = b.add("Reciprocal", b.add("Max", weight, b.constant(TINY)))
        stacked = [gradient for _, gradient in found]
        gradient = b.add("Concat", *stacked, axis=0) if len(stacked) > 1 else stacked[0]
        gradient = b.add("Mul", self._reshape(gradient, batch, height, width, -1), scale)
        gradient = b.add("Transpose", gradient, perm=[0, 3, 1, 2])
        loss = b.add("Mul", b.add("Neg", loss), scale, hint="loss_value")
        return loss, correct, pixels, gradient

    @property
    def _size(self) -> tuple[int, int]:
        return len(self._vertical), len(self._horizontal)

    def _group(self, flat: str, group: list[Part]) -> tuple[list[str], str]:
        """The sums of all rows of some images, and the gradient (n, h, w C) of these images."""
        images = group[0].images
        own = flat
        if len(images) < self._outputs[0]:
            own = self._slice(flat, images)
        found = [self._part(own, part) for part in group]
        sums = [self._add(terms) for terms in zip(*(scalars for scalars, _ in found), strict=True)]
        return sums, self._add([gradient for _, gradient in found])

    def _part(self, flat: str, part: Part) -> tuple[list[str], str]:
        """Loss, weight, correct and counted pixels of a part, and its gradient (n, h, w C)."""
        b = self._b
        images, rows, width = len(part.images), len(part.rows), self._outputs[3]
        labels = self._part_labels(part)
        # resize: (n, h, w C) -> (n, rows, w, C) -> (n, rows, W', C)
        above = self._vertical[part.rows.start : part.rows.stop]
        high = b.add("MatMul", b.constant(above), flat)
        high = self._reshape(high, images, rows, width, -1)
        pixels = b.add("MatMul", b.constant(self._horizontal), high)
        pixels = self._reshape(pixels, images * rows * len(self._horizontal), -1)

        log_probability = b.add("LogSoftmax", pixels, axis=1)
        target = b.add("Gather", self._table, labels, axis=0)
        weight = b.add("Gather", self._row_sums, labels, axis=0)
        loss = self._sum(b.add("Mul", target, log_probability))
        guess = b.add("ArgMax", pixels, axis=1, keepdims=0)
        correct = self._count(b.add("Equal", guess, labels))
        counted = self._count(b.add("Less", labels, b.constant(IGNORED)))

        expected = b.add("Mul", b.add("Exp", log_probability), weight)
        difference = b.add("Sub", expected, target)
        difference = self._reshape(difference, images, rows, len(self._horizontal), -1)
        low = b.add("MatMul", b.constant(self._horizontal.T.copy()), difference)
        low = self._reshape(low, images, rows, -1)
        gradient = b.add("MatMul", b.constant(above.T.copy()), low)
        return [loss, self._sum(weight), correct, counted], gradient

    def _strided(self, labels: Operand, stride: int) -> str:
        """The labels that the loss reads, uint8 (N, H', W')."""
        if stride == 1:
            return labels.name
        height, width = labels.shape[1:]
        bounds = (self._b.constant(v) for v in ((0, 0), (height, width), (1, 2), (stride, stride)))
        return self._b.add("Slice", labels.name, *bounds)

    def _part_labels(self, part: Part) -> str:
        """Labels int64 (pixels,) of a part."""
        name = self._labels
        if len(part.images) < self._outputs[0]:
            name = self._slice(name, part.images)
        if len(part.rows) < self._size[0]:
            name = self._slice(name, part.rows, axis=1)
        return self._b.add("Cast", self._reshape(name, -1), to=TensorProto.INT64)

    def _weights_by_label(self, weights: str) -> str:
        """(256, C): the weight of a label in the column of its class, zeros elsewhere."""
        b = self._b
        depth = b.add("Squeeze", b.add("Shape", self._scores, start=1, end=2, hint="classes"))
        labels = b.constant(np.arange(IGNORED + 1))
        values = b.constant([0.0, 1.0])
        return b.add("Mul", b.add("OneHot", labels, depth, values, axis=1), weights)

    def _sum(self, name: str) -> str:
        return self._b.add("ReduceSum", name, keepdims=0)

    def _count(self, mask: str) -> str:
        return self._sum(self._b.add("Cast", mask, to=TensorProto.INT64))

    def _add(self, names: list[str] | tuple[str, ...]) -> str:
        total, *rest = names
        for name in rest:
            total = self._b.add("Add", total, name)
        return total

    def _slice(self, name: str, span: range, axis: int = 0) -> str:
        bounds = (self._b.constant([v]) for v in (span.start, span.stop, axis))
        return self._b.add("Slice", name, *bounds)

    def _reshape(self, name: str, *shape: int) -> str:
        return self._b.add("Reshape", name, self._b.constant(shape))
