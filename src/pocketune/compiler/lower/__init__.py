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
    mask,
    norm,
    padding,
    patches,
    pool,
    resample,
    shape,
)
from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.value import Value

__all__ = ["Context", "Value", "lower", "lowers"]


def lower(
    builder: GraphBuilder,
    given: Mapping[fx.Node, Value],
    wanted: Iterable[fx.Node],
    *,
    rows_max_pixels: int,
    least_packed: float = inf,
) -> Context:
    """Add to `builder` what computes the `wanted` nodes from the `given` ones.

    Maps of up to `rows_max_pixels` pixels are kept as rows where that helps; see `Value`. Masks
    of `least_packed` elements or more are kept as bits, others as bytes.

    Raises:
        PocketuneError: an operator has no rule.
    """
    context = Context(builder, rows_max_pixels=rows_max_pixels, least_packed=least_packed)
    context.values.update(given)
    for node in _needed(wanted, given):
        context.lower(node)
    return context


def _needed(wanted: Iterable[fx.Node], given: Mapping[fx.Node, Value]) -> list[fx.Node]:
    """The nodes between, in traced order."""
    wanted = list(wanted)
    needed, stack = set(), list(wanted)
    while stack:
        node = stack.pop()
        if node not in given and node not in needed:
            needed.add(node)
            stack.extend(node.all_input_nodes)
    graph = wanted[0].graph
    return [node for node in graph.nodes if node in needed]
