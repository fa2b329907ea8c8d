"""A run of a tiny kit, which several files here use."""

from pathlib import Path

import pytest

from ..runs import write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")
