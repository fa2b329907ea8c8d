"""Files of weights find their networks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pocketune.errors import PocketuneError
from pocketune.proposals.choice import drafts_in
from pocketune.proposals.weights import find_weights, match_weights, title_of
from pocketune.weights import create_network, save_network
from pocketune.weights.hub import WEIGHTS


def test_a_saved_network_says_what_it_is(tmp_path: Path) -> None:
    network = create_network("mobilenet_v2", width=0.35, classes=5)
    save_network(network, tmp_path / "mine.safetensors")
    config = match_weights(tmp_path / "mine.safetensors").config
    assert (config.name, config.width, config.classes) == ("mobilenet_v2", 0.35, 5)


def test_a_plain_state_dict_is_known_by_its_shapes(tmp_path: Path) -> None:
    network = create_network("proxylessnas_mobile", width=0.3)
    save_file(network.state_dict(), tmp_path / "plain.safetensors")
    torch.save(create_network("resnet18", width=0.25).state_dict(), tmp_path / "small.pth")
    found, strange = find_weights(tmp_path)
    assert [(one.config.name, one.config.width) for one in found] == [
        ("proxylessnas_mobile", 0.3),
        ("resnet18", 0.25),
    ]
    assert strange == []


def test_downloads_from_the_hub_are_known_by_their_repositories(tmp_path: Path) -> None:
    for repository in ("lite0.one", "lite0.two"):
        folder = tmp_path / "hf-hub" / "timm" / repository
        folder.mkdir(parents=True)
        save_file(create_network("mobilenet_v2", width=0.35).state_dict(), folder / WEIGHTS)
    found, strange = find_weights(tmp_path)
    assert [title_of(one.path) for one in found] == ["lite0.one", "lite0.two"]
    assert strange == []


def test_names_may_have_dots(tmp_path: Path) -> None:
    values = create_network("resnet18", width=0.25).state_dict()
    for name in ("mine-v1.0", "mine-v1.1"):
        save_file(values, tmp_path / f"{name}.safetensors")
    torch.save(values, tmp_path / "mine-v1.1.pth")
    found, strange = find_weights(tmp_path)
    assert [one.path.name for one in found] == ["mine-v1.0.safetensors", "mine-v1.1.safetensors"]
    assert strange == [("mine-v1.1.pth", "mine-v1.1.safetensors has the same network")]


def test_files_that_fit_no_network_are_named(tmp_path: Path) -> None:
    save_file({"conv.weight": torch.zeros(3, 3, 3, 3)}, tmp_path / "other.safetensors")
    (tmp_path / "broken.pth").write_bytes(b"nothing")
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "torn.npz").write_bytes(b"PK\x03\x04 no archive")
    (tmp_path / "notes.txt").write_text("hello")
    found, strange = find_weights(tmp_path)
    assert found == []
    assert [name for name, _ in strange] == [
        "other.safetensors",
        "broken.pth",
        "empty.npz",
        "torn.npz",
    ]
    assert strange[0][1] == "its tensors fit no network that Pocketune knows"


def test_a_reason_does_not_repeat_the_name_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "broken.pth").write_bytes(b"nothing")
    ((name, reason),) = find_weights(tmp_path)[1]
    assert name == "broken.pth"
    assert reason.startswith("it cannot be read as a state dict")


def test_folded_weights_are_not_given_the_words_of_python(
    shared_data: Path, tmp_path: Path
) -> None:
    name = "mbv2-w0.35.float32.safetensors"
    shutil.copy(shared_data / "weights" / name, tmp_path)
    with pytest.raises(PocketuneError) as error:
        drafts_in(tmp_path, None, None)
    assert str(error.value) == (
        f"no weights of a network are in {tmp_path} ({name}: it does not say how images are "
        "normalized: put the mbv2-w0.35.arch.json that it was published with into its folder)"
    )


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match=r"folder of weights .* cannot be read: .*; give"):
        find_weights(tmp_path / "none")


def test_published_weights(shared_data: Path) -> None:
    found, _ = find_weights(shared_data / "weights")
    configs = {one.path.name: one.config for one in found}
    assert {(file, each.name, each.width, each.padding) for file, each in configs.items()} == {
        ("mbv2-w0.35.float32.safetensors", "mobilenet_v2", 0.35, "symmetric"),
        ("mbv2-w1.0.float32.safetensors", "mobilenet_v2", 1.0, "same"),
        ("mcunet-5fps.float32.safetensors", "mcunet_5fps", 1.0, "symmetric"),
        ("proxyless-w0.3.float32.safetensors", "proxylessnas_mobile", 0.3, "symmetric"),
    }
    int8 = match_weights(shared_data / "weights" / "mcunet-5fps.int8.npz")
    assert (int8.config.name, int8.frozen_bits) == ("mcunet_5fps", 8)
