"""MobileTL's FLOPs: tables 1 and 3, in millions, batch 8.

The coefficients were fitted to these totals, so that agreement is partly by construction; what
was not used for the fit says so.
"""

from __future__ import annotations

import pytest
from torch import nn

from pocketune.methods import (
    BiasAndLast,
    FullFineTune,
    LastLayer,
    Method,
    NormAndLast,
    TopBlocks,
    trainable,
)
from pocketune.networks.architectures.parts import ConvNormActivation
from pocketune.papers import published_flops, trace_modules
from pocketune.papers.mobiletl import MobileTLFlops
from pocketune.surgery import freeze_batch_norms

from ..accounting.networks import adapted_trace, train_only
from .lite import lite_network, trained_sets
from .mobiletl import block, mobiletl_network

PROXYLESS = "proxylessnas_mobile"
FITTED = MobileTLFlops(addition=(2, 4))
"""The shortcuts' additions as the paper's ProxylessNAS rows need them."""

TABLE_3 = [
    (LastLayer(), 5_325.9, 5_325.936),
    (TopBlocks(3), 7_728.0, 7_727.960),
    (BiasAndLast(), 10_446.5, 10_446.080),
    (NormAndLast(), 11_066.1, 11_065.578),
    (FullFineTune(), 16_205.0, 16_204.498),
]


def count(method: Method, convention: MobileTLFlops = FITTED) -> int:
    return convention.count(adapted_trace(PROXYLESS, method, classes=100)).total


@pytest.mark.parametrize(
    ("module", "printed", "computed"),
    [
        (ConvNormActivation(96, 96, 5, activation=nn.ReLU), 541.67, 541.6704),
        (block(nn.ReLU), 51.56, 51.5628),
        (block(nn.Hardswish, squeeze_excite=True), 52.91, 52.9139),
    ],
    ids=["Conv", "MBV2", "MBV3"],
)
def test_table_1(module, printed, computed):
    """Quirks: one operation an element for the shortcut, none backward; the block's input needs a
    gradient too. Exact."""
    flops = MobileTLFlops().count(trace_modules(module, (96, 7, 7), input_gradient=True), 8)
    shortcut = 8 * 96 * 49
    assert round((flops.total + shortcut) / 1e6, 4) == computed
    assert round((flops.total + shortcut) / 1e6, 2) == printed


@pytest.mark.parametrize(("method", "printed", "computed"), TABLE_3)
def test_table_3(method, printed, computed):
    """Quirk: adding a shortcut costs 2 operations an element forward and 4 backward. Within
    0.005 %, FT-Last and FT-3BLKs to the printed digit."""
    total = count(method) / 1e6
    assert round(total, 3) == computed
    assert total == pytest.approx(printed, rel=5e-5)


@pytest.mark.parametrize(("method", "printed", "computed"), TABLE_3)
def test_table_3_without_that_quirk(method, printed, computed):
    """One operation an element each way: 0.039 to 0.104 % too low."""
    total = count(method, MobileTLFlops()) / 1e6
    assert total < computed
    assert total == pytest.approx(printed, rel=1.5e-3)


def test_smaller_images_and_batches_take_less():
    network = mobiletl_network(PROXYLESS, classes=100)
    whole = published_flops(network, "mobiletl", batch=8, size=224).forward
    assert published_flops(network, "mobiletl", batch=4).forward == whole / 2
    quarter = published_flops(network, "mobiletl", size=112).forward
    assert whole / 4 < quarter < whole / 3  # the classifier and its like stay as they are


def test_table_3_mobiletl():
    total = published_flops(mobiletl_network(PROXYLESS, classes=100), FITTED).total / 1e6
    assert round(total, 3) == 7_699.059  # the paper: 7,699.0


@pytest.mark.parametrize(
    ("row", "parameters", "printed", "computed", "tolerance"),
    [
        ("TinyTL-L+B", 1_959_748, 14_087.6, 14_089.0, 1.1e-4),
        ("TinyTL-L", 1_944_516, 13_505.9, 13_515.3, 7.1e-4),
    ],
)
def test_table_3_tinytl(row, parameters, printed, computed, tolerance):
    """Not used for the fit. Quirk: the norms of the lite modules count as batch norms on the
    batch's statistics; adding, pooling and resizing are free. 0.010 and 0.07 % too high."""
    network = lite_network(100)
    train_only(network, trained_sets(network)[row])
    freeze_batch_norms(network, keep=[])
    assert trainable(network).trained == parameters
    total = published_flops(network, FITTED).total / 1e6
    assert round(total, 1) == computed
    assert total == pytest.approx(printed, rel=tolerance)


def test_differences_that_hold_whatever_the_fit():
    """FT-3BLKs less MobileTL is 16 operations for each of its 1,806,336 inner elements; FT-BN less
    FT-Bias 15 for each element of a norm but the first's 6; FT-All less FT-BN the convolutions'
    weights and the first norm's input."""
    totals = {type(method): count(method) for method, _, _ in TABLE_3}
    ours = published_flops(mobiletl_network(PROXYLESS, classes=100), FITTED).total
    assert totals[TopBlocks] - ours == 16 * 1_806_336
    norms, first = 43_226_624, 3_211_264
    assert totals[NormAndLast] - totals[BiasAndLast] == 15 * (norms - first) + 6 * first
    convs = 2 * 8 * 319_147_584 - 2_765_016
    assert totals[FullFineTune] - totals[NormAndLast] == convs + 11 * first


def test_mobilenet_v3_small():
    """Forward exact (1000.6), backward 0.014 % below 1934.92. Shortcuts cost one operation an
    element each way here."""
    flops = MobileTLFlops().count(adapted_trace("mobilenet_v3_small", FullFineTune(), classes=100))
    assert round(flops.forward / 1e6, 3) == 1_000.641
    assert round(flops.backward / 1e6, 3) == 1_934.657


def test_five_blocks_save_36_percent():
    """Of full fine-tuning, for vanilla blocks. Not used for the fit."""
    full, five = (
        MobileTLFlops().count(adapted_trace("mobilenet_v3_small", method, classes=100))
        for method in (FullFineTune(), TopBlocks(5))
    )
    assert round(100 * (1 - five.total / full.total)) == 36


def test_the_definition_on_a_small_network():
    """By hand, two samples; the first convolution needs no gradient of its input."""
    network = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1, groups=2, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.Conv2d(8, 2, 1),
        nn.Flatten(),
        nn.Linear(32, 3),
    )
    flops = MobileTLFlops().count(trace_modules(network, (4, 4, 4)), 2)
    n, first, second, last = 2 * 8 * 16, 2 * 16 * 8 * 2 * 9, 2 * 16 * 8 * 2, 2 * 32 * 3
    assert [layer.flops.forward for layer in flops.layers] == [
        2 * first, 7 * n, n, 2 * second, 0, 2 * last,
    ]  # fmt: skip
    assert [layer.flops.backward for layer in flops.layers] == [
        2 * first - 144,
        (1 + 3 + 11) * n,
        2 * n,
        2 * second - 16 + 2 * second - 2 * 8 * 16,
        0,
        2 * last - 96 + 2 * last - 2 * 32,
    ]
    assert flops.total == flops.forward + flops.backward
