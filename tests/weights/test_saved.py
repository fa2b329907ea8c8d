"""Networks in files that tell how to build them."""

import json
import os

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from pocketune.eager import calibrate
from pocketune.errors import PocketuneError
from pocketune.methods import (
    ActivationPruning,
    BiasAndLast,
    FullFineTune,
    GradientFilter,
    LastLayer,
    MobileTL,
    RepNet,
    TopBlocks,
    adapt,
)
from pocketune.networks import NetworkConfig, Normalization, about
from pocketune.weights import create_network, load_network, save_network
from pocketune.weights.describe import describe_network
from pocketune.weights.saved import HEADER, build, read_description

HIDDEN = {"features.1": 8, "features.2": 10, "features.4": 30}


@pytest.fixture
def network() -> nn.Module:
    return create_network(
        "mobilenet_v2", width=0.35, classes=4, hidden=HIDDEN, normalization=Normalization.HALF
    ).eval()


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")
def test_a_saved_network_can_be_read_by_whom_the_umask_allows(network, tmp_path):
    path = tmp_path / "network.safetensors"
    (tmp_path / "ordinary").touch()
    save_network(network, path)
    assert path.stat().st_mode == (tmp_path / "ordinary").stat().st_mode
    assert {entry.name for entry in tmp_path.iterdir()} == {"network.safetensors", "ordinary"}


def test_the_folder_of_the_file_is_made(network, tmp_path):
    path = tmp_path / "new" / "folder" / "network.safetensors"
    save_network(network, path)
    assert load_network(path).training


def test_file_builds_the_pruned_network_again(network, tmp_path):
    path = tmp_path / "pruned.safetensors"
    save_network(network, path)
    again = create_network("mobilenet_v2", width=0.35, classes=4, weights=path).eval()
    assert about(again).config == about(network).config
    assert about(again).normalization == Normalization.HALF
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(again(images), network(images))
    other = create_network("mobilenet_v2", width=0.35, classes=9, weights=path)
    assert about(other).config.hidden == HIDDEN
    assert other.classifier[1].out_features == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "mobilenet_v2", "width": 1.0}, r"network with width=0.35, not 1.0"),
        ({"name": "mcunet_5fps"}, "network with name='mobilenet_v2', not 'mcunet_5fps'"),
        ({"name": "mobilenet_v2", "width": 0.35, "padding": "same"}, "padding='symmetric'"),
        ({"name": "mobilenet_v2", "width": 0.35, "hidden": {"features.1": 7}}, "has shape"),
    ],
)
def test_another_network_is_refused(network, tmp_path, options, message):
    path = tmp_path / "pruned.safetensors"
    save_network(network, path)
    with pytest.raises(PocketuneError, match=message):
        create_network(**options, classes=4, weights=path)


def test_width_and_padding_follow_the_weights(tmp_path):
    path = tmp_path / "narrow.safetensors"
    narrow = create_network("mobilenet_v2", width=0.1, padding="same", classes=3)
    save_network(narrow, path)
    for weights in (path, narrow):
        config = about(create_network("mobilenet_v2", weights=weights, classes=5)).config
        assert (config.width, config.padding, config.classes) == (0.1, "same", 5)
    dense = create_network("lraspp", backbone="mobilenet_v2", weights=path, classes=2)
    assert (about(dense).config.width, about(dense).config.padding) == (0.1, "same")
    assert describe_network("mobilenet_v2", weights=path).width == 0.1


def test_the_file_says_whether_there_is_feature_fusion(tmp_path):
    file = tmp_path / "less.safetensors"
    options = {"name": "mobilenet_v2", "width": 0.1, "classes": 3}
    save_network(create_network(**options, feature_fusion=False), file)
    assert not about(create_network(**options, weights=file)).config.feature_fusion


def test_fresh_values_suit_the_narrow_layers():
    network = build(NetworkConfig("mobilenet_v2", hidden={"features.2": 20}))
    depthwise = network.features[2].conv[1][0]
    assert depthwise.weight.shape == (20, 1, 3, 3)
    assert network.features[2].conv[1][1].num_features == 20


@pytest.mark.parametrize(
    ("hidden", "message"),
    [
        ({"features.2": 97}, "has 96 hidden channels and cannot be left with 97"),
        ({"features.2": 1}, "cannot be left with 1; give 2 to 96"),
        ({"features.77": 9}, "there is no block 'features.77'"),
        ({"features.2": "ten"}, "must give a whole number for each block"),
        (["features.2"], "must give a whole number for each block"),
    ],
)
def test_hidden_channels_that_cannot_be(hidden, message):
    with pytest.raises(PocketuneError, match=message):
        create_network("mobilenet_v2", hidden=hidden)


def test_whole_networks_do_not_mention_hidden_channels():
    assert "hidden" not in NetworkConfig("mobilenet_v2").to_dict()


def test_files_that_cannot_be_written(network, tmp_path):
    with pytest.raises(PocketuneError, match=r"must end in \.safetensors"):
        save_network(network, tmp_path / "pruned.pth")
    (tmp_path / "file").touch()
    with pytest.raises(PocketuneError, match="cannot be written"):
        save_network(network, tmp_path / "file" / "pruned.safetensors")
    with pytest.raises(PocketuneError, match="Linear has no config"):
        save_network(nn.Linear(1, 1), tmp_path / "pruned.safetensors")


def test_classes_are_those_of_the_output_layer(network, tmp_path):
    network.classifier[1] = nn.Linear(network.classifier[1].in_features, 7)
    save_network(network, tmp_path / "seven.safetensors")
    again = load_network(tmp_path / "seven.safetensors").eval()
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(again(images), network(images))


def trained(method, **options):
    """A network adapted, and some steps of PyTorch."""
    network = create_network("mobilenet_v2", width=0.1, classes=3, normalization=Normalization.HALF)
    adapted = adapt(network, method, **options).train()
    optimizer = torch.optim.SGD([p for p in adapted.parameters() if p.requires_grad], 0.1)
    images, labels = torch.randn(4, 3, 32, 32), torch.arange(4) % 3
    for _ in range(3):
        optimizer.zero_grad()
        functional.cross_entropy(adapted(images), labels).backward()
        optimizer.step()
    return adapted.eval()


METHODS = [MobileTL(), LastLayer(), FullFineTune(), GradientFilter(layers=3), BiasAndLast()]


@pytest.mark.parametrize(
    ("method", "frozen_bits"),
    [(method, (8, 32)[place % 2]) for place, method in enumerate(METHODS)],
    ids=str,
)
def test_what_pytorch_has_trained_is_read_back(method, frozen_bits, tmp_path):
    adapted = trained(method, frozen_bits=frozen_bits)
    images = torch.randn(2, 3, 32, 32)
    expected = adapted(images)
    save_network(adapted, tmp_path / "trained.safetensors")
    options = {"name": "mobilenet_v2", "width": 0.1, "classes": 3}
    for network in (
        load_network(tmp_path / "trained.safetensors"),
        create_network(**options, weights=tmp_path / "trained.safetensors"),
        create_network(**options, weights=adapted.state_dict()),
    ):
        torch.testing.assert_close(network.eval()(images), expected, atol=1e-5, rtol=1e-4)
        assert not hasattr(network, "method")
        adapt(network, MobileTL())
    assert about(load_network(tmp_path / "trained.safetensors")).normalization == Normalization.HALF


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(PocketuneError, match=r"no file .*nothing.safetensors; give a file that"):
        load_network(tmp_path / "nothing.safetensors")


def test_what_a_method_has_added_is_not_saved(tmp_path):
    adapted = trained(RepNet())
    with pytest.raises(PocketuneError, match=r"RepNet.* has changed or added .*state_dict\(\)"):
        save_network(adapted, tmp_path / "trained.safetensors")
    again = trained(RepNet())
    again.load_state_dict(adapted.state_dict())
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(again(images), adapted(images))


def test_another_activation_is_not_saved(tmp_path):
    network = create_network("mobilenet_v3_small", width=0.35, classes=3)
    kept = adapt(network, MobileTL(blocks=2))
    save_network(kept, tmp_path / "kept.safetensors")
    changed = adapt(network, MobileTL(blocks=2, hard_swish=False))
    with pytest.raises(PocketuneError, match=r"hard_swish=False.* has changed or added features"):
        save_network(changed, tmp_path / "changed.safetensors")


@pytest.mark.parametrize("layers", [TopBlocks(1), FullFineTune()], ids=str)
def test_dropped_activations_are_not_saved(layers, network, tmp_path):
    """The file could not say that the network predicts with zeros."""
    path = tmp_path / "network.safetensors"
    with pytest.raises(
        PocketuneError, match=r"ActivationPruning\(\) has changed or added features"
    ):
        save_network(adapt(network, layers + ActivationPruning()), path)
    exact = adapt(network, layers + ActivationPruning(forward=False)).eval()
    save_network(exact, path)
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(load_network(path).eval()(images), exact(images))


def test_a_calibrated_network_is_not_saved(tmp_path):
    adapted = adapt(create_network("mobilenet_v2", width=0.1, classes=3), MobileTL())
    integers = calibrate(adapted, torch.randn(2, 2, 3, 32, 32))
    with pytest.raises(PocketuneError, match="calibrated to compute with integers"):
        save_network(integers, tmp_path / "trained.safetensors")


def test_what_could_not_be_read_back_is_not_written(network, tmp_path):
    network.features[3].extra = nn.LayerNorm(3)
    with pytest.raises(PocketuneError, match=r"features\.3\.extra\.weight does not fit its config"):
        save_network(network, tmp_path / "changed.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "{}",
        json.dumps({"config": {"name": "x"}, "normalization": {"mean": 3, "std": [1]}}),
    ],
)
def test_descriptions_that_are_not_understood(tmp_path, text):
    path = tmp_path / "network.safetensors"
    save_file({"a": torch.zeros(1)}, path, metadata={HEADER: text})
    with pytest.raises(PocketuneError, match="is not understood"):
        read_description(path)


def test_other_files_have_no_description(tmp_path):
    path = tmp_path / "plain.safetensors"
    save_file({"a": torch.zeros(1)}, path)
    assert read_description(path) is None
    assert read_description(tmp_path / "missing.safetensors") is None
    path.write_bytes(b"torn")
    with pytest.raises(PocketuneError, match="is damaged"):
        read_description(path)
