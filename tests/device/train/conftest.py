"""Runs of the softmax kit, which most files here start."""

from pathlib import Path
from typing import Any

import pytest

from pocketune.device.train.progress import Silent
from pocketune.device.train.run import TrainResult, train

from ..softmax_engine import SoftmaxEngine, write_photos, write_softmax_kit
from .examples import Run


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_softmax_kit(tmp_path_factory.mktemp("kits") / "kit").path


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture
def run(kit: Path, photos: Path, tmp_path: Path) -> Run:
    """`train` with everything given that a test does not care about."""

    def call(**changes: Any) -> TrainResult:
        arguments: dict[str, Any] = {
            "kit": kit,
            "photos": photos,
            "out": tmp_path / "run",
            "epochs": 3,
            "lr": 0.05,
            "head_start": "random",
            "engine": SoftmaxEngine,
            "progress": Silent(),
        }
        return train(**{**arguments, **changes})

    return call
