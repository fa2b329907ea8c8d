"""Let a convolution pad its input itself, where zeros were put around it.

Requires: copies are skipped. Afterwards a convolution whose input was padded reads what was padded,
and its `meta["pads"]` holds (top, left, bottom, right).
"""

from typing import Any

import torch
from torch import fx

from pocketune.compiler.passes.program import Program, shape_of

aten = torch.ops.aten


def fold_padding(program: Program) -> None:
    """Merge zeros around a map into the convolutions that read it."""
    for node in program.needed():
        if node.target is aten.convolution.default and _can_pad(node):
            source, pads = _padded(node.args[0], program)
            if source is not None:
                padding: Any = node.args[4]
                own = (padding[0], padding[-1]) * 2
                convolution = program.call(node, node.target, (source, *node.args[1:]))
                convolution.meta["pads"] = tuple(a + b for a, b in zip(own, pads, strict=True))
                program.replace(node, convolution)


def _can_pad(convolution: fx.Node) -> bool:
    """Not transposed, and no plain product over the channels, which may be done without padding."""
    kernel, transposed = convolution.args[1], convolution.args[6]
    assert isinstance(kernel, fx.Node)
    return not transposed and shape_of(kernel)[2:] != (1, 1)


def _padded(node: object, program: Program) -> tuple[fx.Node | None, tuple[int, ...]]:
    """What was padded, and by how much; None where this is not a map with zeros around it."""
    if not isinstance(node, fx.Node) or node in program.given:
        return None, ()
    if node.target is not aten.constant_pad_nd.default:
        return None, ()
    arguments: Any = node.args
    source, pad, *value = arguments
    (left, right, top, bottom), others = [*pad, 0, 0, 0, 0][:4], pad[4:]
    inside = min(left, right, top, bottom) >= 0 and not any(others)
    if len(shape_of(source)) != 4 or not inside or value not in ([], [0], [0.0]):
        return None, ()
    return source, (top, left, bottom, right)
