"""Values that take long to compute, kept in the user's cache folder."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pocketune.errors import PocketuneError
from pocketune.files import regular, replacing

T = TypeVar("T")


def cache_folder() -> Path:
    """The folder for what can be computed again: `POCKETUNE_CACHE`, or the user's own cache.

    It need not exist.
    """
    named = os.environ.get("POCKETUNE_CACHE")
    if named:
        return Path(named).expanduser()
    home = Path.home()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "pocketune"


def cached(
    name: str, make: Callable[[], T], parse: Callable[[bytes], T], dump: Callable[[T], bytes]
) -> T:
    """A value from a file in the cache folder; without one that can be read, made and kept there.

    A cache that cannot be written is not an error.

    Args:
        name: The file, relative to the cache folder.
        make: Makes the value.
        parse: The value of a file; raises PocketuneError if it is damaged.
        dump: The file of a value.
    """
    path = cache_folder() / name
    with contextlib.suppress(OSError, PocketuneError):
        return parse(regular(path).read_bytes())
    value = make()
    with contextlib.suppress(OSError, PocketuneError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write_bytes(dump(value))
    return value
