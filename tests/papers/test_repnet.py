"""Rep-Net's memory by block, with its side modules beside MobileNetV2."""

from __future__ import annotations

from functools import cache

import pytest

from pocketune.methods import RepNet, adapt
from pocketune.papers import ModuleTrace, by_block, trace_modules
from pocketune.papers.repnet import RepNetMemory
from pocketune.surgery import prune
from pocketune.weights import create_network

BLOCKS = [f"features.{place}" for place in range(1, 18)]
PUBLIC_ORDER = RepNetMemory(image_module_first=True)


@cache
def seen(classes: int, ratios: tuple[float, ...] = ()) -> ModuleTrace:
    """With these shares of the hidden channels of blocks 1 to 4 removed."""
    network = create_network("mobilenet_v2", classes=classes)
    if ratios:
        cut = {f"features.{place}": ratio for place, ratio in enumerate(ratios, 1)}
        network = prune(network, cut, importance="weight")
    return trace_modules(adapt(network, RepNet()))


@pytest.fixture(scope="module")
def memory():
    return RepNetMemory().measure(seen(10))


def test_temporary_memory_by_block(memory):
    """The figure of the pruned Rep-Net: 5.6 MB in block 2. Exact; TinyTL's rules."""
    blocks = by_block(memory)
    assert [block.name for block in blocks] == BLOCKS
    temporary = [round(block.temporary_bytes / 1e6, 3) for block in blocks[:5]]
    assert temporary == [2.408, 5.620, 2.107, 2.107, 0.702]
    above = [i + 1 for i, block in enumerate(blocks) if block.temporary_bytes > 1.9e6]
    assert above == [1, 2, 3, 4]  # the paper's sensitive blocks


def test_peak(memory):
    """5.72 MB in block 2. Exact; masks count though the backbone is frozen, and the first module
    counts after its block."""
    peaks = {block.name: block.peak_bytes for block in by_block(memory)}
    assert max(peaks, key=peaks.__getitem__) == "features.2"
    assert peaks["features.2"] == memory.activation_bytes // 8 == 5_720_064


def test_what_is_kept_in_the_end(memory):
    """1.533 MB; the paper's 1.9 cannot be had from its public layout."""
    assert memory.kept_bytes == 1_532_912
    fusion = 1280 * 49 // 8 + 4 * 1280  # its activation's mask, the classifier's input
    assert by_block(memory)[-1].cumulative_kept_bytes == memory.kept_bytes - fusion
    side = sum(layer.kept_bytes for layer in memory.layers if ".branch." in layer.name)
    assert round(side / 1e6, 3) == 0.765
    masks = sum(
        layer.kept_bytes
        for layer in memory.layers
        if layer.kind == "ReLU6" and ".branch." not in layer.name
    )
    assert round(masks / 1e6, 3) == 0.763


@pytest.mark.parametrize(
    ("classes", "computed"), [(10, 50.64), (37, 50.78), (102, 51.11), (200, 51.61)]
)
def test_total(classes, computed):
    """51 MB at batch 8, whatever the data set has of classes. Exact with the first module ahead
    of the network, as the public code runs it: its peak is then 5.856 MB."""
    memory = PUBLIC_ORDER.measure(seen(classes))
    assert memory.activation_bytes == 8 * 5_855_696
    assert round(memory.total_bytes / 1e6, 2) == computed


@pytest.mark.parametrize(
    ("ratios", "peak", "total"),
    [((0.30, 0.78, 0.46, 0.46), 1.976, 20.67), ((0.28, 0.77, 0.46, 0.46), 2.029, 21.10)],
    ids=["22, 21, 78 and 78 channels", "23, 22, 78 and 78 channels"],
)
def test_pruned(ratios, peak, total):
    """2.02 and 21 MB, with the hidden channels of blocks 1 to 4 that the pruning leaves. The peak
    is that of the order by blocks, 2.2 % below or 0.4 % above the paper's as the channels are
    rounded; the total that of the public order."""
    ordered = RepNetMemory().measure(seen(10, ratios))
    assert round(ordered.activation_bytes / 8e6, 3) == peak
    assert ordered.peak_layer.startswith("features.1.")
    public = PUBLIC_ORDER.measure(seen(10, ratios))
    assert round(public.total_bytes / 1e6, 2) == total
