"""What makes a path unfit to be loaded, each said in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pocketune.errors import PocketuneError
from pocketune.files import Skipped, reading, shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pocketune.data.layouts.folders import Example


def check_exists(path: Path) -> None:
    """The user's path leads somewhere."""
    with reading(shown(str(path)), remedy="check the path and its permissions"):
        found = path.exists()
    if not found:
        raise PocketuneError(f"{shown(str(path))} does not exist; check the path")


def check_any(known: Sequence[Example], skipped: Sequence[Skipped], where: str) -> None:
    """At least one file is an image."""
    if known:
        return
    first = f"; the first, {shown(skipped[0].name)}: {skipped[0].reason}" if skipped else ""
    raise PocketuneError(f"{where} has no readable image among its {len(skipped)} files{first}")
