"""The tables of MobileTL (Chiang et al., AAAI 2023)."""

from collections.abc import Callable, Iterator

import torch
from torch import nn

from pocketune.methods import (
    BiasAndLast,
    FullFineTune,
    LastLayer,
    Method,
    MobileTL,
    NormAndLast,
    TinyTL,
    TopBlocks,
    adapt,
    trainable,
)
from pocketune.networks import anatomy
from pocketune.networks.architectures.parts import ConvNormActivation, SqueezeExcite
from pocketune.papers.mobiletl import MobileTLFlops, MobileTLMemory, MobileTLStored
from pocketune.papers.tables import About, Cell, Row, register_table, shapes
from pocketune.papers.trace import ModuleTrace, trace_modules
from pocketune.surgery import swap

PARAMETERS, TRAINED = "parameters", "trained parameters"
MEMORY, STORED = "memory (MB)", "stored activations (MB)"
FLOPS = "FLOPs (millions)"

CHANNELS, SIDE, BATCH = 96, 7, 8
"""Channels, map side and batch of the blocks in table 1."""


@register_table(
    About(
        "mobiletl-1",
        "MobileTL, table 1: one block of 96 channels, 5 x 5, on 7 x 7 pixels, batch 8",
        (PARAMETERS, FLOPS, STORED),
        ("FLOPs by coefficients fitted to the paper's totals.",),
    )
)
def table_1() -> Iterator[Row]:
    """A plain convolution, and the blocks of MobileNetV2 and V3 without expanding."""
    with torch.device("meta"):
        yield _block("Conv", (230_592, 541.67, 0.306), _layer(5, 1, nn.ReLU))
        yield _block("MBV2", (21_408, 51.56, 0.913), *_separable(nn.ReLU), _layer())
        gate = SqueezeExcite(CHANNELS, CHANNELS // 4)
        yield _block("MBV3", (26_136, 52.91, 1.362), *_separable(nn.Hardswish), gate, _layer())


def _layer(
    kernel: int = 1, groups: int = 1, activation: type[nn.Module] | None = None
) -> nn.Module:
    return ConvNormActivation(CHANNELS, CHANNELS, kernel, groups=groups, activation=activation)


def _separable(activation: type[nn.Module]) -> tuple[nn.Module, nn.Module]:
    return _layer(activation=activation), _layer(5, CHANNELS, activation)


def _block(label: str, paper: tuple[float, float, float], *layers: nn.Module) -> Row:
    block = nn.Sequential(*layers)
    seen = trace_modules(block, (CHANNELS, SIDE, SIDE), input_gradient=True)
    shortcut = BATCH * CHANNELS * SIDE * SIDE  # one addition an element, free in the backward pass
    ours = (
        sum(parameter.numel() for parameter in block.parameters()),
        (MobileTLFlops().count(seen, BATCH).total + shortcut) / 1e6,
        MobileTLStored().measure(seen, BATCH).total_bytes / 1e6,
    )
    return Row(label, dict(zip((PARAMETERS, FLOPS, STORED), map(Cell, paper, ours), strict=True)))


TABLE_3: tuple[tuple[str, Method, int, float, float], ...] = (
    # label, method, trained parameters, memory, FLOPs
    ("FT-All", FullFineTune(), 2_927_612, 382.7, 16_205.0),
    ("FT-BN", NormAndLast(), 162_596, 189.9, 11_066.1),
    ("FT-Bias", BiasAndLast(), 145_348, 30.6, 10_446.5),
    ("FT-3BLKs", TopBlocks(3), 1_695_972, 40.5, 7_728.0),
    ("MobileTL-3BLKs", MobileTL(3), 1_691_364, 33.7, 7_699.0),
    ("FT-Last", LastLayer(), 128_100, 29.0, 5_325.9),
    ("TinyTL-B", TinyTL(lite_residual=False), 145_348, 31, 10_446.5),
    ("TinyTL-L", TinyTL(bias=False), 1_944_516, 32, 13_505.9),
    ("TinyTL-L-B", TinyTL(), 1_959_748, 37, 14_087.6),
)


@register_table(
    About(
        "mobiletl-3",
        "MobileTL, table 3: ProxylessNAS-Mobile, 100 classes, batch 8, 224 px",
        (TRAINED, MEMORY, FLOPS),
        (
            "FLOPs by coefficients fitted to the paper's totals; adding a shortcut is charged 2 "
            "FLOPs an element forward and 4 backward, as these totals need.",
            "The paper's memory of its TinyTL rows (31, 32, 37) is that of TinyTL's own table, "
            "one row off.",
        ),
    )
)
def table_3() -> Iterator[Row]:
    """What is trained, by the paper's names."""
    network = shapes("proxylessnas_mobile", classes=100)
    for label, method, trained, memory, flops in TABLE_3:
        adapted = adapt(network, method)
        trace = trace_modules(adapted)
        work = MobileTLFlops(addition=(2, 4)).count(trace, 8)
        figures = {
            TRAINED: Cell(trained, trainable(adapted).trained),
            MEMORY: Cell(memory, _megabytes(trace)),
            FLOPS: Cell(flops, work.total / 1e6),
        }
        yield Row(label, figures)


@register_table(
    About(
        "mobiletl-4",
        "MobileTL, table 4: MobileNetV3-Small, 10 classes, batch 8, 224 px",
        (MEMORY,),
        ("The top three blocks are trained: the paper does not say how many.",),
    )
)
def table_4() -> Iterator[Row]:
    """One thing changed in the trained blocks."""
    variants: tuple[tuple[str, float, Callable[[nn.Module], None]], ...] = (
        ("vanilla", 47.4, _change_nothing),
        ("without squeeze-excite", 43.6, _remove_squeeze_excite),
        ("ReLU for h-swish", 41.7, _use_relu),
    )
    for label, paper, change in variants:
        network = adapt(shapes("mobilenet_v3_small", classes=10), TopBlocks(3))
        change(network)
        yield Row(label, {MEMORY: Cell(paper, _megabytes(trace_modules(network)))})
    network = adapt(shapes("mobilenet_v3_small", classes=10), MobileTL(3))
    yield Row("MobileTL", {MEMORY: Cell(35.8, _megabytes(trace_modules(network)))})


def _change_nothing(_: nn.Module) -> None:
    pass


def _remove_squeeze_excite(network: nn.Module) -> None:
    paths = [block.squeeze_excite for block in anatomy(network).blocks[-3:]]
    swap(network, {path: lambda _: nn.Identity() for path in paths if path})


def _use_relu(network: nn.Module) -> None:
    layers = [layer for block in anatomy(network).blocks[-3:] for layer in block.layers]
    swap(network, {layer.activation: lambda _: nn.ReLU() for layer in layers if layer.activation})


@register_table(
    About(
        "mobiletl-5",
        "MobileTL, table 5: ProxylessNAS-Mobile, 10 classes, batch 8, 224 px",
        (TRAINED, MEMORY),
        ("A patch is a lite residual module of each of the three trained blocks.",),
    )
)
def table_5() -> Iterator[Row]:
    """Three blocks and their lite residual modules."""
    network = shapes("proxylessnas_mobile", classes=10)
    vanilla, ours = adapt(network, TopBlocks(3)), adapt(network, MobileTL(3))
    yield Row("vanilla", _trained_and_memory(vanilla, 1_580_682, 40.1))
    yield Row("MobileTL", _trained_and_memory(ours, 1_576_074, 33.2))
    patched = adapt(network, MobileTL(3, patches="with"))
    yield Row("MobileTL with patches", _trained_and_memory(patched, 2_211_466, 35.8))
    alone = adapt(network, MobileTL(3, patches="instead"))
    yield Row("patches, their blocks frozen", _trained_and_memory(alone, 1_060_362, 32.3))


def _trained_and_memory(network: nn.Module, trained: int, memory: float) -> dict[str, Cell]:
    return {
        TRAINED: Cell(trained, trainable(network).trained),
        MEMORY: Cell(memory, _megabytes(trace_modules(network))),
    }


def _megabytes(trace: ModuleTrace) -> float:
    return MobileTLMemory().measure(trace, 8).total_bytes / 1e6
