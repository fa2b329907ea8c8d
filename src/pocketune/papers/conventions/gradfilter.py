"""Gradient Filtering's memory and FLOPs (Yang et al., CVPR 2023, table 2).

Memory is what convolutions with a trained weight keep of their inputs, and nothing else. FLOPs
are those of the backward pass through convolutions and classifier; everything else is free. The
paper's KB and MB are 1024 and 1024^2 bytes, its batch is 1.

Its quirks: a weight's gradient counts all of its products but only as many additions as for a
1x1 kernel, and the classifier counts a product and an addition for its input's gradient and one
of the two for its weight's.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from pocketune.filtering import FilteredConv2d
from pocketune.papers.conventions.flops import Flops, PublishedFlops, total
from pocketune.papers.conventions.memory import (
    NOTHING,
    Memory,
    PublishedMemory,
    all_saved,
    along,
    elements,
)
from pocketune.papers.rules import Rules
from pocketune.papers.trace import Call, Walk

MEMORY: Rules[[Call], Memory] = Rules("gradfilter")
"""`rule(call)`: bytes for one sample, of which the saved ones count."""

FLOPS: Rules[[Call, int], Flops] = Rules("gradfilter-flops")
"""`rule(call, batch)`: FLOPs of the whole batch."""

FREE = (
    nn.BatchNorm2d,
    nn.GroupNorm,
    nn.ReLU,
    nn.ReLU6,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Identity,
)


@dataclass(frozen=True)
class GradientFilterMemory:
    """Gradient Filtering's convention for memory."""

    name: ClassVar[str] = "gradfilter"

    def measure(self, walk: Walk, batch: int = 1) -> PublishedMemory:
        """Memory of a step of `batch` samples."""
        costs = ((call, rule(call)) for call, rule in MEMORY.of(walk.calls))
        return all_saved(self.name, along(costs), batch=batch)


@dataclass(frozen=True)
class GradientFilterFlops:
    """Gradient Filtering's convention for FLOPs."""

    name: ClassVar[str] = "gradfilter"

    def count(self, walk: Walk, batch: int = 1) -> PublishedFlops:
        """FLOPs of the backward pass of `batch` samples."""
        costs = ((call, rule(call, batch)) for call, rule in FLOPS.of(walk.calls))
        return total(self.name, costs, batch=batch)


@MEMORY.rule(nn.Conv2d)
def _conv_memory(call: Call) -> Memory:
    return Memory(4 * elements(call.input) if call.weight_trained else 0, 0)


@MEMORY.rule(nn.Linear, *FREE)
def _no_memory(call: Call) -> Memory:
    return NOTHING


@FLOPS.rule(nn.Conv2d)
def _conv_flops(call: Call, batch: int) -> Flops:
    pairs, taps = _kernel(call)
    pixels = batch * elements(call.output[2:])
    weight = pairs * (taps * pixels + pixels - 1) if call.weight_trained else 0
    return Flops(0, weight + (2 * pairs * taps * pixels if call.gradient_in else 0))


@FLOPS.rule(nn.Linear)
def _linear_flops(call: Call, batch: int) -> Flops:
    assert isinstance(call.module, nn.Linear)
    products = batch * call.module.weight.numel()
    return Flops(0, products * (2 * call.gradient_in + call.weight_trained))


@FLOPS.rule(*FREE)
def _no_flops(call: Call, batch: int) -> Flops:
    return Flops(0, 0)


@MEMORY.rule(FilteredConv2d)
def _filtered_memory(call: Call) -> Memory:
    """One sum is kept for each input channel and patch of the output."""
    assert isinstance(call.module, FilteredConv2d)
    kept = call.module.bits // 8 * call.module.in_channels * _patches(call)
    return Memory(kept if call.weight_trained else 0, 0)


@FLOPS.rule(FilteredConv2d)
def _filtered_flops(call: Call, batch: int) -> Flops:
    """Gradients of a 1x1 kernel on patches; for the input's, the taps are added up first."""
    pairs, taps = _kernel(call)
    patches = batch * _patches(call)
    weight = pairs * (2 * patches - 1) if call.weight_trained else 0
    return Flops(0, weight + (pairs * (2 * patches + taps - 1) if call.gradient_in else 0))


def _kernel(call: Call) -> tuple[int, int]:
    """Pairs of an input and an output channel, and taps for each pair."""
    conv = call.module
    assert isinstance(conv, nn.Conv2d)
    return conv.in_channels * conv.out_channels // conv.groups, elements(conv.kernel_size)


def _patches(call: Call) -> int:
    assert isinstance(call.module, FilteredConv2d)
    return elements(tuple(-(-side // call.module.patch) for side in call.output[2:]))
