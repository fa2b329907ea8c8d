"""Sharing what sub-networks have in common changes no accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pocketune.data import ImageDataset, Loader, load_splits
from pocketune.extractor import measuring
from pocketune.extractor.measuring import Measurer, keys, ordered
from pocketune.networks import normalize
from pocketune.supernet import SubnetConfig, Supernet
from pocketune.weights import estimate_batch_norm

from ..device.softmax_engine import write_photos
from .small import supernet

MODULES = {"module_groups": (2,), "module_kernels": (3,)}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ImageDataset:
    return load_splits(write_photos(tmp_path_factory.mktemp("data") / "photos", each=6)).train


@pytest.fixture(scope="module", params=["batch", "group"])
def made(request: pytest.FixtureRequest) -> Supernet:
    standardized = request.param == "group"
    return supernet(sizes=(32, 48), norm=request.param, standardized=standardized, **MODULES)


@pytest.fixture(scope="module")
def configs(made: Supernet) -> list[SubnetConfig]:
    rng = np.random.default_rng(0)
    return [made.space.canonical(made.sample(rng)) for _ in range(5)]


def plainly(made: Supernet, photos: ImageDataset, config: SubnetConfig) -> tuple[float, float]:
    """A sub-network measured by itself: statistics first, then the photos."""
    network = made.subnet(config).eval()
    (batch,) = Loader(photos, size=config.size, batch=64, train=False).epoch(0)
    images = normalize(network, batch.images)
    estimate_batch_norm(network, [images])
    metric = photos.labeled.metric()
    with torch.no_grad():
        metric.update(network(images).numpy(), batch.labels)
    return metric.score.value, metric.score.loss


def test_each_is_measured_as_if_it_were_alone(
    made: Supernet, photos: ImageDataset, configs: list[SubnetConfig]
) -> None:
    order = ordered(made.space, configs)
    measurer = Measurer(made, photos, photos)
    for pair in measurer.measure(order):
        accuracy, loss = plainly(made, photos, pair.config)
        assert (pair.accuracy, pair.loss) == (accuracy, pytest.approx(loss, rel=1e-4))
    assert measurer.shared[0] > 2 * 2, "at least stem and first block of each size"


def test_photos_pass_in_chunks(
    made: Supernet,
    photos: ImageDataset,
    configs: list[SubnetConfig],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = list(Measurer(made, photos, photos).measure(configs))
    monkeypatch.setattr(measuring, "CHUNK", 4)  # of 15 photos
    measurer = Measurer(made, photos, photos)
    for pair, one in zip(measurer.measure(configs), whole, strict=True):
        assert (pair.config, pair.accuracy) == (one.config, one.accuracy)
        assert pair.loss == pytest.approx(one.loss, rel=1e-4)


def test_a_part_of_many_photos_is_measured_on(
    made: Supernet,
    photos: ImageDataset,
    configs: list[SubnetConfig],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (few,) = Measurer(made, photos, photos.thinned(6)).measure(configs[:1])
    monkeypatch.setattr(measuring, "HELD", 6)
    assert list(Measurer(made, photos, photos).measure(configs[:1])) == [few]


def test_pixels_of_one_size_are_kept(
    made: Supernet, photos: ImageDataset, configs: list[SubnetConfig]
) -> None:
    measurer = Measurer(made, photos, photos)
    for pair in measurer.measure(configs):
        kept, size = measurer._photos, pair.config.size
        assert kept is not None
        assert kept.held.shape == kept.statistics.shape == (len(photos), size, size, 3)
        assert kept.held.dtype == kept.statistics.dtype == np.uint8


def test_the_order_changes_no_bit(
    made: Supernet, photos: ImageDataset, configs: list[SubnetConfig]
) -> None:
    measured = [
        {pair.config: pair for pair in Measurer(made, photos, photos).measure(some)}
        for some in (ordered(made.space, configs), configs[::-1])
    ]
    assert measured[0] == measured[1]


def test_neighbors_share_the_most(made: Supernet, configs: list[SubnetConfig]) -> None:
    order = ordered(made.space, configs)
    assert sorted(order, key=repr) == sorted(configs, key=repr)
    sizes = [config.size for config in order]
    assert sizes == sorted(sizes)
    every = [keys(made.space, config) for config in order]
    assert all(len(each) == sum(c.depths) + 4 for each, c in zip(every, order, strict=True))


def test_measuring_changes_no_value_of_the_supernet(
    made: Supernet, photos: ImageDataset, configs: list[SubnetConfig]
) -> None:
    before = {name: value.clone() for name, value in made.state_dict().items()}
    list(Measurer(made, photos, photos).measure(configs[:1]))
    assert all(torch.equal(before[name], value) for name, value in made.state_dict().items())
