"""Matrix products, single and in batches, and the permutations around them."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import fx

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.value import Value
from pocketune.compiler.passes.program import shape_of

aten = torch.ops.aten


@lowers(aten.permute.default)
def _permute(context: Context, node: fx.Node, x: Value, dims: Sequence[int]) -> Value:
    return permuted(x, [d % len(dims) for d in dims])


def permuted(x: Value, dims: Sequence[int]) -> Value:
    """`x` with its dimensions in another order; permutations are joined, and cost nothing yet."""
    if x.merged is not None and dims[0] == 0:
        leading = len(x.merged.shape) - len(x.shape) + 1
        inner = [*range(leading), *(leading - 1 + d for d in dims[1:])]
        return Value(tuple(x.shape[d] for d in dims), merged=permuted(x.merged, inner))
    if x.permuted is not None:
        x, before = x.permuted
        dims = [before[d] for d in dims]
    if list(dims) == sorted(dims):
        return x
    shape = tuple(x.shape[d] for d in dims)
    if x.one_for_all and dims[0] == 0:
        return Value(shape, expanded=permuted(x.one_for_all, dims))
    return Value(shape, permuted=(x, tuple(dims)))


@lowers(aten.t.default)
def _t(context: Context, node: fx.Node, x: Value) -> Value:
    return x.transposed if x.transposed is not None else Value(shape_of(node), transposed=x)


@lowers(aten.mm.default)
def _mm(context: Context, node: fx.Node, a: Value, b: Value) -> Value:
    return Value(shape_of(node), plain=_gemm(context, a, b))


@lowers(aten.addmm.default)
def _addmm(context: Context, node: fx.Node, bias: Value, a: Value, b: Value) -> Value:
    return Value(shape_of(node), plain=_gemm(context, a, b, context.plain(bias)))


def _gemm(context: Context, a: Value, b: Value, *bias: str) -> str:
    return context.builder.add(
        "Gemm",
        context.plain(a.transposed or a),
        context.plain(b.transposed or b),
        *bias,
        transA=int(a.transposed is not None),
        transB=int(b.transposed is not None),
    )


@lowers(aten.bmm.default)
def _bmm(context: Context, node: fx.Node, a: Value, b: Value) -> Value:
    """A product in batches; ONNX's takes several batch dimensions, and broadcasts them."""
    shape = shape_of(node)
    if a.merged is None or b.merged is None or a.merged.shape[:-2] != b.merged.shape[:-2]:
        return Value(shape, plain=_product(context, a, b))
    whole = Value((*a.merged.shape[:-2], *shape[1:]), plain=_product(context, a.merged, b.merged))
    return Value(shape, merged=whole)


def _product(context: Context, a: Value, b: Value) -> str:
    """Of two values with the same batch dimensions; one of them may be the same for a whole one."""
    small = [v.expanded or v for v in (a, b)]
    ranks = {len(v.shape) for v in (a, b, *small)}
    if len(ranks) > 1 or np.broadcast_shapes(*(v.shape[:-2] for v in small)) != a.shape[:-2]:
        small = [a, b]
    return context.builder.add("MatMul", *map(context.plain, small))
