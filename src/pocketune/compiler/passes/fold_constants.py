"""Compute what depends on constants alone.

Requires: nothing. Afterwards every such node that is needed is a constant itself.
"""

from torch import Tensor, fx

from pocketune.compiler.passes.program import Program


def fold_constants(program: Program) -> None:
    """Run the nodes whose inputs are all constant."""
    for node in program.needed():
        if all(source in program.constants for source in node.all_input_nodes):
            program.constants[node] = _run(node, program)


def _run(node: fx.Node, program: Program) -> Tensor | tuple[Tensor, ...]:
    args = fx.map_arg(node.args, program.constants.__getitem__)
    kwargs = fx.map_arg(node.kwargs, program.constants.__getitem__)
    result = node.target(*args, **kwargs)  # type: ignore[operator]
    return result.detach() if isinstance(result, Tensor) else tuple(result)
