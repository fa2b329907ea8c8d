"""Memory that kernels allocate for themselves, in addition to an operator's inputs and outputs.

On a CPU only convolutions take much. PyTorch hands float32 ones to oneDNN, which works on
tensors with blocked channels: in PyTorch's plain layout (NCHW) the input, the output and the weight
are copied into that layout and back; in channels-last only the weight is. With x, y and w the bytes
of input, output and weight:

| | NCHW | channels-last |
| --- | --- | --- |
| output | max(x, y) + w | w |
| gradient of the input | max(x, y) + w | w |
| the same with a dense kernel and a stride | max(2 x, x + w, y + w) | w |
| gradient of the weight | max(x + y, w) | 2 w |
| gradient of a depthwise weight larger than 3 x 3 | w | max(x, y) + w |

A tensor in another layout than the convolution's is copied first. The gradient of a bias comes
together with that of the weight, wanted or not. A 1x1 convolution of fewer than 16 images in one
thread runs as a matrix product instead of oneDNN; its input gradient takes the input of one image.

Measured with PyTorch 2.13 on an AVX-512 processor with a counting `malloc`, for dense, grouped and
depthwise convolutions of 3 to 960 channels on feature maps of 7 to 224 pixels, batches of 1 and 8,
one and two threads. Most predictions agree within a few per cent, for first layers within 40 %.
Not modeled: channels are padded to a multiple of 8 or 16; in channels-last, oneDNN takes many times
more for weight gradients of depthwise convolutions on feature maps of a few pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pocketune.layers.bits import is_channels_last, memory_format

_NATIVE_BELOW = 16
"""PyTorch's own limit on the batch; see `use_mkldnn` in aten/src/ATen/native/Convolution.cpp."""

_AS_IT_IS = 3
"""Inputs of up to so many channels, such as photos, are not copied for the weight's gradient."""


def workspace_bytes(func: Any, args: tuple[Any, ...], result: Any) -> int:
    """Bytes that the kernel of one operator allocates while it runs.

    Args:
        func: The operator (`torch._ops.OpOverload`).
        args: Its positional arguments.
        result: Its return value.
    """
    if func is torch.ops.aten.convolution.default:
        return _forward(args[0], args[1], result)
    if func is torch.ops.aten.convolution_backward.default:
        return _backward(args[0], args[1], args[2], args[10])
    return 0


def _forward(x: Tensor, weight: Tensor, y: Tensor) -> int:
    layout = _layout(x, weight)
    needed = 0 if _is_native(x, weight) else _as_forward(x, weight, y, layout)
    return needed + _copied(x, layout)


def _backward(gradient: Tensor, x: Tensor, weight: Tensor, wanted: Sequence[bool]) -> int:
    """For the `wanted` gradients of input, weight and bias, which are computed in turn."""
    layout = _layout(x, weight)
    if _is_native(x, weight):
        needed = x.nbytes // len(x) if wanted[0] else 0
    else:
        of_input = _input_gradient(x, weight, gradient, layout) if wanted[0] else 0
        of_weight = 0
        if wanted[1] or wanted[2]:
            of_weight = _weight_gradient(x, weight, gradient, layout)
            of_weight += 0 if wanted[1] else weight.nbytes
        needed = max(of_input, of_weight)
    return needed + _copied(x, layout) + _copied(gradient, layout)


def _as_forward(x: Tensor, weight: Tensor, y: Tensor, layout: torch.memory_format) -> int:
    return weight.nbytes + (0 if layout is torch.channels_last else max(x.nbytes, y.nbytes))


def _input_gradient(x: Tensor, weight: Tensor, y: Tensor, layout: torch.memory_format) -> int:
    needed = _as_forward(x, weight, y, layout)
    strided = weight.shape[1] > 1 and x.shape[2] > y.shape[2]
    if strided and layout is not torch.channels_last:
        needed = max(needed, 2 * x.nbytes)
    return needed


def _weight_gradient(x: Tensor, weight: Tensor, y: Tensor, layout: torch.memory_format) -> int:
    if weight.shape[1] == 1 and max(weight.shape[2:]) > 3:
        return weight.nbytes + (max(x.nbytes, y.nbytes) if layout is torch.channels_last else 0)
    if layout is torch.channels_last:
        return 2 * weight.nbytes
    blocked = 0 if x.shape[1] <= _AS_IT_IS else x.nbytes
    return max(blocked + y.nbytes, weight.nbytes)


def _is_native(x: Tensor, weight: Tensor) -> bool:
    pointwise = set(weight.shape[2:]) == {1} and weight.shape[1] == x.shape[1]
    return pointwise and len(x) < _NATIVE_BELOW and torch.get_num_threads() == 1


def _layout(x: Tensor, weight: Tensor) -> torch.memory_format:
    """PyTorch's choice: channels-last if one of the two is so and not contiguous as well."""
    return memory_format(is_channels_last(x) or is_channels_last(weight))


def _copied(tensor: Tensor, layout: torch.memory_format) -> int:
    return 0 if tensor.is_contiguous(memory_format=layout) else tensor.nbytes
