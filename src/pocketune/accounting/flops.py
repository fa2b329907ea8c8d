"""Floating-point operations of PyTorch's operators.

They count what an operator computes, from its shapes alone. (PyTorch's own `FlopCounterMode` counts
the weight gradient of a depthwise convolution as a dense one, and both gradients if only one is
computed.) N is the number of elements of the output, unless stated otherwise.

| operator | multiply-accumulates | further FLOPs |
| --- | --- | --- |
| convolution, weight (O, I / groups, h, w) | N * I / groups * h * w | bias: N |
| its gradient | the same for each requested gradient, of input and weight | bias: N of the output |
| matrix product (m, k) x (k, n) | m * k * n | `addmm`, `baddbmm`: N |
| batch, group, layer norm | | 6 N with the batch's statistics, 2 N with fixed ones |
| their gradients | | 9 N, and 2 N |
| softmax, log-softmax, and their gradients | | 4 N |
| fused attention, S scores, heads of d | 2 S d | 4 S |
| its gradients, which compute the scores again | 5 S d | 8 S |
| sum, mean, maximum and other reductions, gradients of padding | | elements of the input |
| pooling | | output elements times window, or elements of the input if larger |
| adding at the places of an index | | elements that are added |
| resizing, linear, bilinear and bicubic | | 3, 7 and 31 times the larger of input and output |
| elementwise | | N, whatever it computes for each element |
| views, copies, casts, fills, comparisons, random numbers, results that are not floats | | 0 |

A multiply-accumulate is two FLOPs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pocketune.errors import PocketuneError
from pocketune.networks.shapes import tensors


class OperatorFlops(NamedTuple):
    """Floating-point operations of one operator, and the multiply-accumulates among them."""

    flops: int
    macs: int


Rule = Callable[[tuple[Any, ...], Any], OperatorFlops]
"""From the positional arguments and the result of an operator to its FLOPs."""

_rules: dict[str, Rule] = {}


def register_flops(*operators: str) -> Callable[[Rule], Rule]:
    """Decorator: the rule for operators, named as `namespace.name`.

    >>> @register_flops("mylibrary.my_operator")
    ... def mine(args, result):
    ...     return OperatorFlops(2 * result.numel(), 0)

    Raises:
        ValueError: If one of them has a rule already.
    """

    def register(rule: Rule) -> Rule:
        if taken := _rules.keys() & set(operators):
            raise ValueError(f"there are two rules for {min(taken)}")
        _rules.update(dict.fromkeys(operators, rule))
        return rule

    return register


def operator_flops(func: Any, args: tuple[Any, ...], result: Any) -> OperatorFlops:
    """FLOPs of one call.

    Args:
        func: The operator (`torch._ops.OpOverload`).
        args: Its positional arguments.
        result: Its return value.

    Raises:
        PocketuneError: The operator has no rule.
    """
    name = f"{func.namespace}.{func._schema.name.split('::')[1]}"
    rule = _rules.get(name) or _rules.get(name.removesuffix("_"))  # x.add_() is x.add()
    if rule is not None:
        return rule(args, result)
    results = tensors(result)
    if func.is_view or not any(t.is_floating_point() or t.is_complex() for t in results):
        return OperatorFlops(0, 0)
    if torch.Tag.pointwise in func.tags:
        return _elementwise(results[0])
    raise PocketuneError(
        f"the operator {name} has no rule for its FLOPs; register one with pocketune.register_flops"
    )


def _elementwise(tensor: Tensor) -> OperatorFlops:
    return OperatorFlops(tensor.numel(), 0)


@register_flops(  # elementwise, but not tagged so by PyTorch; and gradients of means and copies
    "aten.hardtanh", "aten.hardtanh_backward", "aten.hardswish", "aten.hardswish_backward",
    "aten.hardsigmoid_backward", "aten.leaky_relu_backward", "aten.elu_backward",
    "aten.mish_backward", "aten.softplus_backward", "aten._prelu_kernel", "aten.glu",
    "aten._prelu_kernel_backward", "aten.log_sigmoid_forward", "aten.log_sigmoid_backward",
    "aten.glu_backward", "aten.rrelu_with_noise", "aten.native_dropout", "aten.mse_loss",
    "aten.mse_loss_backward", "aten.smooth_l1_loss", "aten.binary_cross_entropy",
    "aten.softshrink_backward", "aten.hardshrink_backward", "aten.rrelu_with_noise_backward",
    "pocketune.mask_gradient", "pocketune.slope_between", "pocketune.slope_nonnegative",
    "pocketune.zero_dropped", "pocketune.scale_by_slopes",
    "aten.avg_pool2d_backward", "aten._adaptive_avg_pool2d_backward",
    "aten.upsample_nearest2d_backward", "aten._upsample_nearest_exact2d_backward",
    "aten.upsample_nearest1d_backward", "aten._upsample_nearest_exact1d_backward",
)  # fmt: skip
def _each_of_result(args: tuple[Any, ...], result: Any) -> OperatorFlops:
    return _elementwise(result[0] if isinstance(result, tuple) else result)


def _products(macs: int, further: int = 0) -> OperatorFlops:
    return OperatorFlops(2 * macs + further, macs)


@register_flops(
    "aten.clone", "aten._to_copy", "aten.copy", "aten.contiguous", "aten.detach", "aten.cat",
    "aten.empty", "aten.empty_like", "aten.empty_strided", "aten.eye", "aten.new_empty",
    "aten.new_zeros", "aten.new_empty_strided", "aten.new_full", "aten.new_ones", "aten.zeros",
    "aten.ones", "aten.zeros_like", "aten.ones_like", "aten.full", "aten.full_like", "aten.fill",
    "aten.zero", "aten.scalar_tensor", "aten.arange", "aten.bernoulli", "aten.rand", "aten.randn",
    "aten.rand_like", "aten.randn_like", "aten.uniform", "aten.normal", "aten.constant_pad_nd",
    "aten._unsafe_view", "aten.as_strided", "aten.select_backward", "aten.slice_backward",
    "aten.index_select", "aten.gather", "aten.index", "aten._unsafe_index", "aten.repeat",
    "aten.stack", "aten.where", "aten.lift_fresh_copy", "aten.masked_fill",
    "aten.tril", "aten.triu",
    "aten.native_dropout_backward", "aten.reflection_pad2d", "aten.replication_pad2d",
    "aten.channel_shuffle", "aten.pixel_shuffle", "aten.pixel_unshuffle", "aten.roll",
    "aten.flip", "aten._reshape_copy", "aten.im2col", "aten.upsample_nearest2d",
    "aten._upsample_nearest_exact2d", "aten.upsample_nearest1d",
    "aten._upsample_nearest_exact1d", "aten.scatter", "aten.embedding",
    "aten.nll_loss_backward", "aten.nll_loss2d_backward", "pocketune.patch_spread",
    "pocketune.survivors", "pocketune.restore",
)  # fmt: skip
def _none(args: tuple[Any, ...], result: Any) -> OperatorFlops:
    return OperatorFlops(0, 0)


@register_flops("aten.convolution", "aten._convolution")
def _convolution(args: tuple[Any, ...], result: Tensor) -> OperatorFlops:
    x, weight, bias, transposed = args[0], args[1], args[2], args[6]
    sites = x.numel() if transposed else result.numel()
    return _products(sites * prod(weight.shape[1:]), result.numel() if bias is not None else 0)


@register_flops("aten.convolution_backward")
def _convolution_backward(args: tuple[Any, ...], result: Any) -> OperatorFlops:
    gradient, x, weight, transposed, wanted = args[0], args[1], args[2], args[7], args[10]
    sites = x.numel() if transposed else gradient.numel()
    products = sites * prod(weight.shape[1:]) * (wanted[0] + wanted[1])
    return _products(products, gradient.numel() if wanted[2] else 0)


@register_flops("aten.mm", "aten.bmm", "aten.mv")
def _matrix_product(args: tuple[Any, ...], result: Tensor) -> OperatorFlops:
    return _products(result.numel() * args[0].shape[-1])


@register_flops("aten.addmm", "aten.baddbmm")
def _matrix_product_and_sum(args: tuple[Any, ...], result: Tensor) -> OperatorFlops:
    return _products(result.numel() * args[1].shape[-1], result.numel())


@register_flops("aten.native_batch_norm", "aten._native_batch_norm_legit")
def _batch_norm(args: tuple[Any, ...], result: Any) -> OperatorFlops:
    return OperatorFlops((6 if args[5] else 2) * args[0].numel(), 0)


@register_flops("aten.native_batch_norm_backward")
def _batch_norm_backward(args: tuple[Any, ...], result: Any) -> OperatorFlops:
    return OperatorFlops((9 if args[7] else 2) * args[0].numel(), 0)


@register_flops("aten.native_group_norm", "aten.native_layer_norm")
def _group_norm(args: tuple[Any, ...], result: Any) -> OperatorFlops:
    return OperatorFlops(6 * args[0].numel(), 0)


@register_flops("aten.native_group_norm_backward", "aten.native_layer_norm_backward")
def _group_norm_backward(args: tuple[Any, ...], result: Any) -> OperatorFlops:
    return OperatorFlops(9 * args[0].numel(), 0)


@register_flops(
    "aten._softmax", "aten._safe_softmax", "aten._log_softmax",
    "aten._softmax_backward_data", "aten._log_softmax_backward_data",
)  # fmt: skip
def _softmax(args: tuple[Any, ...], result: Tensor) -> OperatorFlops:
    return OperatorFlops(4 * result.numel(), 0)


@register_flops("aten._scaled_dot_product_flash_attention_for_cpu")
def _attention(args: tuple[Any, ...], result: Any) -> OperatorFlops:
    query, key, value = args[:3]
    scores = query.numel() // query.shape[-1] * key.shape[-2]
    return _products(scores * (query.shape[-1] + value.shape[-1]), 4 * scores)


@register_flops("aten._scaled_dot_product_flash_attention_for_cpu_backward")
def _attention_backward(args: tuple[Any, ...], result: Any) -> OperatorFlops:
    """The scores are computed again, then the gradients of both products."""
    _, query, key, value = args[:4]
    scores = query.numel() // query.shape[-1] * key.shape[-2]
    return _products(scores * (3 * query.shape[-1] + 2 * value.shape[-1]), 8 * scores)


@register_flops("aten.nll_loss_forward", "aten.nll_loss2d_forward")
def _nll_loss(args: tuple[Any, ...], result: Any) -> OperatorFlops:
    return _elementwise(args[1])


@register_flops(
    "aten.sum", "aten.mean", "aten.amax", "aten.amin", "aten.max", "aten.min", "aten.norm",
    "aten.linalg_vector_norm", "aten.prod", "aten.logsumexp", "aten.cumsum",
    "aten.topk", "aten.sort",
    "aten._adaptive_avg_pool2d", "aten.adaptive_max_pool2d",
    "aten.max_pool2d_with_indices_backward", "aten.adaptive_max_pool2d_backward",
    "pocketune.patch_pool", "pocketune.int8_scale", "pocketune.magnitude_threshold",
    "aten.binary_cross_entropy_with_logits",
    "aten.reflection_pad2d_backward", "aten.replication_pad2d_backward", "aten.unfold_backward",
    "aten.col2im", "aten.embedding_dense_backward",
)  # fmt: skip
def _each_of_input(args: tuple[Any, ...], result: Any) -> OperatorFlops:
    return _elementwise(args[0])


@register_flops("aten.var", "aten.std", "aten.var_mean", "aten.std_mean")
def _variance(args: tuple[Any, ...], result: Any) -> OperatorFlops:
    return OperatorFlops(4 * args[0].numel(), 0)


@register_flops("aten.max_pool2d_with_indices", "aten.avg_pool2d")
def _pool(args: tuple[Any, ...], result: Any) -> OperatorFlops:
    window = args[1] if len(args[1]) == 2 else [args[1][0]] * 2
    pooled = result[0] if isinstance(result, tuple) else result
    return OperatorFlops(max(pooled.numel() * prod(window), args[0].numel()), 0)


@register_flops(
    "aten.upsample_bilinear2d", "aten.upsample_bilinear2d_backward",
    "aten._upsample_bilinear2d_aa", "aten._upsample_bilinear2d_aa_backward",
)  # fmt: skip
def _bilinear(args: tuple[Any, ...], result: Tensor) -> OperatorFlops:
    return OperatorFlops(7 * max(args[0].numel(), result.numel()), 0)


@register_flops("aten.upsample_linear1d", "aten.upsample_linear1d_backward")
def _linear(args: tuple[Any, ...], result: Tensor) -> OperatorFlops:
    return OperatorFlops(3 * max(args[0].numel(), result.numel()), 0)


@register_flops("aten.index_put")
def _index_put(args: tuple[Any, ...], result: Tensor) -> OperatorFlops:
    return _elementwise(args[2])


@register_flops("aten.index_add", "aten.scatter_add")
def _added_at(args: tuple[Any, ...], result: Tensor) -> OperatorFlops:
    return _elementwise(args[3])


@register_flops("aten.dot", "aten.vdot")
def _dot(args: tuple[Any, ...], result: Tensor) -> OperatorFlops:
    return _products(args[0].numel())


@register_flops("aten._weight_norm_interface", "aten._weight_norm_interface_backward")
def _weight_norm(args: tuple[Any, ...], result: Any) -> OperatorFlops:
    """A sum of squares and a product; their gradient is a sum, a product and a difference."""
    return OperatorFlops((3 if len(args) < 4 else 5) * args[0].numel(), 0)


@register_flops(
    "aten.upsample_bicubic2d", "aten._upsample_bicubic2d_aa", "aten.upsample_bicubic2d_backward",
    "aten._upsample_bicubic2d_aa_backward",
)  # fmt: skip
def _bicubic(args: tuple[Any, ...], result: Tensor) -> OperatorFlops:
    """Sums of 16 weighted elements."""
    return OperatorFlops(31 * max(args[0].numel(), result.numel()), 0)


@register_flops("pocketune.patch_input_gradient")
def _patch_input_gradient(args: tuple[Any, ...], result: Any) -> OperatorFlops:
    gradient, kernel = args[0], args[1]
    return _products(gradient.numel() * kernel[0].numel())


@register_flops("pocketune.patch_kernel_gradient")
def _patch_kernel_gradient(args: tuple[Any, ...], result: Any) -> OperatorFlops:
    gradient, x, groups = args[:3]
    return _products(gradient.numel() * x.shape[1] // groups)
