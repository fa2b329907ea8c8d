"""The width of a network by the kernels in a file."""

import pytest
import torch
from safetensors.torch import save_file

from pocketune.networks import about
from pocketune.weights import create_network
from pocketune.weights.describe import describe_network
from pocketune.weights.width import width_of


@pytest.mark.parametrize("feature_fusion", [True, False])
@pytest.mark.parametrize("width", [0.35, 1.0])
def test_a_plain_file_tells_the_width(tmp_path, width, feature_fusion):
    file = tmp_path / "plain.safetensors"
    network = create_network("mobilenet_v2", width=width, feature_fusion=feature_fusion)
    save_file(network.state_dict(), file)
    assert width_of("mobilenet_v2", file) == width


def test_the_network_follows_its_file(tmp_path):
    file = tmp_path / "plain.pth"
    state = create_network("proxylessnas_mobile", width=0.3).state_dict()
    torch.save(state, file)
    network = create_network("proxylessnas_mobile", weights=file)
    assert about(network).config.width == 0.3
    assert describe_network("proxylessnas_mobile", weights=file).width == 0.3
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())


def test_a_file_of_no_usual_width_has_width_1(tmp_path):
    save_file(create_network("mobilenet_v2", width=0.4).state_dict(), tmp_path / "odd.safetensors")
    assert width_of("mobilenet_v2", tmp_path / "odd.safetensors") == 1
    save_file({"one": torch.zeros(1)}, tmp_path / "other.safetensors")
    assert width_of("resnet18", tmp_path / "other.safetensors") == 1
