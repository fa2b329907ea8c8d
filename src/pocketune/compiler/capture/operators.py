"""Which operators a step is traced in: simpler ones in place of some of PyTorch's.

PyTorch's own decompositions write many operators as arithmetic, which needs no lowering rule and
no derivative here. The activations of our own networks are not among them: their rules in
`lower.activation` take fewer nodes and less memory. A few functions have simpler equivalents here.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pocketune.compiler.capture.arithmetic import ARITHMETIC
from pocketune.compiler.capture.attention import einsum, multi_head, scaled_dot_product
from pocketune.compiler.capture.filled import FILLED
from pocketune.compiler.capture.moves import MOVES
from pocketune.compiler.capture.windows import WINDOWS
from pocketune.torch_private import FUNCTIONAL_PAD, get_decompositions

aten = torch.ops.aten

_DECOMPOSED = (
    aten._log_softmax_backward_data,
    aten._prelu_kernel,
    aten._prelu_kernel_backward,
    aten._safe_softmax,
    aten._softmax_backward_data,
    aten.baddbmm,
    aten.celu,
    aten.clamp_max,
    aten.clamp_min,
    aten.elu,
    aten.elu_backward,
    aten.glu,
    aten.glu_backward,
    aten.leaky_relu_backward,
    aten.mish,
    aten.mish_backward,
    aten.mv,
    aten.sigmoid_backward,
    aten.softplus,
    aten.softplus_backward,
    aten.tanh_backward,
    aten.threshold,
)


@cache  # PyTorch searches all that it knows of
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Functions of simpler operators, by the operator that they replace."""
    table: dict[Any, Callable[..., Any]] = get_decompositions(_DECOMPOSED)
    return {**table, **ARITHMETIC, **FILLED, **MOVES, **WINDOWS}


functional = nn.functional

# A stand-in has the argument names of the function that it replaces, which may be given by name.


class PlainOperators(TorchFunctionMode):
    """Traces some functions as arithmetic that PyTorch traces as copies, views and strides."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        plain = _PLAIN.get(func)
        result = plain(*args, **(kwargs or {})) if plain else NotImplemented
        return func(*args, **(kwargs or {})) if result is NotImplemented else result


def _global_average(input: Tensor, output_size: Any) -> Any:
    """A mean; PyTorch's own pooling ends in `as_strided`."""
    return (
        input.mean((2, 3), keepdim=True) if output_size in (1, (1, 1), [1, 1]) else NotImplemented
    )


def _average_of_row(input: Tensor, output_size: Any) -> Tensor:
    """Means of tokens (N, C, T), as of maps of one row; PyTorch's own end in `as_strided`."""
    size = output_size if isinstance(output_size, int) else output_size[0]
    if size == 1:
        return input.mean(-1, keepdim=True)
    return functional.adaptive_avg_pool2d(input.unsqueeze(-2), (1, size)).squeeze(-2)


def _adaptive_maximum(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """A maximum of all, or of windows of one size, without the places where they are."""
    height, width = (output_size,) * 2 if isinstance(output_size, int) else output_size
    rows, columns = input.shape[2:]
    if return_indices or None in (height, width) or rows % height or columns % width:
        return NotImplemented
    if height == width == 1:
        return input.amax((2, 3), keepdim=True)
    return functional.max_pool2d(input, (rows // height, columns // width))


def _conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """A convolution of maps of one row."""
    stride, padding, dilation = map(_in_row, (stride, padding, dilation), (1, 0, 1))
    x, weight = input.unsqueeze(-2), weight.unsqueeze(-2)
    return functional.conv2d(x, weight, bias, stride, padding, dilation, groups).squeeze(-2)


def _in_row(given: Any, along: int) -> Any:
    """An argument of one dimension for two, of which the first is that of the rows."""
    if isinstance(given, str):
        return given
    return along, given[0] if isinstance(given, Sequence) else given


def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,  # noqa: ARG001 - as the function has it
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Rows of a table, as positions have them; PyTorch's own has a gradient of its own."""
    usual = padding_idx is None and max_norm is None and not (scale_grad_by_freq or sparse)
    return weight[input] if usual else NotImplemented


def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,  # noqa: ARG001 - as the function has it
    eps: float = 1e-5,
) -> Any:
    """A group norm with one channel a group; PyTorch's own turns images into channels."""
    if running_mean is not None or running_var is not None or not use_input_stats:
        return NotImplemented
    return functional.group_norm(input, input.shape[1], weight, bias, eps)


def _interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """Tokens (N, C, T) resized as maps of one row."""
    if input.dim() != 3 or mode == "area" or antialias:
        return NotImplemented
    size, scale = (None if each is None else _in_row(each, 1) for each in (size, scale_factor))
    mode = "bilinear" if mode == "linear" else mode
    row = input.unsqueeze(-2)
    row = functional.interpolate(row, size, scale, mode, align_corners, recompute_scale_factor)
    return row.squeeze(-2)


def _pad(input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Any:  # noqa: ARG001
    """Circular padding as a concatenation; PyTorch's own writes into an empty tensor."""
    if mode != "circular" or min(pad) < 0:
        return NotImplemented
    x = input
    for i in range(len(pad) // 2):
        before, after, size = pad[2 * i], pad[2 * i + 1], x.shape[-1 - i]
        pieces = [x.narrow(-1 - i, size - before, before), x, x.narrow(-1 - i, 0, after)]
        x = torch.cat([piece for piece in pieces if piece.shape[-1 - i]], -1 - i)
    return x


def _unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows along a dimension, one after the other; PyTorch's own are a view that overlaps."""
    dim = dimension % x.dim()
    starts = range(0, x.shape[dim] - size + 1, step)
    return torch.stack([x.narrow(dim, i, size).movedim(dim, -1) for i in starts], dim)


_PLAIN: dict[Any, Callable[..., Any]] = {
    functional.adaptive_avg_pool1d: _average_of_row,
    functional.adaptive_avg_pool2d: _global_average,
    functional.adaptive_max_pool2d: _adaptive_maximum,
    functional.conv1d: _conv1d,
    functional.embedding: _embedding,
    functional.instance_norm: _instance_norm,
    functional.interpolate: _interpolate,
    functional.multi_head_attention_forward: multi_head,
    functional.pad: _pad,
    functional.scaled_dot_product_attention: scaled_dot_product,
    torch.einsum: einsum,
    Tensor.unfold: _unfold,
    FUNCTIONAL_PAD: _pad,
}
