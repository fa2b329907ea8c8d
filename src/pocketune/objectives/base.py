"""The author half of a task: its loss in PyTorch, its shapes for tracing, and its lowering to ONNX.

The loss of a step is one operator of the traced graph, so one graph serves any number of classes.
Traced through PyTorch's own operators, it would contain their number as a constant.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pocketune.errors import PocketuneError
from pocketune.extensions import import_extension
from pocketune.tasks import Labels, Task


class Builder(Protocol):
    """The methods of `pocketune.compiler.builder.GraphBuilder` that a lowering needs."""

    def add(self, op: str, *inputs: str, hint: str | None = None, **attributes: Any) -> str:
        """Append a node; returns the name of its output."""
        ...

    def constant(
        self, value: NDArray[np.generic] | Sequence[float] | float, hint: str = "c"
    ) -> str:
        """The name of a constant."""
        ...


class Operand(NamedTuple):
    """A tensor of an ONNX graph, as a lowering reads it.

    Attributes:
        name: In the graph.
        shape: As traced; where a graph leaves the number of classes open, it has another one.
    """

    name: str
    shape: tuple[int, ...]


class Objective(ABC):
    """The loss that a task minimizes.

    Args:
        task: The task with its options, such as the label smoothing.

    Attributes:
        inputs: The task's step inputs, by name; the loss reads the tensors that it holds.
    """

    operator: ClassVar[Any]
    """`operator(outputs, labels, *inputs, *options)` gives the loss (), the task's step metrics ()
    and the gradient of the loss by the outputs; it is a `torch.library.custom_op` with fake
    shapes."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.inputs = {name: torch.from_numpy(v) for name, v in task.step_inputs().items()}

    @property
    def options(self) -> tuple[float, ...]:
        """Constants of the operator."""
        return ()

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The mean loss () of a batch, by PyTorch's differentiable operators."""

    @abstractmethod
    def metrics(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """The task's `step_metrics` of a batch, each ()."""

    def step(self, outputs: Tensor, labels: Tensor) -> list[Tensor]:
        """Loss, step metrics and gradient of the outputs, as one operator of a traced graph."""
        return list(self.operator(outputs, labels, *self.inputs.values(), *self.options))

    @classmethod
    @abstractmethod
    def lower(
        cls, b: Builder, outputs: Operand, labels: Operand, *arguments: Any
    ) -> tuple[str, ...]:
        """Add the operator's nodes to an ONNX graph; returns the names of its results.

        The graph reads the number of classes from the shape of `outputs` while it runs. The
        `arguments` are the further ones of the operator: its inputs, each an `Operand`, and then
        its options.
        """

    @abstractmethod
    def draw_labels(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Labels:
        """Random labels of a shape, the batch first, to check a compiled step with."""

    def empty_labels(self, batch: int, size: int) -> Tensor:
        """Labels of a batch to trace with; their values have no meaning."""
        dtype = torch.as_tensor(np.empty(0, self.task.label_type)).dtype
        return torch.zeros((batch, *self.task.label_shape(size)), dtype=dtype)


OBJECTIVES: dict[str, type[Objective]] = {}
"""The objective of each task, by the task's name."""

T = TypeVar("T", bound=type[Objective])


def register_objective(task: type[Task]) -> Callable[[T], T]:
    """Class decorator: register the objective of a task.

    Raises:
        ValueError: The task has an objective already.
    """

    def register(objective: T) -> T:
        if OBJECTIVES.setdefault(task.name, objective) is not objective:
            raise ValueError(f"the task {task.name!r} has an objective already")
        return objective

    return register


def objective_of(task: Task) -> Objective:
    """The objective of a task.

    Raises:
        PocketuneError: The task has no objective.
    """
    if task.name not in OBJECTIVES:
        import_extension("objectives", task.name)
    if task.name not in OBJECTIVES:
        raise PocketuneError(
            f"the task {task.name!r} has no objective; register one with register_objective"
        )
    return OBJECTIVES[task.name](task)


def objective_of_operator(operator: object) -> type[Objective] | None:
    """The objective whose operator this is."""
    found = (o for o in OBJECTIVES.values() if o.operator == operator)
    return next(found, None)
