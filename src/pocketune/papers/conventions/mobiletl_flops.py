"""MobileTL's FLOPs (Chiang et al., AAAI 2023, tables 1 and 3).

The paper has no public code, and the coefficients below are small whole numbers fitted to its
totals: the sums meet them within 0.005 %, single coefficients may differ from the authors'. With
N elements, M multiply-accumulates and |W| weights, all of the batch but the weights:

=====================  ========  ==============================================================
layer                  forward   backward
=====================  ========  ==============================================================
convolution            2M        weight 2M - |W|, input 2M - (input channels) k^2 (output size)
linear                 2M        weight 2M - |W|, input 2M - (inputs)
norm, fixed            4N        shift N, scale 3N, input 2N
norm, of the batch     7N        shift N, scale 3N, input 11N
ReLU                   N         N
ReLU6                  N         2N
h-swish                4N        10N
MobileTL's h-swish     4N        N
h-sigmoid              3N        5N
squeeze-excite         N         5N; for its product, its layers come on top
=====================  ========  ==============================================================

A gradient that nothing below needs is not computed. Group norm, which the paper does not have,
counts as a norm on the batch's statistics. Pooling, biases and the loss take nothing.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from pocketune.layers import FrozenBatchNorm2d, SignedHardswish
from pocketune.networks.architectures.parts import SqueezeExcite
from pocketune.papers.conventions.flops import Flops, PublishedFlops, total
from pocketune.papers.conventions.memory import elements
from pocketune.papers.rules import Rules
from pocketune.papers.trace import Call, Walk

RULES: Rules[[Call, int], Flops] = Rules("mobiletl-flops")
"""`rule(call, batch)`: FLOPs of the whole batch."""


@dataclass(frozen=True)
class MobileTLFlops:
    """MobileTL's convention for FLOPs.

    Attributes:
        addition: FLOPs an element for adding a block's shortcut, forward and backward. The
            paper's MobileNetV3 needs (1, 1); its ProxylessNAS (2, 4), which may be a slip.
    """

    name: ClassVar[str] = "mobiletl"
    addition: tuple[int, int] = (1, 1)

    def count(self, walk: Walk, batch: int = 8) -> PublishedFlops:
        """FLOPs of a step of `batch` samples."""
        costs = []
        for call in walk.calls:
            if (rule := RULES.find(call)) is not None:
                costs.append((call, rule(call, batch)))
            if call.path == call.block and call.shortcut is not None:
                costs.append((call, self._addition(call, batch)))
        return total(self.name, costs, batch=batch)

    def _addition(self, call: Call, batch: int) -> Flops:
        count, (forward, backward) = batch * elements(call.output), self.addition
        return Flops(forward * count, backward * count if call.gradient_out else 0)


def per_element(call: Call, batch: int, forward: int, backward: int) -> Flops:
    """So many FLOPs an element of the input; backward ones if its gradient is needed."""
    count = batch * elements(call.input)
    return Flops(forward * count, backward * count if call.gradient_in else 0)


@RULES.rule(nn.Conv2d)
def _conv(call: Call, batch: int) -> Flops:
    assert isinstance(call.module, nn.Conv2d)
    taps, pixels = elements(call.module.kernel_size), elements(call.output[2:])
    inputs = batch * call.module.in_channels * taps * pixels // call.module.groups
    return _matrix(call, macs=inputs * call.module.out_channels, inputs=inputs)


@RULES.rule(nn.Linear)
def _linear(call: Call, batch: int) -> Flops:
    inputs = batch * elements(call.input)
    assert isinstance(call.module, nn.Linear)
    return _matrix(call, macs=inputs * call.module.out_features, inputs=inputs)


def _matrix(call: Call, *, macs: int, inputs: int) -> Flops:
    """Products of matrices; a sum of n products takes n - 1 additions in the backward pass."""
    assert isinstance(call.module, nn.Conv2d | nn.Linear)
    weight = 2 * macs - call.module.weight.numel() if call.weight_trained else 0
    return Flops(2 * macs, weight + (2 * macs - inputs if call.gradient_in else 0))


@RULES.rule(nn.BatchNorm2d, nn.GroupNorm)
def _norm(call: Call, batch: int) -> Flops:
    return _normalized(call, batch, forward=7, input_gradient=11)


@RULES.rule(FrozenBatchNorm2d)
def _frozen_norm(call: Call, batch: int) -> Flops:
    return _normalized(call, batch, forward=4, input_gradient=2)


def _normalized(call: Call, batch: int, *, forward: int, input_gradient: int) -> Flops:
    backward = 3 * call.weight_trained + call.bias_trained + input_gradient * call.gradient_in
    count = batch * elements(call.input)
    return Flops(forward * count, backward * count)


@RULES.rule(nn.ReLU)
def _relu(call: Call, batch: int) -> Flops:
    return per_element(call, batch, forward=1, backward=1)


@RULES.rule(nn.ReLU6)
def _relu6(call: Call, batch: int) -> Flops:
    return per_element(call, batch, forward=1, backward=2)


@RULES.rule(nn.Hardswish)
def _hardswish(call: Call, batch: int) -> Flops:
    return per_element(call, batch, forward=4, backward=10)


@RULES.rule(SignedHardswish)
def _signed_hardswish(call: Call, batch: int) -> Flops:
    return per_element(call, batch, forward=4, backward=1)


@RULES.rule(nn.Hardsigmoid)
def _hardsigmoid(call: Call, batch: int) -> Flops:
    return per_element(call, batch, forward=3, backward=5)


@RULES.rule(SqueezeExcite)
def _product(call: Call, batch: int) -> Flops:
    count = batch * elements(call.input)
    return Flops(count, 5 * count if call.gradient_out else 0)


@RULES.rule(nn.Identity)
def _free(call: Call, batch: int) -> Flops:
    return Flops(0, 0)
