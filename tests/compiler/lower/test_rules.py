"""Each lowering rule is exercised, by a function of its own operator."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from pocketune.compiler.lower import list_lowerings, lowers
from pocketune.compiler.lower.context import RULES
from pocketune.errors import PocketuneError

from ..lowering import LAYOUTS, check_function, leaf

aten, ours = torch.ops.aten, torch.ops.pocketune

Function = Callable[..., Sequence[Tensor]]


def positive(op: Any) -> Function:
    return lambda x, y: [op(x * x + 0.5) * y]


def pair(op: Any) -> Function:
    return lambda x, y: [op(x * 1, y) * y]


def number(op: Any) -> Function:
    return lambda x, y: [op(x * 1, 0.5) * y]


def logic(op: Any) -> Function:
    return lambda x, y: [op(x > 0, y > 0) * y]


def derivative(op: Any, *arguments: float) -> Function:
    return lambda x, y: [op(y, x, *arguments)]


def largest(x: Tensor) -> tuple[Tensor, Tensor]:
    y, indices = aten.max_pool2d_with_indices(x, [2, 2])
    return y, indices


def batch_norm(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    result: tuple[Tensor, Tensor, Tensor] = aten.native_batch_norm(
        x, v, v, v, v * v + 1, False, 0.1, 1e-5
    )
    return result


def pruned(x: Tensor, y: Tensor) -> list[Tensor]:
    """Of each image, the 20 largest elements."""
    packed = ours.pack_above(x * 1, ours.magnitude_threshold(x * 1, 20), False)
    values = ours.survivors(x * 1, packed, 20, False)
    kept = ours.zero_dropped(y, packed, False)
    return [ours.restore(values, packed, list(x.shape), False), kept]


def resized(op: Any, *options: bool) -> Function:
    return lambda x, _: [op(x, [9, 4], *options)]


def resized_back(op: Any, *options: bool) -> Function:
    return lambda g, _: [op(g, [6, 6], [2, 4, 3, 8], *options)]


def group_norm_gradients(g: Tensor, x: Tensor, w: Tensor) -> list[Tensor]:
    y, mean, inverse = aten.native_group_norm(x, w, w, 2, 4, 36, 2, 1e-5)
    gradients = aten.native_group_norm_backward(
        g, x, mean, inverse, w, 2, 4, 36, 2, [True, True, True]
    )
    return [y, *gradients]


def layer_norm_gradients(g: Tensor, x: Tensor, w: Tensor) -> list[Tensor]:
    y, mean, inverse = aten.native_layer_norm(x, [6], w, w, 1e-5)
    needed = [True, True, True]
    return [y, *aten.native_layer_norm_backward(g, x, [6], mean, inverse, w, w, needed)]


INDEX = torch.tensor([2, 0, 2])
CONV = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)

UNARY = (
    aten.abs,
    aten.cos,
    aten.erf,
    aten.exp,
    aten.expm1,
    aten.gelu,
    aten.hardsigmoid,
    aten.hardswish,
    aten.hardtanh,
    aten.leaky_relu,
    aten.log,
    aten.log1p,
    aten.neg,
    aten.reciprocal,
    aten.relu,
    aten.round,
    aten.rsqrt,
    aten.sgn,
    aten.sigmoid,
    aten.sign,
    aten.silu,
    aten.sin,
    aten.sqrt,
    aten.tanh,
)
BINARY = (
    aten.add.Tensor,
    aten.sub.Tensor,
    aten.mul.Tensor,
    aten.rsub.Tensor,
    aten.maximum.default,
    aten.minimum.default,
    aten.copy.default,
    aten.eq.Tensor,
    aten.ge.Tensor,
    aten.gt.Tensor,
    aten.le.Tensor,
    aten.lt.Tensor,
    aten.ne.Tensor,
)
WITH_A_NUMBER = (
    aten.add.Scalar,
    aten.sub.Scalar,
    aten.mul.Scalar,
    aten.div.Scalar,
    aten.rsub.Scalar,
    aten.eq.Scalar,
    aten.ge.Scalar,
    aten.gt.Scalar,
    aten.le.Scalar,
    aten.lt.Scalar,
    aten.ne.Scalar,
)
LOGIC = (
    aten.bitwise_and.Tensor,
    aten.bitwise_or.Tensor,
    aten.logical_and.default,
    aten.logical_or.default,
)

RESIZES = (
    aten.upsample_bilinear2d,
    aten.upsample_bicubic2d,
    aten._upsample_bilinear2d_aa,
    aten._upsample_bicubic2d_aa,
)
RESIZES_BACK = (
    aten.upsample_bilinear2d_backward,
    aten.upsample_bicubic2d_backward,
    aten._upsample_bilinear2d_aa_backward,
    aten._upsample_bicubic2d_aa_backward,
)
NEAREST = (aten.upsample_nearest2d, aten._upsample_nearest_exact2d)
NEAREST_BACK = (aten.upsample_nearest2d_backward, aten._upsample_nearest_exact2d_backward)

# of two maps (2, 4, 6, 6)
MAPS: dict[Any, Function] = {
    **{op.default: positive(op) for op in UNARY},
    **{op: pair(op) for op in BINARY},
    **{op: number(op) for op in WITH_A_NUMBER},
    **{op: logic(op) for op in LOGIC},
    aten.bitwise_not.default: lambda x, y: [aten.bitwise_not(x > 0) * y],
    aten.logical_not.default: lambda x, y: [aten.logical_not(x > 0) * y],
    aten.where.self: lambda x, y: [aten.where(x > 0, x, y)],
    aten.div.Tensor: lambda x, y: [x / (y * y + 1)],
    aten.clamp.default: lambda x, y: [aten.clamp(x, -0.5, 0.5) * y],
    aten.addcmul.default: lambda x, y: [aten.addcmul(x, x, y, value=2)],
    aten.pow.Scalar: lambda x, y: [aten.pow(2.5, x) * y],
    aten.pow.Tensor_Tensor: lambda x, y: [aten.pow(x * x + 1, y)],
    aten.ceil.default: lambda x, y: [aten.ceil(3 * x) * y],
    aten.floor.default: lambda x, y: [aten.floor(3 * x) * y],
    aten.pow.Tensor_Scalar: lambda x, y: [aten.pow(x * x + 1, 1.5) * y],
    aten._to_copy.default: lambda x, y: [
        aten._to_copy(aten._to_copy(x * 20, dtype=torch.int8), dtype=torch.float32)
    ],
    aten.hardsigmoid_backward.default: derivative(aten.hardsigmoid_backward),
    aten.hardswish_backward.default: derivative(aten.hardswish_backward),
    aten.hardtanh_backward.default: derivative(aten.hardtanh_backward, -0.5, 0.5),
    aten.threshold_backward.default: derivative(aten.threshold_backward, 0.0),
    aten._softmax.default: lambda x, y: [aten._softmax(x, 1, False) * y],
    aten._log_softmax.default: lambda x, y: [aten._log_softmax(x, 1, False) * y],
    aten.topk.default: lambda x, y: [aten.topk(x.abs().flatten(1), 3)[0]],
    **dict.fromkeys(
        (
            ours.magnitude_threshold.default,
            ours.pack_above.default,
            ours.survivors.default,
            ours.zero_dropped.default,
            ours.restore.default,
        ),
        pruned,
    ),
    aten.gelu_backward.default: derivative(aten.gelu_backward),
    aten.silu_backward.default: derivative(aten.silu_backward),
    aten.amin.default: lambda x, y: [aten.amin(x, [2, 3], True) * y],
    aten.flip.default: lambda x, y: [aten.flip(x, [1, 3])],
    aten.select.int: lambda x, y: [aten.select.int(x, 1, -1)],
    aten.index.Tensor: lambda x, y: [aten.index(x, [None, INDEX])],
    aten.index_select.default: lambda x, y: [aten.index_select(x, 1, INDEX)],
    aten.index_put.default: lambda x, y: [aten.index_put(x, [None, INDEX], y[:, :3], True)],
    aten.max.dim: lambda x, y: [aten.max.dim(x, 1, True)[0] * y],
    aten.min.dim: lambda x, y: [x.gather(2, aten.min.dim(x * y, 2, True)[1])],
    aten.gather.default: lambda x, y: [aten.gather(x, 1, y.topk(2, 1)[1])],
    aten.scatter.src: lambda x, y: [aten.scatter.src(x, 1, *y.topk(2, 1)[::-1])],
    aten.scatter_add.default: lambda x, y: [aten.scatter_add(x, 3, y.max(3, True)[1], y)],
    aten.tril.default: lambda x, y: [aten.tril(x, 1) * y],
    aten.triu.default: lambda x, y: [aten.triu(x, -1) * y],
    aten.cumsum.default: lambda x, y: [aten.cumsum(x, -2) * y],
    aten.amax.default: lambda x, y: [aten.amax(x, [2, 3], True) * y],
    aten.mean.dim: lambda x, y: [aten.mean.dim(x, [2, 3], True) * y],
    aten.sum.dim_IntList: lambda x, y: [aten.sum.dim_IntList(x, [0, 2, 3])],
    aten.linalg_vector_norm.default: lambda x, y: [aten.linalg_vector_norm(x, 2, [1], True) * y],
    aten.cat.default: lambda x, y: [aten.cat([x, y], 1)],
    aten.slice.Tensor: lambda x, y: [aten.slice.Tensor(x, 2, 1, 5, 2)],
    aten.slice_backward.default: lambda x, y: [aten.slice_backward(x, [2, 4, 14, 6], 2, 1, 13, 2)],
    aten.repeat.default: lambda x, y: [aten.repeat(x, [1, 1, 2, 1])],
    aten.permute.default: lambda x, y: [aten.permute(x, [0, 2, 1, 3])],
    aten.view.default: lambda x, y: [aten.view(x, [2, 144])],
    aten._unsafe_view.default: lambda x, y: [aten._unsafe_view(x, [2, 144])],
    aten.unsqueeze.default: lambda x, y: [aten.unsqueeze(x, 2)],
    aten.squeeze.dim: lambda x, y: [aten.squeeze.dim(x.mean(2, keepdim=True), 2)],
    aten.squeeze.dims: lambda x, y: [aten.squeeze.dims(x.mean((2, 3), keepdim=True), [2, 3])],
    aten.expand.default: lambda x, y: [aten.expand(x.mean((2, 3), keepdim=True), [2, 4, 6, 6])],
    aten.constant_pad_nd.default: lambda x, y: [aten.constant_pad_nd(x, [1, 0, 0, 2], 0.5)],
    aten.avg_pool2d.default: lambda x, y: [aten.avg_pool2d(x, [2, 2])],
    aten.avg_pool2d_backward.default: lambda x, y: [
        aten.avg_pool2d_backward(x[:, :, :3, :3], y, [2, 2], [2, 2], [0, 0], False, True, None)
    ],
    aten.max_pool2d_with_indices.default: lambda x, y: [largest(x)[0]],
    aten.max_pool2d_with_indices_backward.default: lambda x, y: [
        aten.max_pool2d_with_indices_backward(
            y[:, :, :3, :3], x, [2, 2], [2, 2], [0, 0], [1, 1], False, largest(x)[1]
        )
    ],
    aten.reflection_pad2d.default: lambda x, y: [aten.reflection_pad2d(x, [1, 2, 0, 1])],
    aten.reflection_pad2d_backward.default: lambda x, y: [
        aten.reflection_pad2d_backward(x, y[:, :, 1:, :3], [1, 2, 0, 1])
    ],
    aten.replication_pad2d.default: lambda x, y: [aten.replication_pad2d(x, [1, 2, 0, 1])],
    aten.replication_pad2d_backward.default: lambda x, y: [
        aten.replication_pad2d_backward(x, y[:, :, 1:, :3], [1, 2, 0, 1])
    ],
    **{op.default: resized(op, False) for op in RESIZES},
    **{op.default: resized_back(op, False) for op in RESIZES_BACK},
    **{op.default: resized(op) for op in NEAREST},
    **{op.default: resized_back(op) for op in NEAREST_BACK},
    ours.slope_nonnegative.default: lambda x, y: [ours.slope_nonnegative(x) * y],
    ours.slope_between.default: lambda x, y: [ours.slope_between(x, 0.0, 0.5) * y],
    ours.patch_pool.default: lambda x, y: [ours.patch_pool(x, [2, 2], [0, 0], [3, 3], 4)],
    ours.patch_spread.default: lambda x, y: [ours.patch_spread(x, [2, 2], [0, 0], [12, 12])],
    ours.int8_scale.default: lambda x, y: [ours.int8_scale(x) * y],
}
MASKS: dict[Any, Function] = {
    ours.pack_nonnegative.default: lambda x, y: [
        ours.mask_gradient(y, ours.pack_nonnegative(x, False), False)
    ],
    ours.pack_between.default: lambda x, y: [
        ours.mask_gradient(y, ours.pack_between(x, -0.5, 0.5, False), False)
    ],
    ours.pack_slopes.default: lambda x, y: [
        ours.scale_by_slopes(y, ours.pack_slopes(x, "gelu", 4, False), "gelu", 4, False)
    ],
}
MASKS[ours.mask_gradient.default] = MASKS[ours.pack_between.default]
MASKS[ours.scale_by_slopes.default] = MASKS[ours.pack_slopes.default]

VECTORS = [leaf(4, seed=2, grad=False)]
KERNEL = leaf(4, 4, 3, 3, seed=3, grad=False)
MAP, OTHER = leaf(2, 4, 6, 6, grad=False), leaf(2, 4, 6, 6, seed=1, grad=False)
MATRIX = leaf(6, 6, seed=4, grad=False)

OTHERS: dict[Any, tuple[Function, list[Tensor]]] = {
    aten.convolution.default: (lambda x, w: [aten.convolution(x, w, None, *CONV)], [MAP, KERNEL]),
    aten.convolution_backward.default: (
        lambda g, x, w: aten.convolution_backward(g, x, w, None, *CONV, [True, True, False])[:2],
        [OTHER, MAP, KERNEL],
    ),
    aten.native_batch_norm.default: (lambda x, v: [batch_norm(x, v)[0]], [MAP, *VECTORS]),
    aten.native_batch_norm_backward.default: (
        lambda g, x, v: aten.native_batch_norm_backward(
            g, x, v, v, v, v, v * v + 1, True, 1e-5, [True, True, True]
        ),
        [OTHER, MAP, *VECTORS],
    ),
    aten.native_group_norm.default: (group_norm_gradients, [OTHER, MAP, *VECTORS]),
    aten.native_group_norm_backward.default: (group_norm_gradients, [OTHER, MAP, *VECTORS]),
    aten.native_layer_norm.default: (layer_norm_gradients, [OTHER, MAP, leaf(6, grad=False)]),
    aten.native_layer_norm_backward.default: (
        layer_norm_gradients,
        [OTHER, MAP, leaf(6, grad=False)],
    ),
    aten.mm.default: (lambda a, b: [aten.mm(a, b)], [MATRIX, MATRIX.t().contiguous()]),
    aten.addmm.default: (lambda v, a: [aten.addmm(v, a, a)], [leaf(6, grad=False), MATRIX]),
    aten.bmm.default: (lambda a, b: [aten.bmm(a[0], b[0])], [MAP, OTHER]),
    aten.t.default: (lambda a, b: [aten.t(a) * b], [MATRIX, MATRIX]),
    aten._adaptive_avg_pool2d.default: (lambda x: [aten._adaptive_avg_pool2d(x, [2, 3])], [MAP]),
    aten._adaptive_avg_pool2d_backward.default: (
        lambda g, x: [aten._adaptive_avg_pool2d_backward(g, x)],
        [leaf(2, MAP.shape[1], 2, 3, grad=False), MAP],
    ),
    ours.patch_input_gradient.default: (
        lambda g, w: [ours.patch_input_gradient(g, w, [1, 1], 1)],
        [MAP, KERNEL],
    ),
    ours.patch_kernel_gradient.default: (
        lambda g, x: [ours.patch_kernel_gradient(g, x, 1)],
        [OTHER, MAP],
    ),
}
FUNCTIONS = {
    **{op: (function, [MAP, OTHER]) for op, function in {**MAPS, **MASKS}.items()},
    **OTHERS,
}


def test_each_rule_has_its_function() -> None:
    assert sorted(map(str, FUNCTIONS)) == list_lowerings()


@LAYOUTS
@pytest.mark.parametrize("target", FUNCTIONS, ids=str)
def test_a_rule_computes_what_pytorch_does(
    target: Any, rows_max_pixels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule, used = RULES[target], []

    def recorded(context: Any, node: fx.Node, *args: Any, **kwargs: Any) -> Any:
        used.append(node.target)
        return rule(context, node, *args, **kwargs)

    monkeypatch.setitem(RULES, target, recorded)
    function, inputs = FUNCTIONS[target]
    check_function(function, inputs, (), rows_max_pixels)
    assert target in used


def test_a_second_rule_for_an_operator_is_refused() -> None:
    with pytest.raises(PocketuneError, match=r"aten\.relu\.default has a lowering rule already"):
        lowers(aten.relu.default)(RULES[aten.relu.default])
