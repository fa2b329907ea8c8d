"""Lower a traced graph of ATen operators to ONNX."""

from collections.abc import Iterable, Mapping
from math import inf

from torch import fx

from pocketune.compiler.builder import GraphBuilder
from pocketune.compiler.lower import (  # noqa: F401 - their rules register themselves
    activation,
    conv,
    elementwise,
    group_norm,
    layer_norm,
    norm,
    patches,
    places,
    products,
    reduce,
    resample,
    select,
    shape,
    slopes,
    smooth,
    survivors,
    wide_norm,
)
from pocketune.compiler.lower.context import (
    Context,
    Images,
    constant_value,
    list_lowerings,
    lowers,
)
from pocketune.compiler.lower.value import Value
from pocketune.compiler.passes.fold import fold_norms, fold_padding
from pocketune.compiler.passes.program import Program
from pocketune.compiler.passes.simplify import fold_constants, join_views, reuse_clips, skip_copies
from pocketune.compiler.passes.wide_norms import join_wide_norms

__all__ = ["Context", "Images", "Value", "list_lowerings", "lower", "lowers"]

PASSES = (
    fold_constants,
    skip_copies,
    join_views,
    fold_padding,
    fold_norms,
    reuse_clips,
    join_wide_norms,
)
"""The passes over a traced graph, before its operators are translated one by one."""


def lower(
    builder: GraphBuilder,
    given: Mapping[fx.Node, Value],
    wanted: Iterable[fx.Node],
    *,
    rows_max_pixels: int,
    least_packed: float = inf,
    images: Images | None = None,
) -> Context:
    """Add to `builder` the nodes that compute the `wanted` ones from the `given` ones.

    Maps of up to `rows_max_pixels` pixels are kept as rows where that is faster; see `Value`.
    Masks of `least_packed` elements or more are kept as bits, others as bytes. `images` is their
    number, which a kit may leave open.

    Raises:
        PocketuneError: An operator has no rule.
    """
    wanted = list(wanted)
    constants = {node: v.constant for node, v in given.items() if v.constant is not None}
    traced = None if images is None else images.traced
    program = Program(wanted, given.keys() - constants.keys(), constants, traced)
    for prepare in PASSES:
        prepare(program)
    context = Context(
        builder, rows_max_pixels=rows_max_pixels, least_packed=least_packed, images=images
    )
    for original, node in program.copies.items():
        if original in given:
            context.values[node] = given[original]
    number = traced if images and images.source else None
    for node, constant in program.constants.items():
        value = constant_value(constant, number)
        if node.op == "get_attr":  # made by the forward pass, perhaps for each image
            context.values[node] = value
        context.values.setdefault(node, value)
    for node in program.needed():
        context.lower(node)
    context.finish(program, wanted)
    return context
