"""Photos to retrain on, with classes and with masks."""

import pytest

from ..device.pixel_kit import write_scenes
from .examples import dark_and_light


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return dark_and_light(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """Photos with masks."""
    return write_scenes(tmp_path_factory.mktemp("scenes"), 8)
