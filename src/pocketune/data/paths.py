"""The images to predict, at the paths that a user gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.data.sources import check_exists, is_archive, source_at
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Iterable


def open_images(paths: Iterable[str | Path], *, once: bool = True) -> list[str]:
    """Paths of the images to predict: the files themselves, and all files in folders and .zips.

    Files are not opened. A file that is not an image is found when it is decoded. Images that
    several paths name are there as often, unless `once`.

    Raises:
        PocketuneError: A path does not exist, or there are no files.
    """
    found: list[str] = []
    for path in map(Path, paths):
        check_exists(path)
        if path.is_dir() or is_archive(path):
            found.extend(str(path / name) for name in source_at(path).names())
        else:
            found.append(str(path))
    if not found:
        raise PocketuneError("there are no images to predict; name image files or their folder")
    return list(dict.fromkeys(found)) if once else found
