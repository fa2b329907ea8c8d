"""Passes that fold what surrounds a convolution, its padding and a frozen norm, into it."""

from typing import Any

import torch
from torch import Tensor, fx

from pocketune.compiler.passes.program import Program, shape_of

aten = torch.ops.aten


def fold_padding(program: Program) -> None:
    """Let a convolution pad its input itself, where zeros are put around it.

    Requires: copies are skipped. Afterwards a convolution whose input was padded reads the map
    without its zeros, and its `meta["pads"]` holds (top, left, bottom, right).
    """
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
    """Whether it is neither transposed nor 1x1, which is a matrix product without padding."""
    kernel, transposed = convolution.args[1], convolution.args[6]
    assert isinstance(kernel, fx.Node)
    return not transposed and shape_of(kernel)[2:] != (1, 1)


def _padded(node: object, program: Program) -> tuple[fx.Node | None, tuple[int, ...]]:
    """The map before its padding and its pads; None if this is not a map padded with zeros."""
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


_VIEWS = {
    aten.view.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,
}


def fold_norms(program: Program) -> None:
    """Fold a frozen norm, a scale and a shift of each channel, into the convolution before it.

    The scale goes into the kernel, forward and backward, and the shift becomes the bias. No
    operation on a whole feature map is left.

    Requires: constants are folded and copies skipped. Afterwards no convolution with a constant
    kernel is followed by a constant scale, none without a bias by a shift, and no gradient of such
    a convolution is preceded by a constant scale.
    """
    for node in program.needed():
        folded = None
        if node.target is aten.mul.Tensor:
            folded = _scaled(program, node, *node.args)
        elif node.target is aten.add.Tensor and not node.kwargs:
            folded = _shifted(program, node, *node.args)
        elif node.target is aten.addcmul.default and not node.kwargs:
            folded = _normalized(program, node)
        elif node.target in (aten.convolution.default, aten.convolution_backward.default):
            folded = _gradient(program, node)
        if folded is not None:
            program.replace(node, folded)


def _normalized(program: Program, node: fx.Node) -> fx.Node | None:
    """`shift + x * scale`, as `FrozenBatchNorm2d` has it."""
    shift, x, scale = node.args
    scaled = _scaled(program, node, x, scale)
    if scaled is None:
        return None
    shifted = _shifted(program, node, scaled, shift)
    return shifted or program.call(node, aten.add.Tensor, (scaled, shift))


def _scaled(program: Program, node: fx.Node, x: Any, factor: Any) -> fx.Node | None:
    """The convolution `x` with a scale in its kernel and bias, where both are constant."""
    if not _is_convolution(program, x):
        return None
    scale, kernel = _per_channel(program, x, factor), program.tensor(x.args[1])
    bias = program.tensor(x.args[2])
    if scale is None or kernel is None or (x.args[2] is not None and bias is None):
        return None
    scaled_bias = None if bias is None else program.constant(node, bias * scale.flatten())
    return _convolution(program, node, x, _scaled_kernel(program, node, kernel, scale), scaled_bias)


def _shifted(program: Program, node: fx.Node, x: Any, term: Any) -> fx.Node | None:
    """The convolution `x` with a shift added to its bias, or as its bias."""
    if not _is_convolution(program, x):
        return None
    shift, (_, kernel, bias, *_) = _per_channel(program, x, term), x.args
    if bias is None:
        added = _vector(x, term) if shift is None else program.constant(node, shift.flatten())
        return None if added is None else _convolution(program, node, x, kernel, added)
    own = program.tensor(bias)
    if own is None or shift is None:
        return None
    return _convolution(program, node, x, kernel, program.constant(node, own + shift.flatten()))


def _gradient(program: Program, node: fx.Node) -> fx.Node | None:
    """The gradient of a convolution's input, with the scale of its gradient in the kernel.

    A transposed convolution is such a gradient, too.
    """
    arguments: list[Any] = [*node.args]
    if node.target is aten.convolution.default:
        place, alone = 1, arguments[6] and arguments[2] is None
    else:
        place, alone = 2, not arguments[7] and not any(arguments[10][1:])
    g, kernel = arguments[0], program.tensor(arguments[place])
    if not alone or kernel is None or g in program.given or g.target is not aten.mul.Tensor:
        return None
    before, factor = g.args
    scale = _per_channel(program, g, factor)
    if scale is None or shape_of(before) != shape_of(g):
        return None
    arguments[0], arguments[place] = before, _scaled_kernel(program, node, kernel, scale)
    return program.call(node, node.target, tuple(arguments))


def _is_convolution(program: Program, node: Any) -> bool:
    if not isinstance(node, fx.Node) or node in program.given:
        return False
    return node.target is aten.convolution.default and not node.args[6]


def _convolution(
    program: Program, node: fx.Node, x: fx.Node, kernel: Any, bias: fx.Node | None
) -> fx.Node:
    """`x` with another kernel and bias."""
    made = program.call(node, x.target, (x.args[0], kernel, bias, *x.args[3:]))
    if "pads" in x.meta:
        made.meta["pads"] = x.meta["pads"]
    return made


def _per_channel(program: Program, x: fx.Node, factor: Any) -> Tensor | None:
    """A constant (1, C, 1, 1) for the channels of a map."""
    tensor, shape = program.tensor(factor), shape_of(x)
    if tensor is None or len(shape) != 4 or tensor.shape != (1, shape[1], 1, 1):
        return None
    return tensor


def _vector(x: fx.Node, term: Any) -> fx.Node | None:
    """The vector (C,) that `term` views as (1, C, 1, 1)."""
    if not isinstance(term, fx.Node) or term.target not in _VIEWS:
        return None
    (source,) = term.all_input_nodes
    channels = shape_of(x)[1]
    fits = shape_of(term) == (1, channels, 1, 1) and shape_of(source) == (channels,)
    return source if fits else None


def _scaled_kernel(program: Program, node: fx.Node, kernel: Tensor, scale: Tensor) -> fx.Node:
    return program.constant(node, kernel * scale.reshape(-1, 1, 1, 1))
