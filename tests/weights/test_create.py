"""What holds for every registered network."""

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.networks import NetworkConfig, Normalization, about, register_network
from pocketune.weights import create_network

from ..networks.names import EVERY_METHOD

NAMES = EVERY_METHOD
ANY_WIDTH = [name for name in NAMES if name != "mcunet_5fps"]
ANY_PADDING = [name for name in NAMES if not name.startswith("resnet")]
WITH_FUSION = [name for name in ANY_PADDING if name != "mcunet_5fps"]

STATE_SIZES = {  # tensors in the state dict, and some of their names, of torchvision's networks
    "mobilenet_v2": (314, ["features.1.conv.0.0.weight", "features.17.conv.3.bias"]),
    "mobilenet_v3_small": (244, ["features.1.block.1.fc1.weight", "features.12.1.running_var"]),
    "mobilenet_v3_large": (312, ["features.4.block.2.fc2.bias", "classifier.3.weight"]),
    "resnet18": (122, ["layer2.0.downsample.0.weight", "bn1.running_mean"]),
    "resnet34": (218, ["layer3.5.conv2.weight", "fc.bias"]),
    "resnet50": (320, ["layer1.0.downsample.1.weight", "layer4.2.bn3.num_batches_tracked"]),
    "resnet101": (626, ["layer3.22.conv3.weight", "layer4.2.bn3.num_batches_tracked"]),
}


with torch.device("meta"):
    META = create_network("resnet18")
WHOLE = {name: torch.zeros(t.shape, dtype=torch.int64) for name, t in META.state_dict().items()}


def narrow(name):
    return {} if name == "mcunet_5fps" else {"width": 0.25}


def test_list():
    assert NAMES == [
        "mcunet_5fps",
        "mobilenet_v2",
        "mobilenet_v3_large",
        "mobilenet_v3_small",
        "ofa_mobilenet_v2",
        "proxylessnas_mobile",
        "resnet101",
        "resnet18",
        "resnet18_v1c",
        "resnet34",
        "resnet50",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_logits_and_gradients(name):
    network = create_network(name, classes=5, **narrow(name)).train()
    logits = network(torch.randn(2, 3, 32, 32))
    assert logits.shape == (2, 5)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_config_builds_the_same_again(name):
    network = create_network(name, classes=7, **narrow(name))
    described = json.loads(json.dumps(about(network).config.to_dict()))
    config = NetworkConfig.from_dict(described)
    assert config == about(network).config == NetworkConfig(name, classes=7, **narrow(name))
    again = create_network(**config.to_dict())
    again.load_state_dict(network.state_dict())
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(network.eval()(images), again.eval()(images))


@pytest.mark.parametrize("name", NAMES)
def test_attributes_survive_a_copy(name):
    made = create_network(name, classes=3, normalization=Normalization.HALF, **narrow(name))
    network = copy.deepcopy(made)
    assert about(network).config.name == name
    assert about(network).normalization == Normalization.HALF


@pytest.mark.parametrize("name", NAMES)
def test_classifier_starts_within_fan_in(name):
    network = create_network(name, classes=50, **narrow(name))
    *_, output = (module for module in network.modules() if type(module) is nn.Linear)
    bound = output.in_features**-0.5
    assert output.weight.abs().max() <= bound
    assert output.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
    assert not output.bias.any()


@pytest.mark.parametrize("name", STATE_SIZES)
def test_torchvision_names(name):
    with torch.device("meta"):
        state = create_network(name).state_dict()
    size, some = STATE_SIZES[name]
    assert len(state) == size
    assert set(some) <= state.keys()


@pytest.mark.parametrize("name", ANY_WIDTH)
def test_width(name):
    with torch.device("meta"):
        full = create_network(name, classes=4)
    half = create_network(name, classes=4, width=0.5)
    first, second = (next(network.parameters()).shape[0] for network in (full, half))
    assert second == first // 2
    assert half(torch.randn(2, 3, 32, 32)).shape == (2, 4)


@pytest.mark.parametrize("name", WITH_FUSION)
def test_without_feature_fusion(name):
    options = narrow(name)
    full, less = (
        create_network(name, feature_fusion=fusion, **options) for fusion in (None, False)
    )
    assert len(less.features) == len(full.features) - 1
    assert less.eval()(torch.randn(1, 3, 32, 32)).shape == (1, 1000)


@pytest.mark.parametrize("name", ANY_PADDING)
def test_same_padding_keeps_names_and_sizes(name):
    options = narrow(name)
    ours, same = (create_network(name, padding=how, **options) for how in ("symmetric", "same"))
    assert {k: v.shape for k, v in ours.state_dict().items()} == {
        k: v.shape for k, v in same.state_dict().items()
    }
    images = torch.randn(1, 3, 65, 65)
    assert ours.features.eval()(images).shape == same.features.eval()(images).shape


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "alexnet"}, "no network 'alexnet'; choose from convnext_atto"),
        ({"name": "mcunet_5fps", "width": 0.5}, "width 1 only"),
        ({"name": "resnet18", "padding": "same"}, "'symmetric' only"),
        ({"name": "resnet18", "padding": "valid"}, "padding='valid' must be one of"),
        ({"name": "resnet18", "classes": 0}, "classes=0 must be a whole number of at least 1"),
        ({"name": "resnet18", "classes": 2.5}, "classes=2.5 must be a whole number"),
        ({"name": "resnet18", "classes": ["a", "b"]}, "must be a whole number"),
        ({"name": "resnet18", "width": "0.5"}, "width='0.5' must be a number above 0"),
        ({"name": "resnet18", "weights": True}, "weights=True must be 'imagenet', a file"),
        ({"name": "resnet18", "weights": np.zeros(3)}, "must be 'imagenet', a file"),
        ({"name": "resnet18", "weights": META}, "given model has no values: conv1 is on the meta"),
        ({"name": "resnet18", "weights": META.state_dict()}, "no values: conv1.weight is on the"),
        ({"name": "resnet18", "weights": WHOLE}, "conv1.weight has whole numbers, torch.int64"),
        ({"name": "resnet18", "feature_fusion": "no"}, "must be True or False"),
        ({"name": ["resnet18"]}, "name is of type list; give a str"),
        ({"name": "resnet18", "normalization": ((0.5,), (0.5,))}, r"is not a Normalization; give"),
        ({"name": "resnet18", "width": 0}, "must be a number above 0"),
        ({"name": "resnet18", "width": float("nan")}, "must be a number above 0"),
    ],
)
def test_options_that_do_not_exist(options, message):
    with pytest.raises(PocketuneError, match=message):
        create_network(**options)


@pytest.mark.parametrize(
    ("values", "message"),
    [({"classes": 3}, "no name"), ({"name": "resnet18", "shade": 3}, "unknown shade")],
)
def test_description_that_is_not_understood(values, message):
    with pytest.raises(PocketuneError, match=message):
        NetworkConfig.from_dict(values)


def test_names_are_taken_once():
    with pytest.raises(ValueError, match="two networks are called resnet18"):
        register_network("resnet18")(lambda config: nn.Identity())
