"""Padding by reflection and by replication, and their gradients.

A border's gradient goes where its pixels came from: a product along each side with a matrix of
ones and zeros.
"""

import numpy as np
import torch
from torch import Tensor, fx
from torch.nn import functional

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.resample import resample
from pocketune.compiler.lower.value import Value
from pocketune.compiler.passes.program import shape_of

aten = torch.ops.aten

_REFLECTION = (aten.reflection_pad2d.default, aten.reflection_pad2d_backward.default)
_REPLICATION = (aten.replication_pad2d.default, aten.replication_pad2d_backward.default)


@lowers(_REFLECTION[0], _REPLICATION[0])
def _pad(context: Context, node: fx.Node, x: Value, padding: list[int]) -> Value:
    left, right, top, bottom = padding
    pads = context.builder.constant(np.array([0, 0, top, left, 0, 0, bottom, right]))
    mode = "reflect" if node.target in _REFLECTION else "edge"
    name = context.builder.add("Pad", context.plain(x), pads, mode=mode)
    return Value(shape_of(node), plain=name)


@lowers(_REFLECTION[1], _REPLICATION[1])
def _pad_backward(context: Context, node: fx.Node, g: Value, x: Value, padding: list[int]) -> Value:
    mode = "reflect" if node.target in _REFLECTION else "replicate"
    left, right, top, bottom = padding
    vertical = _borders(x.shape[2], top, bottom, mode)
    return resample(context, g, vertical, _borders(x.shape[3], left, right, mode), x.shape)


def _borders(size: int, before: int, after: int, mode: str) -> Tensor:
    """(`size`, padded size): which pixels each pixel has become."""
    return functional.pad(torch.eye(size), (before, after), mode=mode)
