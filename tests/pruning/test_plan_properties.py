"""Pruning plans of made-up networks: targets are reached, and nothing more is removed."""

import copy
import re

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.methods import BiasAndLast, adapt
from pocketune.networks.architectures.parts import (
    ConvNormActivation,
    InvertedResidual,
    PlainNetwork,
)
from pocketune.pruning import plan_pruning, profile_memory
from pocketune.surgery.channels import FEWEST, narrow
from pocketune.surgery.prune import channels_left

METHOD = BiasAndLast()
SLACK = 16
"""Bytes by which a plan may be careful: masks of one bit are rounded up to bytes each."""

blocks = st.tuples(  # expansion, channels out, kernel, stride
    st.integers(2, 6), st.sampled_from([8, 12, 16, 24]), st.sampled_from([3, 5]), st.integers(1, 2)
)


def build(stem: int, shapes: list[tuple[int, int, int, int]]) -> nn.Module:
    with torch.device("meta"):
        features: list[nn.Module] = [ConvNormActivation(3, stem, 3, stride=2)]
        inputs = stem
        for expansion, outputs, kernel, stride in shapes:
            middle = inputs * expansion
            features.append(InvertedResidual(inputs, middle, outputs, kernel=kernel, stride=stride))
            inputs = outputs
        return PlainNetwork(features, nn.Sequential(nn.Linear(inputs, 4)))


def peak_of(network: nn.Module, block: str, channels: dict[str, int], size: int) -> int:
    """A block's peak, by following the network with so many hidden channels."""
    narrowed = copy.deepcopy(network)
    narrow(narrowed, channels)
    return profile_memory(adapt(narrowed, METHOD), size=size).block(block).peak_bytes


@settings(max_examples=8)
@given(
    stem=st.sampled_from([8, 16]),
    shapes=st.lists(blocks, min_size=1, max_size=3),
    size=st.sampled_from([16, 24, 48]),
    share=st.floats(0.2, 1.1),
)
def test_targets_are_reached_and_no_channel_more_is_removed(
    stem: int, shapes: list[tuple[int, int, int, int]], size: int, share: float
) -> None:
    network = build(stem, shapes)
    before = profile_memory(adapt(network, METHOD), size=size).peak.peak_bytes
    target = int(share * before)
    try:
        plan = plan_pruning(network, target, size=size, method=METHOD)
    except PocketuneError as refused:
        floor = int(re.findall(r"floor is ([\d,]+)", str(refused))[0].replace(",", ""))
        assert target < floor <= before
        target = floor
        plan = plan_pruning(network, target, size=size, method=METHOD)
    assert plan.after.peak.peak_bytes <= target
    assert bool(plan.channels) == (before > target)
    left = {block: few for block, (_, few) in plan.channels.items()}
    for block, (count, few) in plan.channels.items():
        assert 0 <= plan.ratios[block] < 1
        assert FEWEST <= few < count
        assert channels_left(count, plan.ratios[block]) == few
    for block, few in list(left.items())[-1:]:  # following a network takes its time
        assert peak_of(network, block, {**left, block: few + 1}, size) > target - SLACK
