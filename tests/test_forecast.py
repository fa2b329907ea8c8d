"""A draft is the manifest that the kit will have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pocketune import forecast
from pocketune.compiler import Calibration, compile
from pocketune.compiler import draft as draft_network
from pocketune.errors import PocketuneError
from pocketune.forecast import draft
from pocketune.kit.manifest import Manifest
from pocketune.methods import adapt, create_method
from pocketune.networks.config import NetworkConfig
from pocketune.tasks import Attributes, Classification, Segmentation, numbered
from pocketune.weights import create_network
from pocketune.weights.describe import describe_network

NETWORK = NetworkConfig("mobilenet_v2", classes=4, width=0.1, first_blocks=7)
STEP: dict[str, Any] = {"size": 64, "batch": 3}


def created() -> nn.Module:
    return create_network("mobilenet_v2", classes=4, width=0.1, first_blocks=7)


def drafted(method: str = "blocks", **options: Any) -> Manifest:
    return draft(NETWORK, create_method(method), cached=False, **STEP, **options)


@pytest.fixture(scope="module")
def plain() -> Manifest:
    """A draft that is not in the cache."""
    return drafted("last")


@pytest.fixture
def at_once(plain: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts take no time, and are all the same."""
    monkeypatch.setattr(forecast, "draft_network", lambda *_, **__: plain)


@pytest.mark.parametrize("method", ["blocks", "mobiletl"])
def test_the_graphs_are_those_of_the_kit(method: str, tmp_path: Path) -> None:
    adapted = adapt(created(), create_method(method))
    kit = compile(adapted, tmp_path / "kit", **STEP).manifest
    assert replace(kit, files={}) == drafted(method, calibrated=False)


@pytest.mark.parametrize("stride", [1, 4])
def test_a_kit_of_pixels_is_drafted(stride: int, tmp_path: Path) -> None:
    config = NetworkConfig(
        "deeplabv3", classes=4, width=0.1, backbone="mobilenet_v2", head_channels=8
    )
    method = create_method("blocks", blocks=0)
    task = Segmentation(numbered(4), loss_stride=stride)
    network = create_network(
        config.name, classes=4, width=0.1, backbone=config.backbone, head_channels=8
    )
    kit = compile(adapt(network, method), tmp_path / "kit", task=task, **STEP).manifest
    found = draft(config, method, task=task, calibrated=False, cached=False, **STEP)
    assert replace(kit, files={}, network={}) == replace(found, network={})
    if stride == 1:
        assert draft(config, method, calibrated=False, cached=False, **STEP) == found


def test_an_integer_frozen_part_is_drafted_without_images(tmp_path: Path) -> None:
    torch.manual_seed(0)
    adapted = adapt(created(), create_method("last"))
    images = np.random.default_rng(0).integers(0, 256, (8, 64, 64, 3), dtype=np.uint8)
    calibration = Calibration(images)
    kit = compile(adapted, tmp_path / "kit", frozen_bits=8, calibration=calibration, **STEP)
    drawn_up = drafted("last", frozen_bits=8)
    found, wanted = (manifest.graphs["features"] for manifest in (drawn_up, kit.manifest))
    assert (found.memory, found.nodes, found.largest) == (
        wanted.memory,
        wanted.nodes,
        wanted.largest,
    )
    assert found.weights == pytest.approx(wanted.weights, rel=0.01)
    assert kit.manifest.quantization is not None
    assert drawn_up.quantization is not None
    assert kit.manifest.quantization.layers == drawn_up.quantization.layers


def test_names_of_classes_and_the_task_are_kept() -> None:
    task = Attributes(("striped", "spotted"))
    found = draft(NETWORK, create_method("last"), task=task, cached=False, **STEP)
    assert found.task.name == "attributes"
    assert found.classes == ("striped", "spotted")
    assert found.network["classes"] == 2


def test_a_draft_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POCKETUNE_CACHE", str(tmp_path))
    first = draft(NETWORK, create_method("last"), **STEP)
    monkeypatch.setattr(forecast, "draft_network", pytest.fail)
    assert draft(NETWORK, create_method("last"), **STEP) == first
    named = draft(NETWORK, create_method("last"), task=Classification(tuple("abcd")), **STEP)
    assert named.classes == tuple("abcd")
    assert named.graphs == first.graphs


@pytest.mark.usefixtures("at_once")
def test_every_argument_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POCKETUNE_CACHE", str(tmp_path))
    others = ({}, {"size": 96}, {"batch": 2}, {"frozen_bits": 8}, {"task": Attributes(numbered(4))})
    for count, other in enumerate(others, 1):
        draft(NETWORK, create_method("last"), **{**STEP, **other})
        assert len(list(tmp_path.rglob("*.json"))) == count


@pytest.mark.usefixtures("at_once")
def test_a_damaged_draft_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POCKETUNE_CACHE", str(tmp_path))
    first = draft(NETWORK, create_method("last"), **STEP)
    (kept,) = tmp_path.rglob("*.json")
    kept.write_bytes(b"{")
    assert draft(NETWORK, create_method("last"), **STEP) == first
    assert Manifest.from_json(kept.read_bytes()) == first


@pytest.mark.usefixtures("at_once")
def test_a_cache_that_cannot_be_written_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("POCKETUNE_CACHE", str(tmp_path / "file"))
    assert draft(NETWORK, create_method("last"), **STEP).batch == 3


def test_the_state_of_random_numbers_is_kept() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    drafted("last")
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize("change", [{"batch": 0}, {"size": -1}, {"frozen_bits": 7}])
def test_bad_arguments(change: dict[str, Any]) -> None:
    with pytest.raises(PocketuneError, match=next(iter(change))):
        draft(NETWORK, create_method("last"), cached=False, **{**STEP, **change})


def test_an_adapted_network_is_drafted_without_its_config(plain: Manifest) -> None:
    adapted = adapt(created(), create_method("last"))
    assert draft_network(adapted, **STEP).graphs == plain.graphs


def test_a_file_of_weights_describes_its_network(tmp_path: Path) -> None:
    from pocketune import prune, save_network

    pruned = prune(
        create_network("mobilenet_v2", width=0.1, classes=4),
        {"features.2": 0.5},
        importance="weight",
    )
    save_network(pruned, tmp_path / "pruned.safetensors")
    config = describe_network("mobilenet_v2", weights=tmp_path / "pruned.safetensors", width=0.1)
    assert config.hidden
    whole, small = (
        draft(each, create_method("last"), cached=False, size=32, batch=1).graphs["features"].flops
        for each in (describe_network("mobilenet_v2", width=0.1), config)
    )
    assert small < whole
