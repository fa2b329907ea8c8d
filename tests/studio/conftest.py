"""A built page that is made for the tests, so that they need no npm."""

from __future__ import annotations

from pathlib import Path

import pytest

from pocketune.kit import Kit
from pocketune.studio import Site, collect_site

from ..device.tiny_kit import TinyKit

PAGE = {
    "index.html": b"<!doctype html><title>studio</title>",
    "page.js": b"export {};",
    "ort/runtime.wasm.gz": b"\x1f\x8b packed",
}


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `make studio` writes it."""
    folder = tmp_path_factory.mktemp("studio") / "site"
    for name, data in {**PAGE, ".DS_Store": b"no part of it"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture(scope="session")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    return TinyKit().write(tmp_path_factory.mktemp("kits") / "tiny")


@pytest.fixture(scope="session")
def site(built: Path, kit: Kit) -> Site:
    return collect_site([("my flowers", kit)], built)
