"""Gradient Filtering (Yang et al., CVPR 2023): its memory and its FLOPs.

Memory is what convolutions with a trained weight keep of their inputs, and nothing else. FLOPs
are those of the backward pass through convolutions and classifier; everything else is free. The
paper's KB and MB are 1024 and 1024^2 bytes, its batch is 1.

The quirks of the convention: a weight's gradient counts all of its products but only as many
additions as for a 1x1 kernel, and the classifier counts a product and an addition for its input's
gradient and one of the two for its weight's. The classifier of a network that classifies pixels
counts nothing. Of the pooling that a filter needs, that of the output's gradient counts and that of
the input does not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from torch import nn

from pocketune.filtering import FilteredConv2d
from pocketune.papers.counts import (
    NOTHING,
    LayerFlops,
    LayerMemory,
    PublishedFlops,
    PublishedMemory,
    layer_by_layer,
    sum_of_flops,
    sum_of_kept,
)
from pocketune.papers.rules import Rules
from pocketune.papers.trace import ModuleCall, ModuleTrace

MEMORY_RULES: Rules[[ModuleCall], LayerMemory] = Rules("gradfilter")
"""`rule(call)`: bytes for one sample, of which the saved ones count."""

FLOPS_RULES: Rules[[ModuleCall, int], LayerFlops] = Rules("gradfilter-flops")
"""`rule(call, batch)`: FLOPs of the whole batch."""

FREE = (
    nn.BatchNorm2d,
    nn.GroupNorm,
    nn.ReLU,
    nn.ReLU6,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Sigmoid,
    nn.Identity,
)


@dataclass(frozen=True)
class GradientFilterMemory:
    """Gradient Filtering's convention for memory."""

    name: ClassVar[str] = "gradfilter"

    def measure(self, trace: ModuleTrace, batch: int = 1) -> PublishedMemory:
        """Memory of a step of `batch` samples."""
        costs = ((call, rule(call)) for call, rule in MEMORY_RULES.of(_counted(trace)))
        return sum_of_kept(self.name, layer_by_layer(costs), batch=batch)


@dataclass(frozen=True)
class GradientFilterFlops:
    """Gradient Filtering's convention for FLOPs."""

    name: ClassVar[str] = "gradfilter"

    def count(self, trace: ModuleTrace, batch: int = 1) -> PublishedFlops:
        """FLOPs of the backward pass of `batch` samples."""
        costs = ((call, rule(call, batch)) for call, rule in FLOPS_RULES.of(_counted(trace)))
        return sum_of_flops(self.name, costs, batch=batch)


def _counted(trace: ModuleTrace) -> Iterator[ModuleCall]:
    """All calls but that of the classifier of pixels."""
    dense = trace.anatomy is not None and bool(trace.anatomy.decode_head)
    free = trace.classifier if dense else ()
    return (call for call in trace.calls if call.path not in free)


@MEMORY_RULES.rule(nn.Conv2d)
def _conv_memory(call: ModuleCall) -> LayerMemory:
    return LayerMemory(4 * prod(call.input) if call.weight_trained else 0, 0)


@MEMORY_RULES.rule(nn.Linear, *FREE)
def _no_memory(call: ModuleCall) -> LayerMemory:
    return NOTHING


@FLOPS_RULES.rule(nn.Conv2d)
def _conv_flops(call: ModuleCall, batch: int) -> LayerFlops:
    pairs, taps = _kernel(call)
    pixels = batch * prod(call.output[2:])
    weight = pairs * (taps * pixels + pixels - 1) if call.weight_trained else 0
    return LayerFlops(0, weight + (2 * pairs * taps * pixels if call.gradient_in else 0))


@FLOPS_RULES.rule(nn.Linear)
def _linear_flops(call: ModuleCall, batch: int) -> LayerFlops:
    assert isinstance(call.module, nn.Linear)
    products = batch * call.module.weight.numel()
    return LayerFlops(0, products * (2 * call.gradient_in + call.weight_trained))


@FLOPS_RULES.rule(*FREE)
def _no_flops(call: ModuleCall, batch: int) -> LayerFlops:
    return LayerFlops(0, 0)


@MEMORY_RULES.rule(FilteredConv2d)
def _filtered_memory(call: ModuleCall) -> LayerMemory:
    """One sum is kept for each input channel and patch of the output."""
    assert isinstance(call.module, FilteredConv2d)
    kept = call.module.bits // 8 * call.module.in_channels * _patches(call)
    return LayerMemory(kept if call.weight_trained else 0, 0)


@FLOPS_RULES.rule(FilteredConv2d)
def _filtered_flops(call: ModuleCall, batch: int) -> LayerFlops:
    """Averages of the output's gradient, and gradients of a 1x1 kernel on patches.

    For the gradient of the input, the taps are added up first.
    """
    assert isinstance(call.module, FilteredConv2d)
    pairs, taps = _kernel(call)
    patches = batch * _patches(call)
    averages = call.module.out_channels * patches * (call.module.patch**2 - 1)
    of_weight = pairs * (2 * patches - 1) if call.weight_trained else 0
    of_input = pairs * (2 * patches + taps - 1) if call.gradient_in else 0
    return LayerFlops(0, averages + of_weight + of_input if of_weight or of_input else 0)


def _kernel(call: ModuleCall) -> tuple[int, int]:
    """Pairs of an input and an output channel, and taps for each pair."""
    conv = call.module
    assert isinstance(conv, nn.Conv2d)
    return conv.in_channels * conv.out_channels // conv.groups, prod(conv.kernel_size)


def _patches(call: ModuleCall) -> int:
    assert isinstance(call.module, FilteredConv2d)
    return prod(tuple(-(-side // call.module.patch) for side in call.output[2:]))
