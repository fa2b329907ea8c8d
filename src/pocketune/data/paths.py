"""The paths that a user gives: what is there, and the images to predict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.data.sources import FolderSource, Source, ZipSource, is_archive
from pocketune.errors import PocketuneError
from pocketune.files import reading, shown

if TYPE_CHECKING:
    from collections.abc import Iterable


def check_exists(path: Path) -> None:
    """Check that something exists at the user's path.

    Raises:
        PocketuneError: Nothing does, or a folder on the way may not be read.
    """
    with reading(shown(str(path)), remedy="check the path and its permissions"):
        found = path.exists()
    if not found:
        raise PocketuneError(f"{shown(str(path))} does not exist; check the path")


def source_at(path: Path) -> Source:
    """The files of a folder or archive."""
    return ZipSource(path) if is_archive(path) else FolderSource(path)


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
