"""Convolution that computes with integers: uint8 feature maps, an int8 kernel, int32 sums.

PyTorch has such an operator if it was built with oneDNN. It is exact on processors that multiply
uint8 by int8 without saturating the sums, such as those with VNNI. Elsewhere the layer computes
with the same numbers in float32, which is slower than a float32 convolution and not more exact.
"""

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.layers.norm import FrozenBatchNorm2d
from pocketune.layers.quantized import HIGHEST, QuantizedConv2d, Uint8
from pocketune.torch_private import (
    has_integer_convolution,
    integer_convolution,
    pack_integer_kernel,
)

ACTIVATIONS: dict[str, tuple[str, list[float]]] = {  # oneDNN's names and arguments
    "none": ("none", []),
    "relu": ("relu", []),
    "relu6": ("hardtanh", [0.0, 6.0]),
    "hardswish": ("hardswish", []),
}


class IntegerConv2d(QuantizedConv2d):
    """A frozen convolution with the norm and the activation after it, in 8-bit arithmetic.

    Its input is uint8 in `input_format`, or float32, which it rounds. Its output is float32, or
    uint8 if `output_format` is set. Feature maps are stored channels-last. It has no gradient.

    Attributes:
        input_format: Format of the input.
        output_format: Format of the output; None for float32.
        activation: One of `ACTIVATIONS`.
    """

    input_format: Uint8
    output_format: Uint8 | None
    activation: str
    weight_zero: Tensor
    shift: Tensor
    _packed: Tensor | None = None

    @classmethod
    def fuse(
        cls,
        conv: QuantizedConv2d,
        norm: FrozenBatchNorm2d | None,
        activation: str,
        input_format: Uint8,
        output_format: Uint8 | None,
    ) -> "IntegerConv2d":
        """Fuse three layers into one; the kernel's scales absorb the norm without rounding.

        Padding is given in numbers, or by `same_padding`, and filled with zeros.
        """
        layer = cls.like(conv)
        layer.register_parameter("weight", None)
        layer.register_parameter("bias", None)
        whole, scale = conv.weight_int8, conv.weight_scale
        shift = torch.zeros_like(scale) if conv.bias is None else conv.bias.detach()
        if norm is not None:
            gain = norm.weight.detach() * (norm.running_var + norm.eps).rsqrt()
            shift = norm.bias.detach() + (shift - norm.running_mean) * gain
            whole = whole * gain.sign().to(torch.int8).view(-1, 1, 1, 1)
            scale = torch.where(gain == 0, torch.ones_like(scale), scale * gain.abs())
        layer.register_buffer("weight_int8", whole)
        layer.register_buffer("weight_scale", scale)
        layer.register_buffer("weight_zero", torch.zeros_like(scale, dtype=torch.int64))
        layer.register_buffer("shift", shift)
        layer.activation = activation
        layer.input_format, layer.output_format = input_format, output_format
        return layer

    def padding_value(self, x: Tensor) -> float:
        """The zero of the input's format if `x` is uint8, else 0."""
        return self.input_format.zero if x.dtype == torch.uint8 else 0.0

    def convolve(self, x: Tensor) -> Tensor:
        """The output in 8-bit arithmetic, or with the same numbers in float32."""
        whole = x if x.dtype == torch.uint8 else self.input_format.quantize(x.detach())
        whole = whole.contiguous(memory_format=torch.channels_last)
        if whole.device.type == "cpu" and computes_integers():
            return self._integers(whole)
        return self.in_floats(whole)

    def in_floats(self, whole: Tensor) -> Tensor:
        """The reference: dequantize, convolve, activate and round."""
        x = self.input_format.dequantize(whole)
        y = functional.conv2d(
            x, self.kernel(), self.shift, self.stride, self.padding, self.dilation, self.groups
        )
        if self.activation != "none":
            y = getattr(functional, self.activation)(y)
        return y if self.output_format is None else self.output_format.quantize(y)

    def _integers(self, whole: Tensor) -> Tensor:
        numbers = ([*self.stride], [*self.padding], [*self.dilation], self.groups)
        if self._packed is None:
            self._packed = pack_integer_kernel(
                self.weight_int8, self.weight_scale, *self.input_format, *numbers
            )
        return integer_convolution(
            whole,
            *self.input_format,
            self._packed,
            self.weight_scale,
            self.weight_zero,
            self.shift,
            *numbers,
            *(self.output_format or (1.0, 0)),
            torch.float32 if self.output_format is None else torch.uint8,
            *ACTIVATIONS[self.activation],
            "",
        )

    def get_extra_state(self) -> Tensor:
        """Scale and zero of the input and the output format; nan for a float32 output."""
        numbers = [*self.input_format, *(self.output_format or (math.nan, math.nan))]
        return torch.tensor(numbers, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """The inverse of `get_extra_state`; drops the packed kernel of the old formats."""
        scale, zero, output_scale, output_zero = state.tolist()
        self.input_format = Uint8(scale, round(zero))
        floats = math.isnan(output_scale)
        self.output_format = None if floats else Uint8(output_scale, round(output_zero))
        self._packed = None

    def __getstate__(self) -> dict[str, Any]:
        """The state without the packed kernel, which cannot be copied and is packed on demand."""
        return {**self.__dict__, "_packed": None}


@cache
def computes_integers() -> bool:
    """Whether PyTorch has the operator on this machine, and large sums do not saturate."""
    if not has_integer_convolution():
        return False
    with torch.device("meta"):  # else its initialization would draw random numbers
        conv = nn.Conv2d(64, 8, 1, bias=False)
    conv.weight = nn.Parameter(torch.ones(8, 64, 1, 1), requires_grad=False)
    layer = IntegerConv2d.fuse(
        QuantizedConv2d.from_convolution(conv), None, "none", Uint8(1.0, 0), None
    )
    largest = torch.full((1, 64, 2, 2), HIGHEST, dtype=torch.uint8)
    try:
        sums = layer._integers(largest)
    except RuntimeError:
        return False
    return torch.allclose(sums, torch.full_like(sums, 64.0 * HIGHEST))
