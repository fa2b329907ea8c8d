"""The loss of a step, as the objective of its task lowers it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pocketune.compiler.lower.value import Value
from pocketune.objectives.base import objective_of_operator

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import fx

    from pocketune.compiler.lower.context import Context
    from pocketune.objectives import Objective


def objective_rule(operator: object) -> Callable[..., tuple[Value, ...]] | None:
    """The rule of an objective's operator; None for any other operator."""
    objective = objective_of_operator(operator)
    return None if objective is None else partial(_lower, objective)


def _lower(
    objective: type[Objective],
    context: Context,
    node: fx.Node,
    outputs: Value,
    labels: Value,
    *options: Any,
) -> tuple[Value, ...]:
    """Scalars, and as the last the gradient by the outputs."""
    names = objective.lower(
        context.builder, context.plain(outputs), context.plain(labels), outputs.shape[0], *options
    )
    *scalars, gradient = names
    return *(Value((), plain=name) for name in scalars), Value(outputs.shape, plain=gradient)
