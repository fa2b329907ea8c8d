"""The runs of one model and method on one set of photos: they share a kit and its rates."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from pocketune.comparison.cell import Cell, Part
from pocketune.comparison.grid import Grid, KitChoice, MethodChoice, Network, PhotoSet
from pocketune.comparison.sources import content, photos_content
from pocketune.data import has_test
from pocketune.data.finding import find
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit

TUNING_SEED = 100
TUNING_FRACTION = 0.2
"""Rates are chosen with another seed, on a fifth of the training photos."""
_CHECKPOINT_SECONDS = 30.0


class Planned(NamedTuple):
    """A run to make.

    Attributes:
        cell: Its unfinished cell.
        settings: Its settings of `pocketune.train`.
    """

    cell: Cell
    settings: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Series:
    """The runs of a model and a method on a set of photos.

    Attributes:
        photos: The set of photos.
        model: The network or the kit.
        method: The method; None with a kit.
        method_name: Name of the method in the tables.
        seeds: The seeds.
        settings: Settings of `pocketune.train` for all of the runs.
        rates: Learning rates to choose from, ascending.
        head_rates: Learning rates of the classifier to choose from, ascending.
        has_test: Whether the set has test photos.
        identity: Hash of photos, weights or kit, network, method and settings, and of Pocketune's
            version. It names the kit that is built, which no other series reads.
    """

    photos: PhotoSet
    model: Network | KitChoice
    method: MethodChoice | None
    method_name: str
    seeds: tuple[int, ...]
    settings: dict[str, Any]
    rates: tuple[float, ...]
    head_rates: tuple[float, ...]
    has_test: bool
    identity: str

    @property
    def runs(self) -> list[Planned]:
        """The runs, by seed; chosen rates are not yet among their settings."""
        part: Part = "test" if self.has_test else "validation"
        return [self._planned(self.settings, seed, part) for seed in self.seeds]

    @property
    def chooses_rates(self) -> bool:
        """Whether rates are chosen before the runs."""
        return bool(self.rates or self.head_rates)

    def trial(self, choice: Mapping[str, float]) -> Planned:
        """The run that tries rates on a fifth of the training photos."""
        settings = {**self.settings, **choice, "val_fraction": TUNING_FRACTION}
        cell, settings = self._planned(settings, TUNING_SEED, "validation")
        shown = ", ".join(f"{name} {rate:g}" for name, rate in choice.items())
        tried = f"{self.method_name} with {shown}"
        model = tried if cell.model == cell.method else cell.model  # named once
        return Planned(replace(cell, model=model, method=tried), settings)

    def _planned(self, settings: dict[str, Any], seed: int, part: Part) -> Planned:
        ours: dict[str, Any] = {"checkpoint_seconds": _CHECKPOINT_SECONDS}
        if part == "validation":  # however few photos there are, some have to be scored
            ours["val_fraction"] = TUNING_FRACTION
        settings = {**ours, **settings, "seed": seed}
        cell = Cell(
            photos=self.photos.label,
            model=self.model.label,
            method=self.method_name,
            seed=seed,
            key=_hash([self.identity, settings, part, self.rates, self.head_rates]),
            part=part,
        )
        return Planned(cell, settings)


def all_series(grid: Grid) -> list[Series]:
    """The series of a grid, in the order of its tables.

    Raises:
        PocketuneError: Photos, weights or a kit cannot be found, a run is named in place of a kit,
            a kit learns something else than the labels of the photos, or rates are to be chosen on
            a set without test photos.
    """
    models: list[tuple[Network | KitChoice, MethodChoice | None]] = [
        *product(grid.networks, grid.methods),
        *((kit, None) for kit in grid.kits),
    ]
    found = []
    for photos in grid.photos:
        _check_kits(grid.kits, photos)
        test, names = has_test(photos.photos), photos_content(photos.photos)
        if not test and (grid.rates or grid.head_rates):
            raise PocketuneError(
                f"{photos.photos} has no test photos, so rates would be chosen on the photos that "
                "measure them: put some photos of each class below test, or leave the rates out"
            )
        found += [_series(grid, photos, *model, has_test=test, names=names) for model in models]
    return found


def _check_kits(kits: Sequence[KitChoice], photos: PhotoSet) -> None:
    """Check that the labels of photos are of the tasks of kits."""
    for each in kits:
        task = type(Kit.open(each.kit).manifest.task)
        try:
            find(Path(photos.photos), (task,), "hold out")
        except PocketuneError as error:
            raise PocketuneError(f"photos for the kit {each.label}: {error}") from error


def _series(
    grid: Grid,
    photos: PhotoSet,
    model: Network | KitChoice,
    method: MethodChoice | None,
    *,
    has_test: bool,
    names: str,
) -> Series:
    from pocketune import __version__

    of_method = method.settings if method else {}
    given = {**grid.settings, **photos.settings, **model.settings, **of_method}
    settings = {name: value for name, value in given.items() if value is not None}
    name, made_of = _origin(model, method)
    return Series(
        photos=photos,
        model=model,
        method=method,
        method_name=name,
        seeds=grid.seeds,
        settings=settings,
        rates=tuple(sorted(grid.rates)),
        head_rates=tuple(sorted(grid.head_rates)),
        has_test=has_test,
        identity=_hash([__version__, names, *made_of, _with_names(settings)]),
    )


def _with_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the hash of a file of class names in place of its path."""
    names = settings.get("class_names")
    if names is None or not os.path.isfile(names):  # noqa: PTH113 - it never fails
        return dict(settings)
    return {**settings, "class_names": content(names)}


def _origin(model: Network | KitChoice, method: MethodChoice | None) -> tuple[str, list[object]]:
    """The name of the method, and what the kit is made of."""
    if isinstance(model, KitChoice):
        kit = Kit.open(model.kit)
        if kit.is_run:
            raise PocketuneError(
                f"{model.kit} is a run, which may have learned the photos that are to score it: "
                "name a kit"
            )
        return kit.manifest.method_name, [kit.identity]
    assert method is not None
    made_of = [_plain(model), content(model.weights)]
    if model.is_file:
        made_of = [{**_plain(model), "network": None}, content(model.network)]
    return method.label, [*made_of, _plain(method)]


def _plain(choice: Network | MethodChoice) -> dict[str, Any]:
    """What a kit depends on, without names, settings and the place of the weights."""
    left_out = ("name", "settings", "weights")
    return {name: value for name, value in asdict(choice).items() if name not in left_out}


def _hash(values: object) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
