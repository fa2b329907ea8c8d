"""The studio as a folder of static files, for any static host."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pocketune.errors import PocketuneError
from pocketune.files import writing
from pocketune.studio.site import Site


def export_site(site: Site, folder: Path) -> int:
    """Write all files of the studio into a new folder, and give their bytes in all.

    The folder is written under a temporary name beside its place and then renamed, so that an
    incomplete site is never there.

    Raises:
        PocketuneError: Something is in the folder already, or the disk cannot be written.
    """
    with writing(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise PocketuneError(f"{folder} is not an empty folder; remove it or name another")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{folder.name}.", dir=folder.parent, ignore_cleanup_errors=True
        ) as scratch:
            whole = Path(scratch) / "site"
            written = sum(_write(whole / address, site.read(address)) for address in site.files)
            if folder.exists():
                folder.rmdir()
            whole.rename(folder)
    return written


def _write(path: Path, data: bytes) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.write_bytes(data)
