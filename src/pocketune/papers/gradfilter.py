"""Gradient Filtering (Yang et al., CVPR 2023): its memory, its FLOPs and table 2.

Memory is what convolutions with a trained weight keep of their inputs, and nothing else. FLOPs
are those of the backward pass through convolutions and classifier; everything else is free. The
paper's KB and MB are 1024 and 1024^2 bytes, its batch is 1.

The quirks of the convention: a weight's gradient counts all of its products but only as many
additions as for a 1x1 kernel, and the classifier counts a product and an addition for its input's
gradient and one of the two for its weight's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import ClassVar

from torch import nn

from pocketune.filtering import FilteredConv2d
from pocketune.methods.parts import classifier
from pocketune.networks import anatomy
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
from pocketune.papers.tables import About, Cell, Row, register_table, shapes, training
from pocketune.papers.trace import ModuleCall, ModuleTrace, trace_modules
from pocketune.surgery import parameters_under, swap

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
    nn.Identity,
)


@dataclass(frozen=True)
class GradientFilterMemory:
    """Gradient Filtering's convention for memory."""

    name: ClassVar[str] = "gradfilter"

    def measure(self, trace: ModuleTrace, batch: int = 1) -> PublishedMemory:
        """Memory of a step of `batch` samples."""
        costs = ((call, rule(call)) for call, rule in MEMORY_RULES.of(trace.calls))
        return sum_of_kept(self.name, layer_by_layer(costs), batch=batch)


@dataclass(frozen=True)
class GradientFilterFlops:
    """Gradient Filtering's convention for FLOPs."""

    name: ClassVar[str] = "gradfilter"

    def count(self, trace: ModuleTrace, batch: int = 1) -> PublishedFlops:
        """FLOPs of the backward pass of `batch` samples."""
        costs = ((call, rule(call, batch)) for call, rule in FLOPS_RULES.of(trace.calls))
        return sum_of_flops(self.name, costs, batch=batch)


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
    """Gradients of a 1x1 kernel on patches; for the input's, the taps are added up first."""
    pairs, taps = _kernel(call)
    patches = batch * _patches(call)
    weight = pairs * (2 * patches - 1) if call.weight_trained else 0
    return LayerFlops(0, weight + (pairs * (2 * patches + taps - 1) if call.gradient_in else 0))


def _kernel(call: ModuleCall) -> tuple[int, int]:
    """Pairs of an input and an output channel, and taps for each pair."""
    conv = call.module
    assert isinstance(conv, nn.Conv2d)
    return conv.in_channels * conv.out_channels // conv.groups, prod(conv.kernel_size)


def _patches(call: ModuleCall) -> int:
    assert isinstance(call.module, FilteredConv2d)
    return prod(tuple(-(-side // call.module.patch) for side in call.output[2:]))


MEMORY, FLOPS = "memory (KB)", "FLOPs (millions)"
PATCH = 2

# network, trained convolutions (None: all), filtered, memory, FLOPs
TABLE_2 = (
    ("mobilenet_v2", None, False, 24.33 * 1024, 1_130.0),
    ("mobilenet_v2", 2, False, 245.00, 113.68),
    ("mobilenet_v2", 2, True, 80.00, 39.27),
    ("mobilenet_v2", 4, False, 459.38, 160.00),
    ("mobilenet_v2", 4, True, 150.00, 53.96),
    ("mcunet_5fps", None, False, 9.17 * 1024, 231.67),
    ("mcunet_5fps", 2, False, 220.50, 18.80),
    ("mcunet_5fps", 2, True, 72.00, 6.34),
    ("mcunet_5fps", 4, False, 312.38, 33.71),
    ("mcunet_5fps", 4, True, 102.00, 11.01),
    ("resnet18", None, False, 8.33 * 1024, 5_420.0),
    ("resnet18", 2, False, 196.00, 489.20),
    ("resnet18", 2, True, 64.00, 28.32),
    ("resnet18", 4, False, 490.00, 1_140.0),
    ("resnet18", 4, True, 112.00, 61.53),
    ("resnet34", None, False, 13.11 * 1024, 11_170.0),
    ("resnet34", 2, False, 196.00, 489.20),
    ("resnet34", 2, True, 64.00, 28.32),
    ("resnet34", 4, False, 392.00, 1_210.0),
    ("resnet34", 4, True, 128.00, 64.07),
)


@register_table(
    About(
        "gradfilter-2",
        "Gradient Filtering, table 2: ImageNet, 1000 classes, batch 1, 224 px",
        (MEMORY, FLOPS),
        (
            "KB are 1024 bytes; where all are trained, the paper prints MB.",
            "FLOPs are those of the backward pass.",
            "All convolutions of MobileNetV2 and MCUNet: the paper charges the first depthwise "
            "one a single channel.",
            "ResNet-34, 4 filtered: the paper leaves the classifier out.",
        ),
    )
)
def table_2() -> Iterator[Row]:
    """The last convolutions and the classifier are trained."""
    for name, count, filtered, memory, flops in TABLE_2:
        seen = trace_modules(_network(name, count, filtered))
        kept = GradientFilterMemory().measure(seen, 1).total_bytes / 1024
        work = GradientFilterFlops().count(seen, 1).total / 1e6
        which = "all" if count is None else f"last {count}{', filtered' * filtered}"
        yield Row(f"{name}, {which}", {MEMORY: Cell(memory, kept), FLOPS: Cell(flops, work)})


def _network(name: str, count: int | None, filtered: bool) -> nn.Module:
    """Shortcuts' own convolutions are trained with all others or not at all."""
    network = shapes(name, classes=1000)
    if count is None:
        return network
    convs = [layer.conv for layer in anatomy(network).main[-count:]]
    if filtered:
        swap(network, dict.fromkeys(convs, partial(FilteredConv2d.from_convolution, patch=PATCH)))
    return training(network, parameters_under(network, convs) | classifier(network))
