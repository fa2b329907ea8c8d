"""The third phase: the kit of the chosen sub-network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pocketune.errors import PocketuneError
from pocketune.extractor import kits
from pocketune.extractor.kits import build_chosen
from pocketune.extractor.record import Finalist, Forecast
from pocketune.extractor.settings import ExtractorSettings
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import Manifest
from pocketune.supernet import SubnetConfig, Supernet
from pocketune.weights import load_network

from ..device.tiny_kit import TinyKit
from .small import supernet

COST: dict[str, Any] = {"memory": 1, "step_seconds": 1.0, "macs": 1, "training_macs": 1}


@pytest.mark.parametrize("name", ["kit", "kit.zip"])
def test_only_a_kit_within_the_limits_is_put_in_place(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Kit] = []

    def build(_: Supernet, config: SubnetConfig, out: Path, **__: object) -> Kit:
        built.append(TinyKit(size=config.size).write(out))
        return built[-1]

    def choose(*sizes: int) -> tuple[tuple[Finalist, ...], str]:
        """A kit of an image of `size` pixels takes as many megabytes."""
        found = [
            Finalist(
                forecast=Forecast(config=replace(made.largest, size=size), **COST), predicted=1
            )
            for size in sizes
        ]
        options: Any = {"photos": None, "folder": tmp_path, "progress": None}
        options["settings"] = ExtractorSettings(budget="20MB")
        return build_chosen(made, found, out, forecaster=forecaster, **options)

    def cost(manifest: Manifest) -> SimpleNamespace:
        return SimpleNamespace(memory=1_000_000 * manifest.size, step_seconds=1.0)

    monkeypatch.setattr(kits, "_build", build)
    made, out = supernet(), tmp_path / name
    forecaster: Any = SimpleNamespace(method=None, cost=cost)
    before = TinyKit(size=8).write(out).identity
    with pytest.raises(PocketuneError, match="of all sub-networks that were found need more"):
        choose(32, 24)
    assert Kit.open(out).identity == before
    finalists, identity = choose(32, 16, 8)
    assert [each.forecast.config.size for each in finalists] == [16, 32, 8]
    assert finalists[0].forecast.memory == 16_000_000
    assert Kit.open(out).identity == identity == built[-1].identity
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_last_batch_of_one_photo_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos: Any = torch.randn(5, 3, 32, 32).split(4)
    monkeypatch.setattr(kits, "sample_batches", lambda *_, **__: iter(photos))
    monkeypatch.setattr(kits, "build_kit", lambda *_, **__: None)
    options: Any = {"forecaster": SimpleNamespace(method=None, batch=8), "progress": None}
    made, file = supernet(), tmp_path / "chosen.safetensors"
    kits._build(made, made.largest, tmp_path / "kit", photos=photos, file=file, **options)
    assert load_network(file).get_buffer("features.0.1.running_mean").any()
