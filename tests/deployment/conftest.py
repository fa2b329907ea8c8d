"""A small model and photos of two of its classes, which every export is tested with."""

from pathlib import Path

import pytest

from pocketune.device.use.model import Model

from ..device.runs import write_photos, write_run


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return Model.open(write_run(tmp_path / "run"))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_photos(tmp_path / "photos", ("cat", "dog"), each=15)
