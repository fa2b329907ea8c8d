"""Kits that exist as candidates: the bundled ones, and those in the user's folder."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.device.memory.estimate import estimate_memory
from pocketune.device.train.optimizer import state_slots
from pocketune.errors import PocketuneError
from pocketune.files import reading
from pocketune.kit.bundled import bundled_kit, list_kits
from pocketune.kit.kit import Kit
from pocketune.kit.names import LAST, MANIFEST
from pocketune.planner.candidate import Candidate, Cost
from pocketune.planner.features import Features, alike, embedding, first_embeddings
from pocketune.planner.plan import LeftOut
from pocketune.planner.predict import SMALLER
from pocketune.planner.trial import HeadScore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pocketune.arrays import FloatArray
    from pocketune.planner.context import PlanContext

KITS = "POCKETUNE_KITS"
"""Environment variable that names a folder of kits."""


def least_memory(task: str, *, process: int, classes: int) -> int | None:
    """Bytes that training the smallest bundled kit of a task takes at least; None without any."""
    manifests = [Kit.open(bundled_kit(name), verify=False).manifest for name in list_kits(task)]
    needed = [
        estimate_memory(
            manifest, process=process, classes=classes, slots=state_slots(SMALLER, 0)
        ).total
        for manifest in manifests
    ]
    return min(needed, default=None)


class KitSource:
    """Candidates that are kits.

    Args:
        context: What candidates are measured with.
        kits: The user's folder of kits; None for that in the environment variable, if any.
        bundled: Whether the bundled kits for the photos' task are candidates.
    """

    def __init__(
        self, context: PlanContext, *, kits: Path | None = None, bundled: bool = True
    ) -> None:
        self._context = context
        self._paths = kit_paths(kits, list_kits(context.photos.labeled.name) if bundled else ())
        self._opened: dict[str, Kit] = {}
        self._features: dict[str, Features] = {}
        self._firsts: dict[str, FloatArray] = {}

    def find(self) -> tuple[list[Candidate], list[LeftOut]]:
        """The kits that can be opened and have the photos' task; the others with the reason."""
        found: list[Candidate] = []
        left_out: list[LeftOut] = []
        for name, path in self._paths:
            try:
                kit = Kit.open(path)
                self._check(kit)
            except PocketuneError as error:
                left_out.append(LeftOut(name=name, reason=str(error)))
                continue
            self._opened[name] = kit
            found.append(_candidate(name, kit, self._context.settings.accumulate))
        return found, left_out

    def _check(self, kit: Kit) -> None:
        if kit.is_run:
            raise PocketuneError("it is a run, not a kit: name it alone to train it further")
        task, wanted = kit.manifest.task.name, self._context.photos.labeled.name
        if task != wanted:
            raise PocketuneError(f"it is for {task}, and the photos are for {wanted}")

    def fallbacks(self) -> Iterator[list[Candidate]]:
        """None: kits are as they are."""
        return iter(())

    def cost(self, candidate: Candidate) -> Cost:
        """The cost from the kit's manifest."""
        began = time.monotonic()
        manifest = self._opened[candidate.name].manifest
        cost = self._context.cost(manifest, candidate.accumulate)
        return replace(cost, seconds=time.monotonic() - began)

    def head(self, candidate: Candidate, count: int) -> HeadScore:
        """The score of the kit's features, computed in this process.

        Kits of one network have one score, that of the first of them.

        Raises:
            PocketuneError: There is no such score.
        """
        if self._context.photos.labeled.dense:
            # Frozen parts of different depth would be compared.
            raise PocketuneError("kits for masks are compared in short runs alone")
        began = time.monotonic()
        name = self._first_alike(candidate)
        kit = self._opened[name]
        features = self._features.setdefault(
            name, Features(self._context.photos, kit.manifest.size)
        )
        score, photos = features.score(embedding(kit), count)
        return HeadScore(score=score, seconds=time.monotonic() - began, photos=photos)

    def _first_alike(self, candidate: Candidate) -> str:
        """The first kit that has the same network with the same weights."""
        looks = _looks(self._opened[candidate.name])
        for name, kit in self._opened.items():
            if name == candidate.name:
                break
            if _looks(kit) == looks and alike(self._first(name), self._first(candidate.name)):
                return name
        return candidate.name

    def _first(self, name: str) -> FloatArray:
        if name not in self._firsts:
            self._firsts[name] = first_embeddings(self._opened[name], self._context.photos)
        return self._firsts[name]

    def kit(self, candidate: Candidate, optimizer: str) -> Path:  # noqa: ARG002 - it is there
        """The path of the kit."""
        return Path(str(candidate.kit))


def kit_paths(folder: Path | None, bundled: Sequence[str] = ()) -> list[tuple[str, Path]]:
    """Name and path of bundled kits and of those in a folder, in order.

    A kit in the folder that is named as a bundled one has its path as its name.

    Args:
        folder: A folder of kits; None for that in the environment variable `POCKETUNE_KITS`, if
            there is one.
        bundled: Names of bundled kits.

    Raises:
        PocketuneError: The folder cannot be read.
    """
    found = [(name, bundled_kit(name)) for name in bundled]
    if folder is None and os.environ.get(KITS):
        folder = Path(os.environ[KITS])
    if folder is None:
        return found
    with reading(f"the folder of kits {folder}", remedy="give a folder that holds kits"):
        paths = sorted(folder.iterdir())
    taken = {name for name, _ in found}
    return found + [
        (str(path) if path.name in taken else path.name, path)
        for path in paths
        if _may_be_kit(path)
    ]


def _may_be_kit(path: Path) -> bool:
    return path.suffix == ".zip" or ((path / MANIFEST).is_file() and not (path / LAST).exists())


def _looks(kit: Kit) -> dict[str, object]:
    """What kits with the same features have in common."""
    return {**kit.manifest.network, "classes": None, "size": kit.manifest.size}


def _candidate(name: str, kit: Kit, accumulate: int) -> Candidate:
    manifest = kit.manifest
    return Candidate(
        name=name,
        group=kit.identity,  # other kits of the same network may have other weights
        kit=str(kit.path),
        network=manifest.network,
        weights=None,
        method=manifest.method,
        size=manifest.size,
        batch=manifest.batch,
        accumulate=accumulate,
        frozen_bits=manifest.frozen_bits,
    )
