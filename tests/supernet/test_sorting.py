"""Channels in the order of their importance."""

from __future__ import annotations

import pytest
import torch
from tests.supernet.small import images, supernet

from pocketune.errors import PocketuneError
from pocketune.supernet import Supernet
from pocketune.supernet.sorting import _order


def importance(made: Supernet, block: int) -> torch.Tensor:
    convs = [m for m in made.network.features[2 + block].conv if isinstance(m, torch.nn.Conv2d)]
    weight: torch.Tensor = convs[-1].weight
    return weight.abs().sum((0, 2, 3))


@pytest.mark.parametrize("first", ["ordinary", "reduced"])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_sorting_keeps_what_the_largest_computes(first: str, norm: str) -> None:
    made = supernet(first=first, norm=norm).double()
    x = images().double()
    with torch.no_grad():
        before = made(x)
        made.sort_channels()
        torch.testing.assert_close(made(x), before)
    group = 8 if norm == "group" else 1
    for block in range(made.space.blocks):
        means = importance(made, block).view(-1, group).mean(1)
        assert (means.diff() <= 0).all()


def test_the_channels_of_an_expansion_stay_in_front() -> None:
    made = supernet()
    middle = 4 * made.space.place(3).inputs
    before = importance(made, 3)
    made.sort_channels(keep=4)
    after = importance(made, 3)
    for part in (slice(middle), slice(middle, None)):
        assert torch.equal(after[part], before[part].sort(descending=True).values)
    with pytest.raises(PocketuneError, match="no expansion of 5"):
        made.sort_channels(keep=5)


def test_channels_of_a_group_stay_together() -> None:
    project = torch.zeros(1, 24, 1, 1)
    project[:, 8:16], project[:, 16:] = 2, 1
    project[:, 0] = 9  # the mean of its group is the middle one
    assert _order(project, 8, 24).tolist() == [*range(8, 16), *range(8), *range(16, 24)]
