"""The third phase: the kit of the chosen sub-network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pocketune.extractor import kits
from pocketune.extractor.settings import ExtractorSettings
from pocketune.weights import load_network

from .small import supernet


def test_a_last_batch_of_one_photo_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos: Any = torch.randn(5, 3, 32, 32).split(4)
    monkeypatch.setattr(kits, "sample_batches", lambda *_, **__: iter(photos))
    monkeypatch.setattr(kits, "build_kit", lambda *_, **__: None)
    options: Any = {"method": None, "settings": ExtractorSettings(), "progress": None}
    made, file = supernet(), tmp_path / "chosen.safetensors"
    kits._build(made, made.largest, tmp_path / "kit", photos=photos, file=file, **options)
    assert load_network(file).get_buffer("features.0.1.running_mean").any()
