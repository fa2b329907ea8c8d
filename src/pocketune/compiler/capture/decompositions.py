"""Which operators are traced as plainer ones, by PyTorch's own decompositions.

What PyTorch can write as arithmetic needs no lowering rule, and no derivative of ours. The
activations of our own networks are not among these operators: their rules in `lower.activation`
take fewer nodes and less memory.
"""

from collections.abc import Callable
from typing import Any

import torch

from pocketune.torch_private import get_decompositions

aten = torch.ops.aten

_DECOMPOSED = (
    aten._log_softmax_backward_data,
    aten._prelu_kernel,
    aten._prelu_kernel_backward,
    aten._softmax_backward_data,
    aten.celu,
    aten.celu_,
    aten.elu,
    aten.elu_,
    aten.elu_backward,
    aten.gelu,
    aten.gelu_backward,
    aten.glu,
    aten.glu_backward,
    aten.leaky_relu_backward,
    aten.mish,
    aten.mish_,
    aten.mish_backward,
    aten.sigmoid_backward,
    aten.silu,
    aten.silu_,
    aten.silu_backward,
    aten.softplus,
    aten.softplus_backward,
    aten.tanh_backward,
    aten.threshold,
)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table that `make_fx` takes."""
    table: dict[Any, Callable[..., Any]] = get_decompositions(_DECOMPOSED)
    return table
