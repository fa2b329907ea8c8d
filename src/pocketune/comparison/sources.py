"""Hashes of what a comparison reads, so that a change of it makes a new run."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from pocketune.data.finding import listed_files
from pocketune.data.sources import is_archive
from pocketune.errors import PocketuneError
from pocketune.files import reading, regular, sha256


def content(path: str | None) -> str | None:
    """Hash of a file of weights; `imagenet`, a name on the hub and None as they are.

    Raises:
        PocketuneError: The file is missing or cannot be read.
    """
    if path is None or path == "imagenet" or path.startswith("hf-hub:"):
        return path
    with reading(path):
        if not Path(path).is_file():
            raise PocketuneError(f"there is no file of weights at {path}: check the path")
    return _digest(Path(path))


def photos_content(path: str) -> str:
    """Hash of a .zip; for a folder, of the names and sizes of its files.

    For a table or annotations, it is of these, and of the names and sizes of their photos.

    Raises:
        PocketuneError: It cannot be read.
    """
    digest = hashlib.sha256()
    with reading(path):
        if is_archive(Path(path)):
            return _digest(Path(path))
        if Path(path).is_file():
            digest.update(Path(path).read_bytes())
            for name, size in listed_files(path):
                digest.update(f"{name}\0{size}\0".encode("utf-8", "surrogatepass"))
        for folder, folders, files in os.walk(path):
            folders.sort()
            for name in sorted(files):
                file = Path(folder, name)
                line = f"{file.relative_to(path).as_posix()}\0{file.stat().st_size}\0"
                digest.update(line.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _digest(path: Path) -> str:
    with reading(path), regular(path).open("rb") as file:
        return sha256(file)
