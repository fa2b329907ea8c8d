"""Small programs, for the tests of the passes before lowering."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, fx

from pocketune.compiler.capture.operators import decompositions
from pocketune.compiler.capture.tracer import trace
from pocketune.compiler.passes.program import Program


def program_of(
    function: Callable[..., Sequence[Tensor]],
    inputs: Sequence[Tensor],
    constants: Sequence[Tensor] = (),
) -> Program:
    """What `function(*inputs, *constants)` computes."""
    graph = trace(function, *inputs, *constants, decompositions=decompositions())
    nodes = list(graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    known = dict(zip(placeholders[len(inputs) :], constants, strict=True))
    (returned,) = nodes[-1].args
    return Program(returned, placeholders[: len(inputs)], known)


def run(program: Program, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The values of the wanted nodes."""
    values: dict[fx.Node, Any] = dict(program.constants)
    given = [node for node in program.graph.nodes if node in program.given]
    values.update(zip(given, inputs, strict=True))
    for node in program.needed():
        args = fx.map_arg(node.args, values.__getitem__)
        kwargs = fx.map_arg(node.kwargs, values.__getitem__)
        values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
    return [values[node] for node in program.wanted]


def targets(program: Program) -> list[str]:
    """Operator of every needed node, in order."""
    return [str(node.target).removeprefix("aten.") for node in program.needed()]
