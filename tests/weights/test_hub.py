"""Weights from the hub: a small one on this machine."""

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pocketune.errors import PocketuneError
from pocketune.networks import Normalization, about
from pocketune.weights import create_network
from pocketune.weights.hub import fetch
from pocketune.weights.measured import are_folded

from ..networks.tiny import tiny

NAME = "timm/convnext_atto.d2_in1k"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of files on the hub."""
    folder = tmp_path / "hub"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    yield folder
    server.shutdown()
    thread.join()
    server.server_close()


def publish(hub: Path, name: str = NAME, **facts: object) -> dict[str, torch.Tensor]:
    """Put a tiny ConvNeXt there, described as timm does."""
    folder = hub / name / "resolve" / "main"
    folder.mkdir(parents=True)
    state = tiny("convnext_atto", classes=5).state_dict()
    save_file(state, folder / "model.safetensors")
    described = {"architecture": "convnext_atto", "pretrained_cfg": facts}
    (folder / "config.json").write_text(json.dumps(described))
    return state


def test_a_repository(hub: Path) -> None:
    state = publish(hub, mean=[0.1, 0.2, 0.3], std=[0.5, 0.5, 0.5])
    network = tiny("convnext_atto", weights=f"hf-hub:{NAME}")
    assert about(network).normalization == Normalization((0.1, 0.2, 0.3), (0.5, 0.5, 0.5))
    assert torch.equal(network.stem[0].weight, state["stem.0.weight"])
    assert network.head.fc.weight.shape[0] == 3
    # a second time it is on this machine
    (hub / NAME / "resolve" / "main" / "model.safetensors").unlink()
    again = tiny("convnext_atto", weights=f"hf-hub:{NAME}", normalization=Normalization.HALF)
    assert about(again).normalization == Normalization.HALF
    assert not are_folded(f"hf-hub:{NAME}")


def test_a_description_without_a_normalization(hub: Path) -> None:
    publish(hub)
    file = fetch(f"hf-hub:{NAME}")
    assert about(tiny("convnext_atto", weights=file)).normalization == Normalization.IMAGENET
    (file.parent / "config.json").write_text('{"mean": [1], "std": [1]}')
    with pytest.raises(PocketuneError, match=r"config\.json is damaged"):
        tiny("convnext_atto", weights=file)


def test_imagenet_is_the_published_repository(hub: Path) -> None:
    with pytest.raises(PocketuneError, match=r"the hub has no config\.json of timm/convnext_atto"):
        create_network("convnext_atto", weights="imagenet")
    with pytest.raises(PocketuneError, match="of vit_tiny have width 1, depth 1"):
        tiny("vit_tiny", weights="imagenet")
    publish(hub)
    with pytest.raises(
        PocketuneError, match=r"model\.safetensors does not fit the network: it lack"
    ):
        create_network("convnext_atto", weights="imagenet")  # what is published here is tiny


def test_a_damaged_download_is_not_kept(hub: Path) -> None:
    publish(hub)
    file = hub / NAME / "resolve" / "main" / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-7])
    with pytest.raises(PocketuneError, match=f"the download of {NAME} was damaged; try again"):
        fetch(f"hf-hub:{NAME}")
    file.write_bytes(whole)
    assert fetch(f"hf-hub:{NAME}").read_bytes() == whole


def test_names_and_no_connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(PocketuneError, match="name a repository of the hub as hf-hub:OWNER/NAME"):
        fetch("hf-hub:../../x/y")
    with pytest.raises(
        PocketuneError, match=r"could not be downloaded .*connect to the internet.* bundled kit"
    ):
        fetch(f"hf-hub:{NAME}")
