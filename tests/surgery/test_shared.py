"""Modules that stand at several paths."""

import pytest
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.methods import FullFineTune, LastLayer, SignedBackward, adapt
from pocketune.surgery import separate
from pocketune.weights import create_network


def test_activations_become_modules_of_their_own() -> None:
    relu = nn.ReLU()
    network = nn.Sequential(relu, nn.Sequential(relu, nn.Linear(2, 2)), relu)
    separate(network)
    assert len({network[0], network[1][0], network[2]}) == 3


def test_a_method_reaches_every_path_of_a_shared_activation() -> None:
    network, relu = create_network("mobilenet_v2", width=0.35, classes=3), nn.ReLU6()
    for block in network.features[2:18]:
        block.conv[0][2] = relu
    adapted = adapt(network, FullFineTune() + SignedBackward())
    kinds = {type(block.conv[0][2]) for block in adapted.features[2:18]}
    assert len(kinds) == 1
    assert kinds != {nn.ReLU6}


def test_layers_that_share_their_values_are_named() -> None:
    network = create_network("mobilenet_v2", width=0.35, classes=3)
    network.features[5].conv[0][1] = network.features[4].conv[0][1]
    with pytest.raises(PocketuneError, match=r"features\.5\.conv\.0\.1 is the same module as"):
        adapt(network, LastLayer())
