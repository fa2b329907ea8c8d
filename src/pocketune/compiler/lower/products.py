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
    batches = {v.merged.shape[:-2] for v in (a, b) if v.merged is not None}
    if len(batches) != 1 or not all(v.merged or _same_in_batch(v) for v in (a, b)):
        return _product(context, a, b, shape)
    whole = _product(context, a.merged or a, b.merged or b, (*batches.pop(), *shape[1:]))
    return Value(shape, merged=whole)


def _same_in_batch(value: Value) -> bool:
    return value.expanded is not None and all(d == 1 for d in value.expanded.shape[:-2])


def _product(context: Context, a: Value, b: Value, shape: tuple[int, ...]) -> Value:
    """Of two values in batches, either of which may be the same for some or all of them."""
    small = [_one_matrix(v) for v in (a, b)]
    covered = (*np.broadcast_shapes(*(v.shape[:-2] for v in small)), *shape[-2:])
    product = Value(covered, plain=context.builder.add("MatMul", *map(context.plain, small)))
    return product if covered == shape else Value(shape, expanded=product)


def _one_matrix(value: Value) -> Value:
    """What is repeated for the batches, if whole matrices are."""
    one = value.expanded
    return value if one is None or one.shape[-2:] != value.shape[-2:] else one
