"""Networks by name."""

import pytest

from pocketune.errors import PocketuneError
from pocketune.networks import NetworkConfig, list_networks, register_network
from pocketune.networks.registry import make_network


def test_names_are_sorted_and_fit_a_pattern() -> None:
    assert list_networks() == sorted(list_networks())
    assert list_networks("resnet*") == [
        "resnet101",
        "resnet18",
        "resnet18_v1c",
        "resnet34",
        "resnet50",
    ]
    assert list_networks("resnet18") == ["resnet18"]
    assert list_networks("*deeplab*", dense=True) == ["deeplabv3", "deeplabv3_torchvision"]
    assert list_networks("*deeplab*", dense=False) == []
    assert list_networks() == sorted(list_networks(dense=True) + list_networks(dense=False))
    assert list_networks("nothing*") == []


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="two networks are called resnet18"):
        register_network("resnet18")(make_network)


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        PocketuneError, match="there is no network 'resnet19'; choose from convnext_atto"
    ):
        make_network(NetworkConfig("resnet19"))


def test_an_onnx_file_is_not_taken_for_a_name() -> None:
    with pytest.raises(PocketuneError, match=r"nets/mine\.onnx is an ONNX file, .* load_onnx"):
        make_network(NetworkConfig("nets/mine.onnx"))
