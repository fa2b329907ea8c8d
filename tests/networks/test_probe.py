"""Shapes of maps inside a network."""

import torch

from pocketune.networks.probe import input_shapes
from pocketune.weights import create_network


def test_shapes_of_inputs() -> None:
    network = create_network("mobilenet_v2", width=0.35).train()
    names = ["features.0.0", "features.18.0", "classifier.1"]
    shapes = input_shapes(network, names, (2, 3, 64, 96))
    assert shapes == {
        "features.0.0": (2, 3, 64, 96),
        "features.18.0": (2, network.get_submodule("features.18.0").in_channels, 2, 3),
        "classifier.1": (2, 1280),
    }
    assert network.training
    assert next(network.parameters()).device == torch.device("cpu")
