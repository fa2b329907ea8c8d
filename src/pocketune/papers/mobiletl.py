"""MobileTL (Chiang et al., AAAI 2023): its memory, its stored activations and its FLOPs.

The paper has no public code: the rules are inferred from its figures.

Memory (tables 3 to 5; all but three figures come out to the printed digit) follows the rules of
TinyTL with these changes:

* a convolution or linear layer with a trained weight needs 4 bytes a weight in addition to its
  input and output, for every sample ("temporary memory for matrix multiplication");
* only activations that a gradient reaches keep anything: ReLU6 2 bits (two comparisons), ReLU and
  MobileTL's own 1 bit, h-swish its input, h-sigmoid nothing;
* squeeze-excite keeps the feature maps that it scales.

Stored activations (table 1, figures 1 and 4) are what every sample keeps for the backward pass by
the same rules, but here h-sigmoid keeps its input. (Table 1 needs it; tables 3 to 5 come out
without it.)

The coefficients of the FLOPs (tables 1 and 3) are small whole numbers fitted to the paper's
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

A gradient that no earlier layer needs is not computed. Group norm, which the paper does not have,
counts as a norm on the batch's statistics. Pooling, biases and the loss take nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import ClassVar

from torch import nn

from pocketune.layers import FrozenBatchNorm2d, SignedHardswish
from pocketune.networks.architectures.parts import SqueezeExcite
from pocketune.papers import tinytl
from pocketune.papers.counts import (
    NOTHING,
    LayerFlops,
    LayerMemory,
    PublishedFlops,
    PublishedMemory,
    at_peak,
    layer_by_layer,
    packed_bytes,
    sum_of_flops,
    sum_of_kept,
)
from pocketune.papers.rules import Rules
from pocketune.papers.trace import ModuleCall, ModuleTrace

MemoryRules = Rules[[ModuleCall, bool], LayerMemory]

MEMORY_RULES: MemoryRules = Rules("mobiletl", base=tinytl.RULES)
"""`rule(call, masks)`: bytes for one sample; `masks`, whether a gradient reaches the layer."""

STORED_RULES: MemoryRules = Rules("mobiletl-stored", base=MEMORY_RULES)
"""`rule(call, masks)`: bytes for one sample, of which the saved ones count."""
STORED_RULES.rule(nn.Hardsigmoid)(tinytl.keep_input)

FLOPS_RULES: Rules[[ModuleCall, int], LayerFlops] = Rules("mobiletl-flops")
"""`rule(call, batch)`: FLOPs of the whole batch."""


@dataclass(frozen=True)
class MobileTLMemory:
    """MobileTL's convention for the memory of a step."""

    name: ClassVar[str] = "mobiletl"

    def measure(self, trace: ModuleTrace, batch: int = 8) -> PublishedMemory:
        """Memory of a step of `batch` samples."""
        return at_peak(
            self.name,
            layer_by_layer(_costs(MEMORY_RULES, trace)),
            parameter_bytes=tinytl.parameter_bytes(trace),
            batch=batch,
        )


def _costs(rules: MemoryRules, trace: ModuleTrace) -> Iterator[tuple[ModuleCall, LayerMemory]]:
    return ((call, rule(call, call.gradient_in)) for call, rule in rules.of(trace.calls))


@MEMORY_RULES.rule(nn.Conv2d, nn.Linear)
def _matrix(call: ModuleCall, masks: bool) -> LayerMemory:
    assert isinstance(call.module, nn.Conv2d | nn.Linear)
    given = 4 * prod(call.output) // getattr(call.module, "groups", 1)
    taken = 4 * prod(call.input)
    if not call.weight_trained:
        return LayerMemory(0, taken + given)
    return LayerMemory(taken, taken + given + 4 * call.module.weight.numel())


@MEMORY_RULES.rule(nn.ReLU6)
def _two_comparisons(call: ModuleCall, masks: bool) -> LayerMemory:
    count = prod(call.input)
    return LayerMemory(packed_bytes(count, 2) if masks else 0, 4 * count)


@MEMORY_RULES.rule(nn.Hardsigmoid)
def _hard_sigmoid(call: ModuleCall, masks: bool) -> LayerMemory:
    return LayerMemory(0, 4 * prod(call.input))


@MEMORY_RULES.rule(SqueezeExcite)
def _scaled_maps(call: ModuleCall, masks: bool) -> LayerMemory:
    return LayerMemory(4 * prod(call.input), 0) if call.gradient_out else NOTHING


@dataclass(frozen=True)
class MobileTLStored:
    """MobileTL's convention for stored activations."""

    name: ClassVar[str] = "mobiletl-stored"

    def measure(self, trace: ModuleTrace, batch: int = 8) -> PublishedMemory:
        """Stored activations of `batch` samples."""
        return sum_of_kept(self.name, layer_by_layer(_costs(STORED_RULES, trace)), batch=batch)


@dataclass(frozen=True)
class MobileTLFlops:
    """MobileTL's convention for FLOPs.

    Attributes:
        addition: FLOPs an element for adding a block's shortcut, forward and backward. The
            paper's MobileNetV3 needs (1, 1); its ProxylessNAS (2, 4), which may be a slip.
    """

    name: ClassVar[str] = "mobiletl"
    addition: tuple[int, int] = (1, 1)

    def count(self, trace: ModuleTrace, batch: int = 8) -> PublishedFlops:
        """FLOPs of a step of `batch` samples."""
        costs = []
        for call in trace.calls:
            if (rule := FLOPS_RULES.find(call)) is not None:
                costs.append((call, rule(call, batch)))
            if call.path == call.block and call.shortcut is not None:
                costs.append((call, self._addition(call, batch)))
        return sum_of_flops(self.name, costs, batch=batch)

    def _addition(self, call: ModuleCall, batch: int) -> LayerFlops:
        count, (forward, backward) = batch * prod(call.output), self.addition
        return LayerFlops(forward * count, backward * count if call.gradient_out else 0)


@FLOPS_RULES.rule(nn.Conv2d)
def _conv(call: ModuleCall, batch: int) -> LayerFlops:
    assert isinstance(call.module, nn.Conv2d)
    taps, pixels = prod(call.module.kernel_size), prod(call.output[2:])
    inputs = batch * call.module.in_channels * taps * pixels // call.module.groups
    return _matrix_flops(call, macs=inputs * call.module.out_channels, inputs=inputs)


@FLOPS_RULES.rule(nn.Linear)
def _linear(call: ModuleCall, batch: int) -> LayerFlops:
    inputs = batch * prod(call.input)
    assert isinstance(call.module, nn.Linear)
    return _matrix_flops(call, macs=inputs * call.module.out_features, inputs=inputs)


def _matrix_flops(call: ModuleCall, *, macs: int, inputs: int) -> LayerFlops:
    """Products of matrices; a sum of n products takes n - 1 additions in the backward pass."""
    assert isinstance(call.module, nn.Conv2d | nn.Linear)
    weight = 2 * macs - call.module.weight.numel() if call.weight_trained else 0
    return LayerFlops(2 * macs, weight + (2 * macs - inputs if call.gradient_in else 0))


_PER_ELEMENT: dict[type[nn.Module], tuple[int, int]] = {  # forward, gradient of the input
    nn.BatchNorm2d: (7, 11),
    nn.GroupNorm: (7, 11),
    FrozenBatchNorm2d: (4, 2),
    nn.ReLU: (1, 1),
    nn.ReLU6: (1, 2),
    nn.Hardswish: (4, 10),
    SignedHardswish: (4, 1),
    nn.Hardsigmoid: (3, 5),
    nn.Identity: (0, 0),
}


def _elementwise(call: ModuleCall, batch: int, *, forward: int, of_input: int) -> LayerFlops:
    """FLOPs per element of the input; norms have a scale and a shift."""
    backward = 3 * call.weight_trained + call.bias_trained + of_input * call.gradient_in
    count = batch * prod(call.input)
    return LayerFlops(forward * count, backward * count)


for _layer, (_forward, _of_input) in _PER_ELEMENT.items():
    FLOPS_RULES.rule(_layer)(partial(_elementwise, forward=_forward, of_input=_of_input))


@FLOPS_RULES.rule(SqueezeExcite)
def _product(call: ModuleCall, batch: int) -> LayerFlops:
    count = batch * prod(call.input)
    return LayerFlops(count, 5 * count if call.gradient_out else 0)
