"""Photos, a supernet, and searches of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketune.supernet import save_supernet

from ..device.softmax_engine import write_photos
from .searches import Search, no_kit, quickened, run
from .small import supernet


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos and a supernet."""
    folder = tmp_path_factory.mktemp("inputs")
    write_photos(folder / "photos", each=12)
    save_supernet(supernet(), folder / "supernet.safetensors")
    return folder


@pytest.fixture(scope="module")
def quick() -> Iterator[None]:
    """Searches of this module take seconds."""
    with quickened():
        yield


@pytest.fixture
def search(inputs: Path, tmp_path: Path) -> Iterator[Search]:
    """A search that builds no kit."""
    with no_kit():
        yield lambda out="kit", *given, **options: run(inputs, tmp_path / out, *given, **options)
