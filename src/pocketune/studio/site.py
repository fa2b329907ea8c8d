"""The files of the studio: the built page, and the kits that it offers."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketune.errors import PocketuneError
from pocketune.files import reading
from pocketune.kit import Kit
from pocketune.kit.bundled import list_kits
from pocketune.kit.kit import kit_files
from pocketune.kit.names import MANIFEST

SITE = Path(__file__).parent / "site"
"""Where `make studio` builds the page. It is part of the wheel."""

INDEX, LISTING = "index.html", "site.json"

_EPOCH = (1980, 1, 1, 0, 0, 0)  # one time for all entries, so that equal kits give equal .zips


@dataclass(frozen=True)
class Site:
    """All files by their address, which is relative to the page's and has forward slashes.

    `site.json` lists them: `files`, the SHA-256 of each, which the page's service worker
    compares with what it keeps; `version`, the SHA-256 of that list; and `kits`, the name,
    address and bytes of each kit that the page offers, and what it knows of a kit at first.
    """

    files: Mapping[str, Path | bytes]
    hashes: Mapping[str, str]

    def read(self, address: str) -> bytes:
        """The bytes of a file.

        Raises:
            PocketuneError: The file cannot be read.
        """
        return _content(self.files[address])


def collect_site(kits: Iterable[tuple[str, Kit]] | None = None, folder: Path = SITE) -> Site:
    """The built page with these kits.

    Args:
        kits: Name and kit of each that the page offers; None for the bundled ones.
        folder: The built page.

    Raises:
        PocketuneError: The page is not built, two kits have one name, a kit is of masks or a run,
            or a file cannot be read.
    """
    if not (folder / INDEX).is_file():
        raise PocketuneError(
            "the studio's page is not built: run make studio in a clone of Pocketune, or install "
            "a wheel, which has it"
        )
    files: dict[str, Path | bytes] = dict(_built(folder))
    offered = []
    for name, kit in bundled_kits() if kits is None else kits:
        _check_offer(kit)
        address = f"kits/{_plain(name)}.zip"
        if address in files:
            raise PocketuneError(f"two kits are called {name}; rename one of them")
        packed = pack_kit(kit)
        files[address] = packed
        offered.append({"name": name, "path": address, "bytes": len(packed), **_facts(kit)})
    hashes = {address: _sha256(_content(files[address])) for address in sorted(files)}
    version = _sha256(json.dumps(hashes).encode())
    listing = json.dumps({"version": version, "files": hashes, "kits": offered}, indent=1).encode()
    return Site({**files, LISTING: listing}, {**hashes, LISTING: _sha256(listing)})


def _check_offer(kit: Kit) -> None:
    if kit.manifest.task.dense:
        raise PocketuneError(
            f"{kit.path} is for masks, which the page does not train; name a kit for classes or "
            "attributes"
        )
    if kit.is_run:
        raise PocketuneError(
            f"{kit.path} is a run, and a kit has nothing of what a run has learned: open the run "
            "in the page, packed as a .zip, or name the kit that it started from"
        )


def bundled_kits() -> Iterator[tuple[str, Kit]]:
    """Name and kit of each that comes with the package, but not of masks: the page has none."""
    for name in list_kits():
        kit = Kit.open(name)
        if not kit.manifest.task.dense:
            yield name, kit


def pack_kit(kit: Kit) -> bytes:
    """A kit as the bytes of a .zip, the same for each copy of it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in (MANIFEST, *kit_files(kit.manifest)):
            entry = zipfile.ZipInfo(name, _EPOCH)
            archive.writestr(entry, kit.read(name), zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _facts(kit: Kit) -> dict[str, Any]:
    manifest = kit.manifest
    return {
        "hash": kit.identity,
        "network": manifest.network,
        "method": manifest.method,
        "task": manifest.task.name,
        "classes": manifest.classes,
        "size": manifest.size,
        "trained": manifest.trained_parameters,
    }


def _built(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            yield path.relative_to(folder).as_posix(), path


def _plain(name: str) -> str:
    """A name with only characters that mean nothing in an address."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".") or "kit"


def _content(source: Path | bytes) -> bytes:
    if isinstance(source, bytes):
        return source
    with reading(source):
        return source.read_bytes()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
