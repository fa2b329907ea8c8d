"""Read what was copied instead of the copy.

Requires: nothing. Afterwards no needed node is a copy, a view of the same shape or a conversion to
the same type.
"""

import torch
from torch import fx

from pocketune.compiler.passes.program import Program, shape_of

aten = torch.ops.aten

_COPIES = {aten.detach.default, aten.alias.default, aten.clone.default, aten.contiguous.default}
_VIEWS = {
    aten.view.default,
    aten._unsafe_view.default,
    aten.expand.default,
    aten._to_copy.default,
}


def skip_copies(program: Program) -> None:
    """Let the readers of a copy read the original."""
    for node in program.needed():
        if node.target in _COPIES or (node.target in _VIEWS and _changes_nothing(node)):
            program.replace(node, node.all_input_nodes[0])


def _changes_nothing(node: fx.Node) -> bool:
    (source,) = node.all_input_nodes
    types = {source.meta["val"].dtype, node.meta["val"].dtype}
    return shape_of(source) == shape_of(node) and len(types) == 1
