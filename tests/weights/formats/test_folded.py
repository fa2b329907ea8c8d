"""Folded weights, made here out of networks of our own."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from pocketune.cli.errors import message_of
from pocketune.errors import PocketuneError
from pocketune.networks import Normalization, about, anatomy
from pocketune.weights import create_network
from pocketune.weights.formats.folded import ROLES, is_folded

FACTS = {
    "input": {"range": "x = pixel/127.5 - 1  (i.e. mean 0.5, std 0.5 on [0,1])"},
    "stages": [{"kind": "conv", "layers": [{"name": "stem", "padding": "symmetric"}]}],
}
OPTIONS = {"name": "mcunet_5fps", "classes": 6}


@pytest.fixture(scope="module")
def network():
    """With norms that do something."""
    torch.manual_seed(3)
    network = create_network(**OPTIONS)
    for norm in (module for module in network.modules() if isinstance(module, nn.BatchNorm2d)):
        nn.init.normal_(norm.weight, 1, 0.1)
        nn.init.normal_(norm.bias, 0, 0.1)
        nn.init.normal_(norm.running_mean, 0, 0.1)
        nn.init.uniform_(norm.running_var, 0.5, 2)
    return network.eval()


def names(body):
    yield "stem", body.stem[0]
    for number, block in enumerate(body.blocks):
        for layer in block.layers:
            yield f"blocks.{number}.{ROLES[layer.role]}", layer


@pytest.fixture
def state(network):
    return fold(network)


def fold(network):
    """Every norm folded into the convolution before it, named as in the public files."""
    folded = {}
    for name, layer in names(anatomy(network)):
        conv, norm = network.get_submodule(layer.conv), network.get_submodule(layer.norm)
        gain = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        folded[f"{name}.weight"] = conv.weight * gain[:, None, None, None]
        folded[f"{name}.bias"] = norm.bias - norm.running_mean * gain
    output = network.classifier[-1]
    folded["classifier.weight"] = output.weight[:, :, None, None]
    folded["classifier.bias"] = output.bias
    return {name: tensor.detach().contiguous() for name, tensor in folded.items()}


@pytest.fixture
def file(state, tmp_path):
    path = tmp_path / "tiny.float32.safetensors"
    save_file(state, path)
    (tmp_path / "tiny.arch.json").write_text(json.dumps(FACTS))
    return path


def test_recognized(state, network):
    assert is_folded(state)
    assert not is_folded(network.state_dict())
    assert not is_folded({"stem.weight": torch.ones(1), "classifier.weight": torch.ones(1)})


def test_same_function(file, network):
    loaded = create_network(**OPTIONS, weights=file).eval()
    images = torch.randn(2, 3, 48, 48)
    torch.testing.assert_close(loaded(images), network(images))
    assert about(loaded).normalization == Normalization.HALF


def test_norms_are_the_identity_plus_a_shift(file, state):
    norm = create_network(**OPTIONS, weights=file).features[0][1]
    assert torch.equal(norm.weight, torch.ones(16))
    assert torch.equal(norm.running_mean, torch.zeros(16))
    torch.testing.assert_close(norm.running_var + norm.eps, torch.ones(16))
    assert torch.equal(norm.bias, state["stem.bias"])


def test_other_classes(file):
    loaded = create_network("mcunet_5fps", classes=2, weights=file)
    assert loaded.classifier[0].weight.shape == (2, 160)
    assert not loaded.classifier[0].bias.any()


def test_normalization_has_to_come_from_somewhere(file):
    file.with_name("tiny.arch.json").unlink()
    with pytest.raises(PocketuneError, match=r"put the tiny\.arch\.json .*; or give norm") as error:
        create_network(**OPTIONS, weights=file)
    assert message_of(error.value).endswith(
        "or give --normalization to kit build or train, such as half"
    )
    given = Normalization((0, 0, 0), (1, 1, 1))
    loaded = create_network(**OPTIONS, weights=file, normalization=given)
    assert about(loaded).normalization == given


def test_damaged_description(file):
    file.with_name("tiny.arch.json").write_text("{")
    with pytest.raises(PocketuneError, match=r"tiny\.arch\.json is damaged"):
        create_network(**OPTIONS, weights=file)


def test_padding_has_to_be_the_weights(file):
    with pytest.raises(
        PocketuneError, match="trained with padding='symmetric'; create the network with it"
    ):
        create_network(**OPTIONS, padding="same", weights=file)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "mobilenet_v2", "width": 0.35}, r"it lacks blocks\.14\.expand"),
        ({"name": "mobilenet_v2", "width": 1.0}, r"it lacks blocks\.14\.expand"),
        ({"name": "resnet18"}, "which this network does not support"),
        ({"name": "mobilenet_v3_small"}, "which this network does not support"),
    ],
)
def test_another_network(file, options, message):
    with pytest.raises(PocketuneError, match=message):
        create_network(**options, weights=file)


def test_another_shape(state, tmp_path):
    state["blocks.3.dw.weight"] = torch.zeros(48, 1, 5, 5)
    save_file(state, tmp_path / "odd.safetensors")
    with pytest.raises(PocketuneError, match=r"features\.4\.conv\.1\.0\.weight has shape"):
        create_network(
            **OPTIONS, weights=tmp_path / "odd.safetensors", normalization=Normalization.HALF
        )


def test_the_file_says_whether_there_is_feature_fusion(tmp_path):
    options = {"name": "mobilenet_v2", "width": 0.1, "classes": 3}
    save_file(fold(create_network(**options, feature_fusion=False)), tmp_path / "less.safetensors")
    options |= {"weights": tmp_path / "less.safetensors", "normalization": Normalization.HALF}
    assert anatomy(create_network(**options)).feature_fusion == ()
    with pytest.raises(PocketuneError, match="it lacks head"):
        create_network(**options, feature_fusion=True)


def test_what_is_left_over(state, tmp_path):
    save_file(
        {**state, "head.weight": torch.ones(1), "head.bias": torch.ones(1)},
        tmp_path / "more.safetensors",
    )
    with pytest.raises(PocketuneError, match="has no layer head"):
        create_network(
            **OPTIONS, weights=tmp_path / "more.safetensors", normalization=Normalization.HALF
        )
