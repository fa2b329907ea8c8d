"""The author half of `tests/tasks/regression.py`: the loss in PyTorch, its shapes, its lowering."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor
from torch.nn import functional

from pocketune.objectives import Objective, register_objective
from pocketune.objectives.base import Builder, Operand
from pocketune.tasks import Labels

from ..tasks.regression import Regression

Step = tuple[Tensor, Tensor, Tensor]


@torch.library.custom_op("pocketune_tests::squared_error", mutates_args=())
def squared_error(outputs: Tensor, labels: Tensor) -> Step:
    """Loss (), summed absolute error () and gradient by `outputs` float32 (N, quantities)."""
    difference = outputs - labels
    error = difference.abs().mean(1).sum()
    return difference.square().mean(), error, 2 * difference / difference.numel()


@squared_error.register_fake
def _(outputs: Tensor, labels: Tensor) -> Step:
    return outputs.new_empty(()), outputs.new_empty(()), torch.empty_like(outputs)


@register_objective(Regression)
class SquaredError(Objective):
    operator = torch.ops.pocketune_tests.squared_error.default

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return functional.mse_loss(outputs, labels.to(outputs.dtype))

    def metrics(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        return ((outputs - labels).abs().mean(1).sum(),)

    @classmethod
    def lower(
        cls, b: Builder, outputs: Operand, labels: Operand, *arguments: Any
    ) -> tuple[str, ...]:
        difference = b.add("Sub", outputs.name, labels.name)
        loss = b.add("ReduceMean", b.add("Mul", difference, difference), keepdims=0)
        mean = b.add("ReduceMean", b.add("Abs", difference), keepdims=0)
        error = b.add("Mul", mean, b.constant(float(outputs.shape[0])))
        count = b.add("Cast", b.add("Size", difference), to=TensorProto.FLOAT)
        gradient = b.add("Div", b.add("Mul", difference, b.constant(2.0)), count)
        return loss, error, gradient

    def draw_labels(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Labels:
        return rng.random(shape, np.float32)
