"""Parts of networks that several methods need."""

import pytest
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.methods import (
    ActivationPruning,
    FewBitBackward,
    FullFineTune,
    Method,
    SignedBackward,
    adapt,
)


@pytest.mark.parametrize(
    "added", [ActivationPruning(), FewBitBackward(), SignedBackward()], ids=str
)
def test_a_method_that_is_added_says_that_it_needs_blocks(added: Method) -> None:
    """And not which other methods need none, which is one of the two."""
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    network = nn.Sequential(*layers)
    with pytest.raises(PocketuneError) as raised:
        adapt(network, FullFineTune() + added)
    assert str(raised.value) == (
        f"{added} needs the blocks of a network: Sequential has no blocks, modules that map "
        "features to features; leave it out"
    )
