"""The features of a run, opened with it and removed once it is finished."""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from pocketune.device.cache.choice import Parts
from pocketune.device.cache.loader import CachedLoader
from pocketune.device.cache.records import FileStore, MemoryStore, Records, Store
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.kit.names import CACHE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pocketune.device.engine.base import Engine, Preparing
    from pocketune.device.train.folder import Run


@contextmanager
def cached(run: Run, engine: Engine, note: Callable[[str], None]) -> Iterator[Run]:
    """The run with loaders that keep features, if its settings say so.

    If the disk is full or fails, the run goes on without: features are computed again and encoded
    as before, so that its result is the same. A file of records stays if the block fails, for the
    resumed run.

    Args:
        run: The run.
        engine: Computes the features.
        note: Called with a sentence if the disk fails.
    """
    if run.settings.cache == "off":
        yield run
        return
    manifest = Kit.open(run.folder, verify=False).manifest
    parts = Parts.of(run.photos, manifest, run.settings.draws or 1)
    records = Records(_store(run, parts, note), lambda reason: note(_without(reason)))
    prepare = cast("Preparing", engine).prepare
    photos = replace(
        run.photos, training=CachedLoader(run.photos.training, records, parts.training, prepare)
    )
    if run.photos.validation is not None and parts.validation is not None:
        kept = CachedLoader(run.photos.validation, records, parts.validation, prepare)
        photos = replace(photos, validation=kept)
    try:
        yield replace(run, photos=photos)
        records.discard()
    finally:
        records.close()


def _store(run: Run, parts: Parts, note: Callable[[str], None]) -> Store | None:
    if run.settings.cache == "memory":
        return MemoryStore()
    what = [run.identity.kit, run.identity.photos, run.settings.seed, repr(parts)]
    identity = hashlib.sha256(json.dumps(what).encode()).digest()
    try:
        return FileStore(run.folder / CACHE, identity)
    except PocketuneError as error:
        note(_without(str(error)))
        return None


def _without(reason: str) -> str:
    return f"cache  off, features are computed for every epoch: {reason}"
