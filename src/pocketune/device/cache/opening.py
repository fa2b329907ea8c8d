"""The features of a run, opened with it and removed once it is finished."""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from pocketune.device.cache.choice import Parts, parts_of
from pocketune.device.cache.loader import CachedLoader
from pocketune.device.cache.records import FileStore, MemoryStore, Records, Store
from pocketune.errors import PocketuneError
from pocketune.kit.names import CACHE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pocketune.device.engine.base import Engine, Preparing
    from pocketune.device.train.folder import Run
    from pocketune.device.train.photos import Photos


class FeatureCache:
    """The features that a run keeps; with neither records nor parts, it keeps none.

    Args:
        records: Keeps them.
        parts: The places of the records.
    """

    def __init__(self, records: Records | None = None, parts: Parts | None = None) -> None:
        self._records = records
        self._parts = parts

    def photos(self, photos: Photos, engine: Engine) -> Photos:
        """The photos with loaders that keep features, which the engine computes."""
        if self._records is None or self._parts is None:
            return photos
        prepare = cast("Preparing", engine).prepare
        loaders: dict[str, Any] = {}
        for name in ("training", "validation", "sample"):
            loader, part = getattr(photos, name), getattr(self._parts, name)
            if loader is not None and part is not None:
                loaders[name] = CachedLoader(loader, self._records, part, prepare)
        return replace(photos, **loaders)

    def discard(self) -> None:
        """Give back the room that the features take."""
        if self._records is not None:
            self._records.discard()


@contextmanager
def feature_cache(run: Run, note: Callable[[str], None]) -> Iterator[FeatureCache]:
    """The features that a run keeps, as its settings say.

    If the disk is full or fails, the run goes on without: features are computed again and encoded
    as before, so that its result is the same. A file of records stays if the block fails, for the
    resumed run.

    Args:
        run: The run.
        note: Called with a sentence if the disk fails.
    """
    if run.settings.cache == "off":
        yield FeatureCache()
        return
    parts = parts_of(run.settings, run.photos, run.manifest)
    records = Records(_store(run, parts, note), lambda reason: note(_without(reason)))
    try:
        yield FeatureCache(records, parts)
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
