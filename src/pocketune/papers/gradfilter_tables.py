"""Tables 2 and 3 of Gradient Filtering (Yang et al., CVPR 2023)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from pocketune.filtering import FilteredConv2d
from pocketune.methods import GradientFilter, adapt
from pocketune.methods.parts import classifier
from pocketune.networks import anatomy
from pocketune.papers.gradfilter import GradientFilterFlops, GradientFilterMemory
from pocketune.papers.tables import About, Cell, Row, register_table, shapes, training
from pocketune.papers.trace import ModuleTrace, trace_modules
from pocketune.surgery import parameters_under, swap
from pocketune.weights import create_network

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


BILLIONS = "FLOPs (billions)"
SIZE = 512
CLASSES = 21
HEAD = "decode_head."


@dataclass(frozen=True)
class Dense:
    """A network of table 3 and the convolutions that are trained, without the classifier.

    Attributes:
        network: Its name.
        backbone: Name of the backbone.
        five: The last five convolutions, with the patches of those that are filtered, else 0.
        more: Those that are trained besides in the rows of ten, without shortcuts.
        printed: All, 5, 10, 5 filtered, 10 filtered, in billions.
    """

    network: str
    backbone: str
    five: Mapping[str, int]
    more: Mapping[str, int]
    printed: tuple[float, float, float, float, float]


def _layer_4(patch: int) -> dict[str, int]:
    names = (f"{block}.{conv}" for block in (0, 1) for conv in ("conv1", "conv2"))
    return {f"backbone.layer4.{name}": patch for name in names}


def _last_inverted_residual(patch: int) -> dict[str, int]:
    return {f"backbone.17.conv.{name}": patch for name in ("0.0", "1.0", "2")}


PSP = {
    **{f"{HEAD}psp_modules.{place}.0": 0 for place in range(4)},
    f"{HEAD}bottleneck.0": 4,
}
ASPP = {
    **{f"{HEAD}aspp.{place}.0": patch for place, patch in enumerate((3, 3, 6, 9))},
    f"{HEAD}bottleneck.0": 3,
}
DENSE = {
    "PSPNet": Dense("pspnet", "resnet18_v1c", PSP, _layer_4(4), (166.5, 15.0, 110.6, 0.14, 0.79)),
    "PSPNet-M": Dense(
        "pspnet",
        "mobilenet_v2",
        PSP,
        {"backbone.16.conv.1.0": 4, "backbone.16.conv.2": 4, **_last_inverted_residual(4)},
        (42.4, 12.22, 22.46, 0.11, 0.76),
    ),
    "FCN": Dense(
        "fcn",
        "resnet18_v1c",
        {
            "backbone.layer4.1.conv1": 4,
            "backbone.layer4.1.conv2": 4,
            f"{HEAD}convs.0.0": 4,
            f"{HEAD}convs.1.0": 4,
            f"{HEAD}conv_cat.0": 4,
        },
        {
            "backbone.layer3.1.conv1": 4,
            "backbone.layer3.1.conv2": 4,
            "backbone.layer4.0.conv1": 4,
            "backbone.layer4.0.conv2": 4,
        },
        (170.3, 59.5, 100.9, 0.58, 0.96),
    ),
    "DeepLabV3": Dense(
        "deeplabv3", "resnet18_v1c", ASPP, _layer_4(2), (151.2, 18.0, 102.0, 0.31, 2.96)
    ),
    "DeepLabV3-M": Dense(
        "deeplabv3",
        "mobilenet_v2",
        ASPP,
        {f"{HEAD}image_pool.0": 0, "backbone.16.conv.2": 3, **_last_inverted_residual(3)},
        (54.4, 14.8, 33.1, 0.26, 1.40),
    ),
    "UPerNet": Dense(
        "upernet",
        "resnet18_v1c",
        {
            f"{HEAD}bottleneck.0": 2,
            f"{HEAD}fpn_convs.0.0": 8,
            f"{HEAD}fpn_convs.1.0": 4,
            f"{HEAD}fpn_convs.2.0": 2,
            f"{HEAD}fpn_bottleneck.0": 8,
        },
        {
            f"{HEAD}psp_modules.0.0": 0,
            f"{HEAD}psp_modules.1.0": 0,
            f"{HEAD}lateral_convs.0.0": 8,
            f"{HEAD}lateral_convs.1.0": 4,
            f"{HEAD}lateral_convs.2.0": 2,
        },
        (541.0, 503.9, 507.6, 1.97, 2.22),
    ),
}


@register_table(
    About(
        "gradfilter-3",
        "Gradient Filtering, table 3: segmentation of 21 classes, batch 1, 512 px",
        (BILLIONS,),
        (
            "FLOPs are those of the backward pass through convolutions, without the classifier.",
            "In the rows of 5 and 10, convolutions of shortcuts are left out.",
            "PSPNet and FCN, all: the paper seems to leave out shortcuts here too.",
            "FCN, PSPNet filtered and DeepLabV3, 10, and DeepLabV3, all: the paper charges block "
            "layer4.0 with the channels of layer3.0.",
            "UPerNet, all rows: the paper charges layers of its pyramid with the sizes of others.",
            "Filtering 10 layers divides the work by 273 in UPerNet and by 107 in PSPNet; the "
            "paper's 229 and 140 come from these slips.",
        ),
    )
)
def table_3() -> Iterator[Row]:
    """All convolutions, or the last five or ten, exact or filtered."""
    for name, dense in DENSE.items():
        settings = ("all", "last 5", "last 10", "last 5, filtered", "last 10, filtered")
        for setting, printed, work in zip(settings, dense.printed, _work(dense), strict=True):
            yield Row(f"{name}, {setting}", {BILLIONS: Cell(printed, work / 1e9)})


def _work(dense: Dense) -> Iterator[int]:
    """FLOPs of the five settings, in the order of `Dense.printed`."""
    with torch.device("meta"):
        network = create_network(dense.network, backbone=dense.backbone, classes=CLASSES)
    yield GradientFilterFlops().count(trace_modules(network, (3, SIZE, SIZE))).total
    ten = {**dense.five, **dense.more}
    shortcuts = {layer.conv for layer in anatomy(network).layers if layer.in_shortcut}
    for filtered in (False, True):
        for layers in (dense.five, ten):
            count = GradientFilterFlops().count(traced(network, layers, filtered=filtered))
            counted = (layer for layer in count.layers if layer.name not in shortcuts)
            yield sum(layer.flops.backward for layer in counted)


def traced(network: nn.Module, patches: Mapping[str, int], *, filtered: bool) -> ModuleTrace:
    """A step that trains these convolutions and the classifier; a patch of 0 leaves them exact."""
    sizes = {name: patch for name, patch in patches.items() if patch and filtered}
    method = GradientFilter(sizes, layers=tuple(patches), chain=False)
    return trace_modules(adapt(network, method), (3, SIZE, SIZE))
