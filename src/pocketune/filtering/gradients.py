"""Gradients of a convolution of stride 1 that keeps the size, on the small maps of patches.

Operators of PyTorch's dispatcher like those of `pocketune.filtering.patches`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.backends import mkldnn
from torch.nn import functional
from torch.nn.grad import conv2d_weight

from pocketune.layers.operators import register_operator

# Multiply-adds below which a matrix product is the faster way to a kernel's gradient: a convolution
# has more to set up. Above, it takes 0.6 of the time.
_FEW = 5_000_000


@register_operator(
    "patch_input_gradient(Tensor g, Tensor kernel, int[] dilation, int groups) -> Tensor"
)
def input_gradient(g: Tensor, kernel: Tensor, dilation: Sequence[int], groups: int) -> Tensor:
    """Gradient of the input from that of the output, g (N, O, P, Q): (N, I, P, Q).

    `kernel` is (O, I / groups, k, k) with odd k; every side is padded by `dilation * (k // 2)`.
    """
    one_tap = kernel.shape[2:] == (1, 1)
    if one_tap and _is_depthwise(kernel, groups):
        return g * kernel.view(1, -1, 1, 1)
    if one_tap and groups == 1:
        batch, _, height, width = g.shape
        rows = _product(_rows(g), kernel.flatten(1))
        gradient = rows.view(batch, height, width, kernel.shape[1]).permute(0, 3, 1, 2)
        return gradient.contiguous(memory_format=_memory_format(g))
    dilation = [max(d, 1) for d in dilation]
    padding = [d * (k // 2) for d, k in zip(dilation, kernel.shape[2:], strict=True)]
    return functional.conv_transpose2d(g, kernel, None, 1, padding, 0, groups, dilation)


@register_operator("patch_kernel_gradient(Tensor g, Tensor x, int groups) -> Tensor")
def kernel_gradient(g: Tensor, x: Tensor, groups: int) -> Tensor:
    """Gradient of a 1x1 kernel from g (N, O, P, Q) and x (N, I, P, Q): (O, I / groups, 1, 1)."""
    outputs, inputs = g.shape[1], x.shape[1]
    if groups == inputs == outputs:
        return (g * x).sum((0, 2, 3)).view(outputs, 1, 1, 1)
    if groups == 1 and g.numel() * inputs < _FEW:
        return (_rows(g).t() @ _rows(x)).view(outputs, inputs, 1, 1)
    shape = (outputs, inputs // groups, 1, 1)
    gradient: Tensor = conv2d_weight(x, shape, g, groups=groups)  # type: ignore[no-untyped-call]
    return gradient


def _product(a: Tensor, b: Tensor) -> Tensor:
    # oneDNN's product takes half to nine tenths of the time of MKL's, which `@` is.
    onednn = mkldnn.is_available()  # type: ignore[no-untyped-call]
    if onednn and a.device.type == "cpu" and a.dtype == b.dtype == torch.float32:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(a, b.t(), None, "none", [], "")
        return product
    return a @ b


def _is_depthwise(kernel: Tensor, groups: int) -> bool:
    return kernel.shape[1] == 1 and kernel.shape[0] == groups


def _rows(x: Tensor) -> Tensor:
    """(N, C, P, Q) as (N * P * Q, C)."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def _memory_format(x: Tensor) -> torch.memory_format:
    last = x.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format
