"""Passes that leave fewer operators to translate: constants, copies and clips."""

import torch
from torch import Tensor, fx

from pocketune.compiler.capture.supplied_dropout import in_evaluation
from pocketune.compiler.passes.program import Program, shape_of

aten = torch.ops.aten


def fold_constants(program: Program) -> None:
    """Run the nodes whose inputs are all constant.

    Requires: nothing. Afterwards every such node that is needed is a constant itself, except where
    it repeats a tensor for each image: their number is open.
    """
    _share_constants(program)
    for node in program.needed():
        known = all(source in program.constants for source in node.all_input_nodes)
        if known and not _repeats(node, program.images):
            program.constants[node] = _run(node, program)


def _share_constants(program: Program) -> None:
    """Let what the forward pass makes for each image, such as positions, repeat that of one."""
    for node in list(program.graph.nodes):
        value = program.tensor(node)
        if node.op == "get_attr" and value is not None and _is_repeated(value, program.images):
            one = program.constant(node, value[:1])
            shape = list(value.shape)
            program.replace(node, program.call(node, aten.expand.default, (one, shape)))


def _is_repeated(value: Tensor, images: int | None) -> bool:
    many = value.dim() > 1 and len(value) == images
    return many and images != 1 and bool((value == value[:1]).all())


def _repeats(node: fx.Node, images: int | None) -> bool:
    if node.target not in (aten.expand.default, aten.repeat.default):
        return False
    before, after = (shape_of(each) for each in (*node.all_input_nodes, node))
    new = len(before) < len(after)
    return after[:1] == (images,) and (new or before[:1] == (1,))


def _run(node: fx.Node, program: Program) -> Tensor | tuple[Tensor, ...]:
    args = fx.map_arg(node.args, program.constants.__getitem__)
    kwargs = fx.map_arg(node.kwargs, program.constants.__getitem__)
    result = node.target(*args, **kwargs)  # type: ignore[operator]
    return result.detach() if isinstance(result, Tensor) else tuple(result)


_COPIES = {
    aten.detach.default,
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    in_evaluation,
}
_VIEWS = {
    aten.view.default,
    aten._unsafe_view.default,
    aten.expand.default,
    aten._to_copy.default,
}


def skip_copies(program: Program) -> None:
    """Let the readers of a copy read the original.

    Requires: nothing. Afterwards no needed node is a copy, a view of the same shape or a
    conversion to the same type.
    """
    for node in program.needed():
        if node.target in _COPIES or (node.target in _VIEWS and _changes_nothing(node)):
            program.replace(node, node.all_input_nodes[0])


def _changes_nothing(node: fx.Node) -> bool:
    (source,) = node.all_input_nodes
    types = {source.meta["val"].dtype, node.meta["val"].dtype}
    return shape_of(source) == shape_of(node) and len(types) == 1


_RESHAPES = {aten.view.default, aten._unsafe_view.default}


def join_views(program: Program) -> None:
    """Let a view of a view read the first one's source.

    Requires: copies are skipped. Afterwards no needed view reads another view of at least two
    dimensions; views of vectors, which serve the channels of maps, stay.
    """
    for node in program.needed():
        if node.target not in _RESHAPES:
            continue
        (source,) = node.all_input_nodes
        if source.target not in _RESHAPES or source in program.given:
            continue
        (first,) = source.all_input_nodes
        if len(shape_of(first)) > 1 and len(shape_of(source)) > 1:
            program.replace(node, program.call(node, node.target, (first, node.args[1])))


def reuse_clips(program: Program) -> None:
    """Take the mask of a clip's gradient from its output, which the next layer keeps anyway.

    Between the limits the output equals the input, so the mask is the same.

    Requires: copies are skipped. Afterwards the gradient of a clip reads the clip's output, where
    that is computed at all.
    """
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
    if node.target is not aten.hardtanh.default:
        return None
    return (*node.args[1:], *(-1, 1)[len(node.args) - 1 :])
