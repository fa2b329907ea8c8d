"""8 bits: feature maps as uint8, and frozen weights as int8."""

from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.layers.autograd import is_recorded
from pocketune.layers.conv import Conv2d, frozen_convolution

Quantized = TypeVar("Quantized", bound="QuantizedConv2d")

HIGHEST = 255
SMALLEST = 1e-30  # scale that float32 can divide by; a range with a smaller one counts as zero


class Uint8(NamedTuple):
    """How feature maps are stored in 8 bits: a real number is `scale * (whole - zero)`."""

    scale: float
    zero: int

    @classmethod
    def spanning(cls, low: float, high: float) -> "Uint8":
        """The format that covers [low, high] and holds zero exactly."""
        low, high = min(low, 0.0), max(high, 0.0)
        scale = (high - low) / HIGHEST
        if scale < SMALLEST:
            return cls(1.0, 0)
        return cls(scale, round(-low / scale))

    def quantize(self, x: Tensor) -> Tensor:
        """Float of any shape -> uint8, ties to even; values outside the range are clamped."""
        x = torch.add(x.new_tensor(self.zero), x, alpha=1 / self.scale)  # in one pass
        return x.round_().clamp_(0, HIGHEST).to(torch.uint8)

    def dequantize(self, whole: Tensor) -> Tensor:
        """Uint8 of any shape -> float32."""
        return (whole.float() - self.zero) * self.scale


LARGEST = 127
"""Largest int8 value in use; the range is symmetric, so zero is exact and needs no offset."""


def round_to_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round a kernel (out, ...) to `whole * scale`, with a scale for each output channel.

    TinyTL cites Deep Compression for its 8-bit weights, which uses a code book of 256 centroids.
    This scheme is linear, as integer arithmetic needs it.

    Returns:
        int8 of the same shape, within +-127, and the scales (out,). The error of an element is at
        most half its scale. Rounding the result again changes nothing.

    Example:
        >>> whole, scale = round_to_int8(torch.tensor([[1.0, -0.5], [0.0, 0.0]]))
        >>> whole.tolist(), scale.shape
        ([[127, -64], [0, 0]], torch.Size([2]))
    """
    scale = weight.detach().flatten(1).abs().amax(1) / LARGEST
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    whole = (weight.detach() / _along(scale, weight)).round().to(torch.int8)
    return whole, scale


def dequantize(whole: Tensor, scale: Tensor) -> Tensor:
    """int8 (out, ...) and scales (out,) -> the kernel (out, ...), in the type of the scales."""
    return whole.to(scale.dtype) * _along(scale, whole)


class QuantizedConv2d(Conv2d):
    """`Conv2d` with a frozen kernel of int8 and a scale for each output channel.

    The kernel exists in float32 only while the layer computes, forward or backward, or while other
    code reads `weight`. Feature maps are not rounded. A bias may be trained.

    Kept for the backward pass: 0 bits an element, and the int8 kernel, which is stored anyway.

    The state dict holds `weight_int8` and `weight_scale` where `nn.Conv2d` has `weight`.
    Padding is given in numbers, or by `same_padding`, and filled with zeros.

    Attributes:
        input_format: 8-bit format of the input, if the weights came with one.
    """

    weight_int8: Tensor
    weight_scale: Tensor
    input_format: Uint8 | None = None

    @classmethod
    def from_convolution(cls: type[Quantized], conv: nn.Conv2d) -> Quantized:
        """Round the kernel of a convolution and take over its bias (the same object)."""
        layer = cls.like(conv)
        layer.register_parameter("weight", None)
        whole, scale = round_to_int8(conv.weight)
        layer.register_buffer("weight_int8", whole)
        layer.register_buffer("weight_scale", scale)
        return layer

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The kernel in float, as the layer computes with it."""
        return dequantize(self.weight_int8, self.weight_scale)

    def convolve(self, x: Tensor) -> Tensor:
        """The output; only the int8 kernel is kept."""
        if not is_recorded(x, self.bias):
            return super().convolve(x)
        return frozen_convolution(
            self, x, self.bias, dequantize, self.weight_int8, self.weight_scale
        )


class QuantizedLinear(nn.Linear):
    """`nn.Linear` with a frozen weight of int8 and a scale for each output feature.

    The weight exists in float32 only while the layer computes, forward or backward, or while other
    code reads `weight`. A bias may be trained.

    Kept for the backward pass: 0 bits an element, and the int8 weight, which is stored anyway.

    The state dict holds `weight_int8` and `weight_scale` where `nn.Linear` has `weight`.
    """

    weight_int8: Tensor
    weight_scale: Tensor

    @classmethod
    def from_linear(cls, linear: nn.Linear) -> "QuantizedLinear":
        """Round the weight of a linear layer and take over its bias (the same object)."""
        layer = cls(
            linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta"
        )
        layer.bias = linear.bias
        del layer._parameters["weight"]
        whole, scale = round_to_int8(linear.weight)
        layer.register_buffer("weight_int8", whole)
        layer.register_buffer("weight_scale", scale)
        return layer.train(linear.training)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The weight (out, in) in float, as the layer computes with it."""
        return dequantize(self.weight_int8, self.weight_scale)

    def forward(self, input: Tensor) -> Tensor:
        """(..., in) -> (..., out); only the int8 weight is kept."""
        if not is_recorded(input, self.bias):
            return functional.linear(input, self.weight, self.bias)
        y: Tensor = _FrozenLinear.apply(  # type: ignore[no-untyped-call]
            input, self.bias, self.weight_int8, self.weight_scale
        )
        return y


class _FrozenLinear(torch.autograd.Function):
    """The gradient of the input is a product with the weight and needs nothing else."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, bias: Tensor | None, whole: Tensor, scale: Tensor) -> Tensor:
        return functional.linear(x, dequantize(whole, scale), bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        _, _, whole, scale = inputs
        ctx.save_for_backward(whole, scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        of_x = of_bias = None
        if ctx.needs_input_grad[0]:
            weight = dequantize(*ctx.saved_tensors)
            of_x = functional.linear(gradient, weight.t().to(gradient.dtype))
        if ctx.needs_input_grad[1]:
            of_bias = gradient.sum(tuple(range(gradient.dim() - 1)))
        return of_x, of_bias, None, None


def count_int8_weights(network: nn.Module) -> int:
    """Number of weights stored in 8 bits; these are buffers and not parameters."""
    layers = (m for m in network.modules() if isinstance(m, (QuantizedConv2d, QuantizedLinear)))
    return sum(layer.weight_int8.numel() for layer in layers)


def _along(scale: Tensor, weight: Tensor) -> Tensor:
    """The scales (out,) in a shape that multiplies a kernel (out, ...)."""
    return scale.view(-1, *(1,) * (weight.ndim - 1))
