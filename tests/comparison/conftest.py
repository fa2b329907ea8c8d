"""Photos and a kit to compare."""

from pathlib import Path

import pytest

from ..device.softmax_engine import CLASSES
from ..device.tiny_kit import TinyKit
from .grids import divided, do_here


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return divided(tmp_path_factory.mktemp("photos") / "colors")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A kit whose runs take no longer than their processes."""
    return str(
        TinyKit(classes=CLASSES, size=16).write(tmp_path_factory.mktemp("kits") / "tiny.zip").path
    )


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are checked, and runs are made, in this process."""
    monkeypatch.setattr("pocketune.comparison.names.run_job", do_here)
    monkeypatch.setattr("pocketune.comparison.run_series.run_job", do_here)
