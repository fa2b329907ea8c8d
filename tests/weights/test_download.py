"""Published weights are downloaded, and checked against their hash."""

import re
from urllib.error import URLError

import pytest
import torch

from pocketune.errors import PocketuneError
from pocketune.networks import list_networks
from pocketune.weights import create_network
from pocketune.weights.download import FILES
from pocketune.weights.published import PUBLISHED


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Stands for the internet: answers with what is put into `hub.answer`."""

    class Hub:
        answer = None
        asked = None

        def load(self, url, **options):
            self.asked = (url, options)
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

    hub = Hub()
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", hub.load)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    return hub


def test_imagenet(hub):
    hub.answer = create_network("mobilenet_v3_small").state_dict()
    network = create_network("mobilenet_v3_small", weights="imagenet", classes=5)
    url, options = hub.asked
    assert url == "https://download.pytorch.org/models/mobilenet_v3_small-047dcff4.pth"
    assert options == {"map_location": "cpu", "check_hash": True, "weights_only": True}
    assert torch.equal(network.features[0][0].weight, hub.answer["features.0.0.weight"])
    assert torch.equal(network.classifier[0].weight, hub.answer["classifier.0.weight"])
    assert network.classifier[3].weight.shape == (5, 1024)


@pytest.mark.parametrize("name", FILES)
def test_every_file_name_carries_its_hash(name):
    assert name in list_networks()
    assert re.fullmatch(rf"{name}(_rwightman)?-[0-9a-f]{{8}}\.pth", FILES[name])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            URLError("no route"),
            r"resnet18-.*could not be downloaded .*connect to the internet.* bundled kit",
        ),
        (TimeoutError("slow"), "could not be downloaded"),
        (RuntimeError('invalid hash value (expected "f3")'), "was damaged; try again"),
    ],
)
def test_when_it_fails(hub, error, message):
    hub.answer = error
    with pytest.raises(PocketuneError, match=message) as raised:
        create_network("resnet18", weights="imagenet")
    assert raised.value.__cause__ is (None if isinstance(error, OSError) else error)


@pytest.mark.parametrize("damage", [b"", b"nothing", b"PK\x03\x04cut"])
def test_a_damaged_file_in_the_cache_is_named(damage, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    cached = tmp_path / "checkpoints" / FILES["resnet18"]
    cached.parent.mkdir()
    cached.write_bytes(damage)
    with pytest.raises(PocketuneError, match=re.escape(f"{cached} is damaged; remove")):
        create_network("resnet18", weights="imagenet")


@pytest.mark.parametrize(
    "name",
    sorted(set(list_networks(dense=False)) - {n for n, p in PUBLISHED.items() if p.file or p.hub}),
)
def test_not_published(hub, name):
    with pytest.raises(PocketuneError, match=f"publishes ImageNet weights of {name}"):
        create_network(name, weights="imagenet")
    assert hub.asked is None


@pytest.mark.parametrize("option", [{"width": 0.5}, {"padding": "same"}, {"feature_fusion": False}])
def test_published_for_one_shape_only(hub, option):
    with pytest.raises(PocketuneError, match="width 1, depth 1, symmetric padding"):
        create_network("mobilenet_v2", weights="imagenet", **option)
    assert hub.asked is None
