"""Softmax cross-entropy over the classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor
from torch.nn import functional

from pocketune.objectives.base import Builder, Objective, Operand, register_objective
from pocketune.tasks import Classification, Labels

Step = tuple[Tensor, Tensor, Tensor]


@torch.library.custom_op("pocketune::cross_entropy", mutates_args=())
def cross_entropy(logits: Tensor, labels: Tensor, label_smoothing: float) -> Step:
    """Loss (), correct predictions () and gradient by `logits` float32 (N, classes).

    `labels` are int64 (N,).
    """
    classes = logits.shape[1]
    target = functional.one_hot(labels, classes).to(logits.dtype)
    target = target * (1 - label_smoothing) + label_smoothing / classes
    log_probability = logits.log_softmax(1)
    loss = -(target * log_probability).sum(1).mean()
    gradient = (log_probability.exp() - target) / len(logits)
    return loss, (logits.argmax(1) == labels).sum(), gradient


@cross_entropy.register_fake
def _(logits: Tensor, labels: Tensor, label_smoothing: float) -> Step:
    return logits.new_empty(()), labels.new_empty(()), torch.empty_like(logits)


@register_objective(Classification)
class CrossEntropy(Objective):
    """The mean cross-entropy; its metric is the number of images classified correctly."""

    task: Classification
    operator = torch.ops.pocketune.cross_entropy.default

    @property
    def options(self) -> tuple[float, ...]:
        """The label smoothing."""
        return (float(self.task.label_smoothing),)

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """See `Objective`; labels are int64 (N,)."""
        return functional.cross_entropy(
            outputs, labels, label_smoothing=float(self.task.label_smoothing)
        )

    def metrics(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """See `Objective`: the number of images whose class has the highest score."""
        return ((outputs.argmax(1) == labels).sum(),)

    @classmethod
    def lower(
        cls, b: Builder, outputs: Operand, labels: Operand, *arguments: Any
    ) -> tuple[str, ...]:
        """See `Objective`."""
        (label_smoothing,) = arguments
        batch, scores = outputs.shape[0], outputs.name
        depth = b.add("Squeeze", b.add("Shape", scores, start=1, end=2, hint="classes"))
        low = b.add(
            "Div", b.constant([label_smoothing]), b.add("Cast", depth, to=TensorProto.FLOAT)
        )
        high = b.add("Add", low, b.constant([1 - label_smoothing]))
        values = b.add("Concat", low, high, axis=0)
        target = b.add("OneHot", labels.name, depth, values, axis=1, hint="target")
        log_probability = b.add("LogSoftmax", scores, axis=1)
        total = b.add("ReduceSum", b.add("Mul", target, log_probability), keepdims=0)
        loss = b.add("Mul", total, b.constant(-1 / batch), hint="loss_value")
        hit = b.add("Equal", b.add("ArgMax", scores, axis=1, keepdims=0), labels.name)
        correct = b.add("ReduceSum", b.add("Cast", hit, to=TensorProto.INT64), keepdims=0)
        difference = b.add("Sub", b.add("Exp", log_probability), target)
        return loss, correct, b.add("Mul", difference, b.constant(1 / batch))

    def draw_labels(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Labels:
        """See `Objective`."""
        return rng.integers(0, len(self.task.classes), shape)
