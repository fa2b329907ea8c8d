"""Take the mask of a clip's gradient from its output, which the next layer keeps anyway.

Requires: copies are skipped. Afterwards the gradient of a clip reads the clip's output, where that
is computed at all.
"""

import torch
from torch import fx

from pocketune.compiler.passes.program import Program

aten = torch.ops.aten

_CLIPS = (aten.hardtanh.default, aten.hardtanh_.default)


def reuse_clips(program: Program) -> None:
    """Between its limits the output equals the input, so that its mask is the same."""
    needed = program.needed()
    computed = {*needed, *program.given}
    for node in needed:
        if node.target is aten.hardtanh_backward.default:
            _, x, low, high = node.args
            assert isinstance(x, fx.Node)
            outputs = [y for y in x.users if y in computed and _limits(y) == (low, high)]
            if outputs:
                node.args = (node.args[0], outputs[0], low, high)


def _limits(node: fx.Node) -> tuple[object, ...] | None:
    if node.target not in _CLIPS:
        return None
    return (*node.args[1:], *(-1, 1)[len(node.args) - 1 :])
