"""Binary cross-entropy of each attribute."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor
from torch.nn import functional

from pocketune.objectives.base import Builder, Objective, Operand, register_objective
from pocketune.tasks import Attributes, Labels

Step = tuple[Tensor, Tensor, Tensor]


@torch.library.custom_op("pocketune::binary_cross_entropy", mutates_args=())
def binary_cross_entropy(logits: Tensor, labels: Tensor, label_smoothing: float) -> Step:
    """Loss (), correct predictions () and gradient by `logits` float32 (N, A).

    `labels` are uint8 (N, A).
    """
    target = _smoothed(labels.to(logits.dtype), label_smoothing)
    loss = functional.binary_cross_entropy_with_logits(logits, target)
    gradient = (logits.sigmoid() - target) / logits.numel()
    return loss, _correct(logits, labels), gradient


@binary_cross_entropy.register_fake
def _(logits: Tensor, labels: Tensor, label_smoothing: float) -> Step:
    return logits.new_empty(()), logits.new_empty(()), torch.empty_like(logits)


@register_objective(Attributes)
class BinaryCrossEntropy(Objective):
    """The mean loss over images and attributes; its metric is the share predicted correctly."""

    task: Attributes
    operator = torch.ops.pocketune.binary_cross_entropy.default

    @property
    def options(self) -> tuple[float, ...]:
        """The label smoothing: targets differ from 0 and 1 by half of it."""
        return (float(self.task.label_smoothing),)

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """See `Objective`; labels (N, A) are 1 for the attributes of an image, else 0."""
        target = _smoothed(labels.to(outputs.dtype), float(self.task.label_smoothing))
        return functional.binary_cross_entropy_with_logits(outputs, target)

    def metrics(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """See `Objective`: the sum over images of the share of attributes predicted correctly."""
        return (_correct(outputs, labels),)

    @classmethod
    def lower(
        cls, b: Builder, outputs: Operand, labels: Operand, *arguments: Any
    ) -> tuple[str, ...]:
        """See `Objective`."""
        (label_smoothing,) = arguments
        batch, scores = outputs.shape[0], outputs.name
        present = b.add("Cast", labels.name, to=TensorProto.FLOAT)
        scaled = b.add("Mul", present, b.constant(1 - label_smoothing))
        target = b.add("Add", scaled, b.constant(label_smoothing / 2), hint="target")
        each = b.add("Sub", b.add("Softplus", scores), b.add("Mul", scores, target))
        loss = b.add("ReduceMean", each, keepdims=0, hint="loss_value")
        zero = b.constant(0.0)
        hit = b.add("Equal", b.add("Greater", scores, zero), b.add("Greater", present, zero))
        share = b.add("ReduceMean", b.add("Cast", hit, to=TensorProto.FLOAT), keepdims=0)
        correct = b.add("Mul", share, b.constant(float(batch)))
        classes = b.add("Shape", scores, start=1, end=2, hint="classes")
        count = b.add("Cast", classes, to=TensorProto.FLOAT)
        difference = b.add("Sub", b.add("Sigmoid", scores), target)
        gradient = b.add("Div", difference, b.add("Mul", count, b.constant(float(batch))))
        return loss, correct, gradient

    def draw_labels(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Labels:
        """See `Objective`."""
        return rng.integers(0, 2, shape, np.uint8)


def _smoothed(target: Tensor, label_smoothing: float) -> Tensor:
    return target * (1 - label_smoothing) + label_smoothing / 2


def _correct(logits: Tensor, labels: Tensor) -> Tensor:
    return ((logits > 0) == (labels > 0)).float().mean(1).sum()
