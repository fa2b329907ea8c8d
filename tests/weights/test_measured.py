"""Photos for whatever looks at what photos make of a network."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from pocketune.data import Loader, load_splits
from pocketune.errors import PocketuneError
from pocketune.networks import normalize
from pocketune.weights import create_network, sample_batches
from pocketune.weights.measured import create_measured

from .formats.test_folded import FACTS, fold

NETWORK = create_network("mobilenet_v2", width=0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for part, count in (("train", 10), ("val", 3)):
        for label in ("dark", "light"):
            (root / part / label).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (32, 32, 3), np.uint8)
                Image.fromarray(pixels).save(root / part / label / f"{number}.png")
    return root


def test_are_what_the_network_takes(folder):
    train = load_splits(folder).train
    loader = Loader(train, size=24, batch=8, train=False)
    expected = [normalize(NETWORK, batch.images) for batch in loader.epoch(0)]
    found = list(sample_batches(NETWORK, folder, size=24))
    assert [len(batch) for batch in found] == [8, 8, 4]
    assert all(map(torch.equal, found, expected))


def test_a_dataset_is_taken_as_it_is(folder):
    val = load_splits(folder).val
    (batch,) = sample_batches(NETWORK, val, size=24)
    assert batch.shape == (6, 3, 24, 24)


@pytest.mark.parametrize(("count", "taken"), [(1, 1), (5, 5), (7, 10), (20, 20), (99, 20)])
def test_are_spread_over_all_photos(folder, count, taken):
    everything = torch.cat(list(sample_batches(NETWORK, folder, size=24)))
    found = torch.cat(list(sample_batches(NETWORK, folder, size=24, count=count, batch=3)))
    assert torch.equal(found, everything[:: 20 // taken])


@pytest.mark.parametrize("name", ["size", "count", "batch"])
def test_a_number_that_is_none_is_refused_at_once(folder, name):
    with pytest.raises(PocketuneError, match=f"{name}=0 must be a whole number of at least 1"):
        sample_batches(NETWORK, folder, **{name: 0})


def test_photos_that_are_not_there(tmp_path):
    with pytest.raises(PocketuneError, match="nowhere"):
        sample_batches(NETWORK, tmp_path / "nowhere")


def test_folded_norms_are_measured_before_they_become_group_norms(folder, tmp_path):
    """Their scales and shifts are then those that the photos give."""
    path = tmp_path / "tiny.float32.safetensors"
    save_file(fold(create_network("mobilenet_v2", width=0.1, feature_fusion=False)), path)
    (tmp_path / "tiny.arch.json").write_text(json.dumps(FACTS))
    options = {"weights": str(path), "width": 0.1, "padding": "symmetric", "size": 32}
    photos = load_splits(folder).train
    measured = create_measured("mobilenet_v2", **options, photos=photos)
    group = {"norm": "group", "standardized": True}
    network = create_measured("mobilenet_v2", **options, photos=photos, classes=3, **group)
    for name, parameter in network.named_parameters():
        if not name.startswith("classifier"):
            assert torch.equal(parameter, measured.get_parameter(name)), name
    assert network.classifier[1].out_features == 3
    assert not hasattr(network.features[0][1], "running_mean")
    with pytest.raises(PocketuneError, match="name photos to measure them on"):
        create_measured("mobilenet_v2", **options, photos=None, **group)
