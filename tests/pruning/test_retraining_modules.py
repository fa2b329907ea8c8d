"""Lite residual modules are pretrained by retraining the network that has them."""

import json

import pytest
import torch

from pocketune.errors import PocketuneError
from pocketune.methods import LastLayer, RepNet, TinyTL, adapt
from pocketune.networks import NetworkConfig, about
from pocketune.pruning import Recipe, retrain
from pocketune.weights import create_network

from .examples import network


def test_lite_residual_modules_are_pretrained_with_the_network(photos, tmp_path):
    """What is written is what `TinyTL` starts from."""
    pytest.importorskip("lightning_fabric")
    plain, out = network(), tmp_path / "out.safetensors"
    complete = TinyTL().insert_modules(plain)
    recipe = Recipe(epochs=1, lr=0.01, batch=4, size=32)
    retrain(complete, photos, out, recipe=recipe, accelerator="cpu")
    again = create_network("mobilenet_v2", width=0.1, classes=2, weights=out)
    assert about(again).config == about(complete).config
    # a pruned network may have them, too
    assert about(again).config.hidden == about(plain).config.hidden
    adapted = adapt(again, TinyTL())
    trained = {name: p for name, p in adapted.named_parameters() if ".branch." in name}
    assert len(trained) == 6 * 16
    for name, parameter in trained.items():
        assert torch.equal(parameter, complete.get_parameter(name))
    scales = [p for name, p in trained.items() if name.endswith("norm2.weight")]
    assert all(scale.abs().max() > 0 for scale in scales)  # they began at 0
    manifest = json.loads(json.dumps(about(adapted).config.to_dict()))  # where a kit keeps it
    assert NetworkConfig.from_dict(manifest) == about(again).config


def test_other_methods_keep_the_modules_of_a_network():
    complete = TinyTL().insert_modules(network()).eval()
    for name, parameter in complete.named_parameters():
        if name.endswith("branch.norm2.weight"):
            torch.nn.init.normal_(parameter)
    images = torch.randn(2, 3, 32, 32)
    adapted = adapt(complete, LastLayer()).eval()
    torch.testing.assert_close(adapted(images), complete(images))
    with pytest.raises(PocketuneError, match="has a side branch already"):
        adapt(complete, RepNet())
    with pytest.raises(PocketuneError, match="has lite residual modules already"):
        TinyTL().insert_modules(complete)
    with pytest.raises(PocketuneError, match="Linear has no config"):
        TinyTL().insert_modules(torch.nn.Linear(1, 1))
