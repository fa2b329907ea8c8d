"""MobileTL's memory: tables 3, 4 and 5; its stored activations: table 1, figure 1 and the whole
MobileNetV3-Small. MB are 10^6 bytes, the batch is 8."""

from __future__ import annotations

import pytest
from torch import nn

from pocketune.methods import (
    BiasAndLast,
    FullFineTune,
    LastLayer,
    NormAndLast,
    TopBlocks,
    trainable,
)
from pocketune.networks import anatomy
from pocketune.networks.architectures.parts import ConvNormActivation
from pocketune.papers import published_memory, trace_modules
from pocketune.papers.mobiletl import MobileTLMemory, MobileTLStored
from pocketune.surgery import batch_norms

from ..accounting.networks import adapted, adapted_trace
from ..networks.meta import on_meta
from .lite import add_lite
from .mobiletl import (
    as_mobiletl,
    block,
    mobiletl,
    mobiletl_network,
    with_relu,
    without_squeeze_excite,
)

PROXYLESS = "proxylessnas_mobile"
U = 8 * 96 * 49 * 4
"""Bytes of the maps that enter a block of table 1: 96 channels of 7 x 7 pixels, batch 8."""


@pytest.mark.parametrize(
    ("method", "parameters", "printed", "computed", "peak"),
    [
        (LastLayer(), 128_100, 29.0, 29.002, "features.2.conv.0.0"),
        (TopBlocks(3), 1_695_972, 40.5, 40.541, "features.21.0"),
        (FullFineTune(), 2_927_612, 382.7, 382.685, "features.21.0"),
        (NormAndLast(), 162_596, 189.9, 189.832, "classifier.1"),
        (BiasAndLast(), 145_348, 30.6, 30.659, "features.2.conv.0.0"),
    ],
)
def test_table_3(method, parameters, printed, computed, peak):
    """Quirks: a trained weight takes 4 bytes for every sample; only masks that a gradient reaches
    count, 2 bits for ReLU6. Exact but for FT-BN (-0.04 %) and FT-Bias (+0.2 %)."""
    seen = adapted_trace(PROXYLESS, method, classes=100)
    memory = MobileTLMemory().measure(seen)
    assert seen.count_parameters(trained=True) == parameters
    assert round(memory.total_bytes / 1e6, 3) == computed
    assert memory.total_bytes / 1e6 == pytest.approx(printed, rel=0.0021)
    assert memory.peak_layer == peak


def test_table_3_mobiletl():
    """33.7 MB, at the first expansion: what is stored above is less than that. Exact."""
    network = mobiletl_network(PROXYLESS, classes=100)
    memory = published_memory(network, "mobiletl")
    assert trainable(network).trained == 1_691_364
    assert round(memory.total_bytes / 1e6, 3) == 33.692
    assert memory.activation_bytes == 8 * 3_211_264
    assert memory.peak_layer == "features.2.conv.0.0"


@pytest.mark.parametrize(
    ("variant", "printed", "computed"),
    [
        (lambda network: network, 47.4, 47.405),
        (without_squeeze_excite, 43.6, 43.589),
        (with_relu, 41.7, 41.718),
        (mobiletl, 35.8, 35.838),
    ],
    ids=["vanilla", "without squeeze-excite", "ReLU", "MobileTL"],
)
def test_table_4(variant, printed, computed):
    """MobileNetV3-Small, the top three blocks (which the paper does not say) and 10 classes, one
    thing changed at a time. Quirk: h-sigmoid keeps nothing here. Exact."""
    network = variant(adapted("mobilenet_v3_small", TopBlocks(3), classes=10))
    memory = published_memory(network, "mobiletl")
    assert round(memory.total_bytes / 1e6, 3) == computed
    assert round(memory.total_bytes / 1e6, 1) == printed
    assert memory.peak_layer == "classifier.0"  # for its 4 bytes a weight


def with_patches(*, frozen: bool) -> nn.Module:
    """MobileTL with TinyTL's modules, of kernel 3, beside its three blocks."""
    network = mobiletl_network(PROXYLESS, classes=10)
    if frozen:
        for block in anatomy(network).blocks[-3:]:
            network.get_submodule(block.name).requires_grad_(False)
    with network.classifier[1].weight.device:
        return add_lite(network, 3)


@pytest.mark.parametrize(
    ("make", "parameters", "printed", "computed"),
    [
        (lambda: adapted(PROXYLESS, TopBlocks(3), classes=10), 1_580_682, 40.1, 40.080),
        (lambda: mobiletl_network(PROXYLESS, classes=10), 1_576_074, 33.2, 33.231),
        (lambda: with_patches(frozen=False), 2_211_466, 35.8, 35.862),
        (lambda: with_patches(frozen=True), 1_060_362, 32.3, 32.319),
    ],
    ids=["vanilla", "MobileTL", "with patches", "patches alone"],
)
def test_table_5(make, parameters, printed, computed):
    """10 classes. Exact but for the third row (+0.2 %)."""
    network = make()
    assert trainable(network).trained == parameters
    memory = published_memory(network, "mobiletl")
    assert round(memory.total_bytes / 1e6, 3) == computed
    assert memory.total_bytes / 1e6 == pytest.approx(printed, rel=0.002)


def test_what_differs_from_tinytl_on_a_small_network():
    """By hand: 4 bytes a trained weight, two bits a ReLU6, no masks below what is trained."""
    network = nn.Sequential(
        nn.Conv2d(3, 8, 1, bias=False).requires_grad_(False),
        nn.ReLU6(),
        nn.Conv2d(8, 8, 1, bias=False),
        nn.ReLU6(),
        nn.Hardsigmoid(),
    )
    memory = MobileTLMemory().measure(trace_modules(network, (3, 4, 4)), batch=2)
    assert [layer.kept_bytes for layer in memory.layers] == [0, 0, 512, 32, 0]
    assert [layer.temporary_bytes for layer in memory.layers] == [704, 512, 1280, 512, 512]
    assert memory.peak_layer == "2"
    assert memory.total_bytes == 24 + 4 * 64 + 2 * 1280


def test_norms_of_a_backbone_are_all_that_has_shifts():
    """17,248 channels, which table 3's parameter counts are made of."""
    network = on_meta(PROXYLESS, classes=100)
    assert sum(norm.num_features for norm in batch_norms(network).values()) == 17_248


def stored(module: nn.Module) -> int:
    return (
        MobileTLStored()
        .measure(trace_modules(module, (96, 7, 7), input_gradient=True), 8)
        .total_bytes
    )


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("module", "count", "expected", "printed"),
    [
        (ConvNormActivation(96, 96, 5, activation=nn.ReLU), 230_592, 2 * U + U // 32, 0.306),
        (block(nn.ReLU), 21_408, 6 * U + 2 * U // 32, 0.913),
        (
            block(nn.Hardswish, squeeze_excite=True),
            26_136,
            9 * U + 8 * (4 * (96 + 96 + 24) + 24 // 8),
            1.362,
        ),
    ],
    ids=["Conv", "MBV2", "MBV3"],
)
def test_table_1(module, count, expected, printed):
    """Exact to the byte. Quirks: ReLU keeps one bit; squeeze-excite keeps its maps, two vectors of
    its channels, one of its squeezed ones and their mask."""
    assert parameters(module) == count
    assert stored(module) == expected
    assert round(stored(module) / 1e6, 3) == printed


def test_figure_1_mobilenet_v2():
    """MobileTL keeps 46.3 % less of a block with expansion 6. Quirk: ReLU6 keeps two bits there,
    where table 1 has one. Exact."""
    vanilla = stored(block(nn.ReLU6, expansion=6))
    ours = stored(as_mobiletl(block(nn.ReLU6, expansion=6)))
    assert vanilla == 26 * U + 2 * 6 * 2 * U // 32
    assert ours == 14 * U + 2 * 6 * U // 32
    assert round(100 * (1 - ours / vanilla), 2) == 46.26


def test_figure_1_mobilenet_v3():
    """53.3 % less, computed 53.36."""
    vanilla = stored(block(nn.Hardswish, expansion=6, squeeze_excite=True))
    ours = stored(as_mobiletl(block(nn.Hardswish, expansion=6, squeeze_excite=True)))
    assert round(100 * (1 - ours / vanilla), 2) == 53.36


def test_mobilenet_v3_small():
    """129.7 MB for full fine-tuning, 19.9 times the model with its running statistics. Exact."""
    network = adapted("mobilenet_v3_small", FullFineTune(), classes=100)
    memory = published_memory(network, "mobiletl-stored")
    assert round(memory.total_bytes / 1e6, 3) == 129.723
    assert memory.parameter_bytes == 0 and memory.total_bytes == 8 * memory.kept_bytes
    model = 4 * (parameters(network) + 2 * 6_056)
    assert round(memory.total_bytes / model, 2) == 19.87  # "19.9x"
