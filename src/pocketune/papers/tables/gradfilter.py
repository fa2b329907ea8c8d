"""Efficient On-device Training via Gradient Filtering (Yang et al., CVPR 2023)."""

from collections.abc import Iterator
from functools import partial

from torch import nn

from pocketune.filtering import FilteredConv2d
from pocketune.methods.parts import classifier
from pocketune.networks import anatomy
from pocketune.papers.conventions.gradfilter import GradientFilterFlops, GradientFilterMemory
from pocketune.papers.tables.settings import shapes, training
from pocketune.papers.tables.table import About, Cell, Row, register_table
from pocketune.papers.trace import walk
from pocketune.surgery import parameters_under, swap

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
        seen = walk(_network(name, count, filtered))
        kept = GradientFilterMemory().measure(seen, 1).total_bytes / 1024
        work = GradientFilterFlops().count(seen, 1).total / 1e6
        which = "all" if count is None else f"last {count}{', filtered' * filtered}"
        yield Row(f"{name}, {which}", {MEMORY: Cell(memory, kept), FLOPS: Cell(flops, work)})


def _network(name: str, count: int | None, filtered: bool) -> nn.Module:
    """Shortcuts' own convolutions are trained with all others or not at all."""
    network = shapes(name, classes=1000)
    if count is None:
        return network
    layers = [layer for layer in anatomy(network).layers if layer.role != "downsample"]
    convs = [layer.conv for layer in layers[-count:]]
    if filtered:
        swap(network, dict.fromkeys(convs, partial(FilteredConv2d.from_convolution, patch=PATCH)))
    return training(network, parameters_under(network, convs) | classifier(network))
