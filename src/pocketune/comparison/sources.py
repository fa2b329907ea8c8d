"""Hashes of what a comparison reads, so that a change of it makes a new run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from pocketune.data.contents import listed_files
from pocketune.data.sources import FolderSource, Source, is_archive
from pocketune.errors import PocketuneError
from pocketune.files import reading, regular, sha256


def content(path: str | None) -> str | None:
    """Hash of a file, such as one of weights; `imagenet`, a name on the hub and None as they are.

    Raises:
        PocketuneError: The file is missing or cannot be read.
    """
    if path is None or path == "imagenet" or path.startswith("hf-hub:"):
        return path
    with reading(path):
        if not Path(path).is_file():
            raise PocketuneError(f"there is no file of weights at {path}: check the path")
    return _digest(Path(path))


END = 4096
"""Bytes at the end of a photo that are hashed: another picture of the same size ends otherwise."""


def photos_content(path: str) -> str:
    """Hash of a .zip; for a folder, of the names, sizes and ends of its files.

    Links are followed, as in training. For a table or annotations, it is of these, and of the
    names, sizes and ends of their photos.

    Raises:
        PocketuneError: It cannot be read.
    """
    digest = hashlib.sha256()
    files: Iterator[tuple[str, Source]]
    with reading(path):
        if is_archive(Path(path)):
            return _digest(Path(path))
        if Path(path).is_file():
            digest.update(Path(path).read_bytes())
            files = listed_files(path)
        else:
            folder = FolderSource(Path(path))
            files = ((name, folder) for name in folder.names())
        for name, source in files:
            digest.update(_encoded(name))
            with suppress(OSError), source.open(name) as photo:  # a missing one is skipped
                digest.update(_size_and_end(photo))
    return digest.hexdigest()


def _encoded(name: str) -> bytes:
    return f"{name}\0".encode("utf-8", "surrogatepass")


def _size_and_end(file: IO[bytes]) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - END))
    return f"{size}\0".encode() + file.read()


def _digest(path: Path) -> str:
    with reading(path), regular(path).open("rb") as file:
        return sha256(file)
