"""The published space of TinyTL, to the integer."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from torch import nn

from pocketune.methods import TinyTL, adapt
from pocketune.papers import published_memory
from pocketune.papers.counts import PublishedMemory
from pocketune.papers.search_cost import predictor_macs
from pocketune.papers.tables import published_table
from pocketune.papers.tinytl_search import (
    SPACE,
    extremes,
    macs_by_part,
    parameters_by_part,
    predictor_inputs,
    search_macs,
)
from pocketune.papers.trace import ModuleTrace, trace_modules
from pocketune.supernet import Space
from pocketune.supernet.supernet import meta_subnet

SMALLEST, LARGEST = extremes(SPACE)


@cache
def network(which: str) -> nn.Module:
    return meta_subnet(SPACE, LARGEST if which == "largest" else SMALLEST)


@cache
def trace(which: str, size: int = 224) -> ModuleTrace:
    return trace_modules(network(which), (3, size, size))


@cache
def memory(which: str) -> PublishedMemory:
    return published_memory(adapt(network(which), TinyTL()), "tinytl")


def test_parameters_are_the_published_ones() -> None:
    def parameters(which: str) -> tuple[int, ...]:
        return tuple(parameters_by_part(network(which)).values())

    assert parameters("smallest") == (2_046_448, 20_416, 1_594_208, 5_424, 169_830, 3_836_326)
    assert parameters("largest") == (6_233_632, 63_728, 3_117_472, 9_968, 169_830, 9_594_630)


def macs(which: str) -> list[int]:
    """Stem, first block, reduced block, stages 0 to 5, fusion, classifier, modules."""
    return list(macs_by_part(LARGEST if which == "largest" else SMALLEST, trace(which)).values())


def test_macs_of_each_part_are_the_published_ones() -> None:
    assert macs("smallest") == [
        13_547_520, 16_558_080, 55_996_416, 21_977_088, 30_463_104, 24_366_720, 34_682_592,
        32_879_784, 24_534_888, 33_918_976, 169_728, 65_967_456,
    ]  # fmt: skip
    assert macs("largest") == [
        13_547_520, 16_558_080, 111_992_832, 204_115_968, 162_306_816, 119_124_096, 172_100_544,
        149_655_408, 51_986_256, 33_918_976, 169_728, 146_313_696,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("which", "megabytes", "inference", "training"),
    [
        ("smallest", 35.864, 355.062, 776.092),
        ("largest", 61.264, 1181.790, 2509.894),
    ],
)
def test_costs_of_both_extremes(
    which: str, megabytes: float, inference: float, training: float
) -> None:
    macs = search_macs(trace(which))
    assert round(macs.inference / 1e6, 3) == inference
    assert round(macs.training / 1e6, 3) == training
    assert round(memory(which).total_bytes / 1e6, 3) == megabytes


def test_costs_at_a_larger_size() -> None:
    macs = search_macs(trace("smallest", 352))
    assert round(macs.inference / 1e6, 1) == 877.7
    assert round(macs.training / 1e6, 1) == 1919.5


def test_the_peak_is_where_the_published_profiler_has_it() -> None:
    largest, smallest = memory("largest"), memory("smallest")
    assert largest.parameter_bytes == 19_573_968
    assert largest.activation_bytes == 8 * 5_211_248
    assert largest.peak_layer == "features.6.conv.0.0", "the expansion at the start of stage 1"
    assert smallest.parameter_bytes == 9_170_680
    assert smallest.activation_bytes == 8 * 3_336_704
    assert smallest.peak_layer == "features.1.conv.1", "the projection of the first block"


def test_an_ordinary_first_block_takes_a_third_more() -> None:
    ordinary = replace(SPACE, first="ordinary")
    adapted = adapt(meta_subnet(ordinary, LARGEST), TinyTL())
    total = published_memory(adapted, "tinytl").total_bytes
    assert round(total / 1e6, 3) == 87.994


def test_the_released_space_without_modules() -> None:
    """OFA-Proxyless of width 1.3; its 14,826 matrix entries are those of 21 layers."""
    released = Space(width=1.3, classes=102)
    for config, count in ((released.smallest, 2_223_662), (released.largest, 6_446_886)):
        assert sum(p.numel() for p in meta_subnet(released, config).parameters()) == count
    matrices = sum(k**4 for k in released.kernels[:-1]) * released.blocks
    assert (matrices, 6_446_886 + matrices) == (14_826, 6_461_712)


def test_the_table_has_the_exact_counts() -> None:
    exact = [
        row for row in published_table("tinytl-search").rows if row.cells["figure"].paper > 4e3
    ]
    assert len(exact) == 2 * (6 + 12) + 3
    assert all(row.cells["figure"].difference == 0 for row in exact)


def test_the_predictor() -> None:
    assert predictor_inputs(SPACE) == 127
    assert predictor_macs(127) == 371_200
    assert (predictor_macs(126), predictor_macs(128)) == (370_800, 371_600)
