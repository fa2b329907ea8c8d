"""MobileTL's stored activations: table 1, figure 1, and the whole MobileNetV3-Small."""

from __future__ import annotations

import pytest
from torch import nn

from pocketune.methods import FullFineTune
from pocketune.networks.architectures.parts import ConvNormActivation
from pocketune.papers import published_memory, trace_modules
from pocketune.papers.mobiletl import MobileTLStored

from ..accounting.networks import adapted
from .mobiletl import as_mobiletl, block

U = 8 * 96 * 49 * 4
"""Bytes of the maps that enter a block of table 1: 96 channels of 7 x 7 pixels, batch 8."""


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
