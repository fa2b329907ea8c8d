"""Files that one process at a time may hold."""

import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from pocketune import locks
from pocketune.locks import AnotherProcess, locked


@pytest.mark.skipif(sys.platform == "win32", reason="an open file is not removed there")
@pytest.mark.parametrize("again", [False, True])
def test_a_file_that_is_removed_before_its_lock_is_not_locked(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"

    def late(_: BinaryIO) -> None:
        path.unlink()
        if again:
            path.touch()

    monkeypatch.setattr(locks, "_lock", late)
    with pytest.raises(AnotherProcess, match="has just removed"), locked(path, "busy"):
        pass
