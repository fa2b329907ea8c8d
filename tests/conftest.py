"""Fixtures that several folders of tests share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real images and weights that tests may read; the project never contains it."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("POCKETUNE_SHARED_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no real images and weights at {folder}; set POCKETUNE_SHARED_DATA")
    return folder
