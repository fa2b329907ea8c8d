"""Everything that a search has measured, in one JSON file that it goes on from."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pocketune.errors import PocketuneError
from pocketune.files import reading, replacing, writing
from pocketune.schema import Positive, parse_object, read_versioned
from pocketune.supernet import SubnetConfig

SCHEMA = 2
"""Version of the record's fields; a reader refuses all others."""
RECORD, ADAPTED, FRONT, CHOSEN = (
    "search.json",
    "adapted.safetensors",
    "front.svg",
    "chosen.safetensors",
)
"""Files of a search: the record, the state of phase 1, the picture, the chosen sub-network."""
_CHANCE = 1.64
"""Standard errors that 19 of 20 values of a normal distribution are below."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the measurements are of; a search goes on from those of an equal one.

    Attributes:
        version: The pocketune that searches.
        photos: Hash of the names and labels of the photos.
        supernet: Hash of the supernet's file.
        method: The method that the kit trains.
        settings: The settings without limits.
    """

    version: str
    photos: str
    supernet: str
    method: dict[str, Any]
    settings: dict[str, Any]

    def difference(self, other: Asked) -> str | None:
        """What differs, in words; None if nothing does."""
        words = {
            "version": "another version of Pocketune",
            "photos": "other photos",
            "supernet": "another supernet",
            "method": "another method",
        }
        for name, word in words.items():
            if getattr(self, name) != getattr(other, name):
                return word
        for name, value in self.settings.items():
            if (its := other.settings.get(name)) != value:
                return f"no {name}" if its is None else f"{name} {its}"
        return None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A measured sub-network.

    Attributes:
        config: The sub-network.
        accuracy: The task's metric on the held-out photos.
        loss: Its mean loss there.
    """

    config: SubnetConfig
    accuracy: float
    loss: float


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What training a sub-network's kit takes, predicted from the kit's graphs.

    Attributes:
        config: The sub-network.
        memory: Peak bytes of the whole process on the device.
        step_seconds: Of a training step on this machine.
        macs: Multiplications of a forward pass for one image.
        training_macs: Of a training step, for one image, by TinyTL's rule.
    """

    config: SubnetConfig
    memory: Positive
    step_seconds: float
    macs: Positive
    training_macs: Positive


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """How well accuracies are predicted.

    Attributes:
        predictor: `network` or `ridge`.
        correlations: Rank correlation of both in cross-validation, by name.
        memory_error: 95 % of forecasts differ from their estimate by at most this share.
    """

    predictor: str
    correlations: dict[str, float]
    memory_error: float


@dataclass(frozen=True, kw_only=True)
class Finalist:
    """A sub-network that the search has found, with its own forecast.

    Attributes:
        forecast: What it takes.
        predicted: Its predicted accuracy.
        accuracy: Its measured accuracy; None if it was not measured.
    """

    forecast: Forecast
    predicted: float
    accuracy: float | None = None

    @property
    def bounded(self) -> Finalist:
        """The same with a prediction from 0 to 1: what has found it extrapolates beyond."""
        return replace(self, predicted=min(1.0, max(0.0, self.predicted)))


@dataclass(frozen=True, kw_only=True)
class Record:
    """A search, finished or not.

    Attributes:
        asked: What the measurements are of.
        limits: The limits of the sub-network.
        steps: Steps of the first phase; None before they are known.
        planned: Sub-networks to measure; None before their number is known.
        process: Resident bytes of a training process before it opens a kit; None if unknown.
        pairs: Measured sub-networks.
        forecasts: Forecasts.
        ranking: How well accuracies are predicted.
        front: The sub-networks of the highest predicted accuracy within less and less memory.
        finalists: The best of the search, measured, the chosen one first.
        kit: Identity of the kit that was built within these limits; None if none was.
        seconds: Seconds that each phase took.
        before: Seconds of those that were over when the search within these limits began.
        macs: Multiplications of each phase, by the paper's formulas.
        schema: Version of these fields.
    """

    asked: Asked
    limits: dict[str, Any] = field(default_factory=dict)
    steps: Positive | None = None
    planned: Positive | None = None
    process: Positive | None = None
    pairs: tuple[Pair, ...] = ()
    forecasts: tuple[Forecast, ...] = ()
    ranking: Ranking | None = None
    front: tuple[Finalist, ...] = ()
    finalists: tuple[Finalist, ...] = ()
    kit: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    before: float = 0.0
    macs: dict[str, float] = field(default_factory=dict)
    schema: Positive = SCHEMA

    @property
    def chosen(self) -> Finalist:
        """The sub-network of the kit.

        Raises:
            PocketuneError: The search is not finished.
        """
        if not self.finalists:
            raise PocketuneError("the search has not finished; repeat it to go on")
        return self.finalists[0]

    @property
    def is_ranked_by_chance(self) -> bool:
        """Whether accuracies without any relation to the predictions would rank them as well.

        Their rank correlation has the standard error 1 / sqrt(pairs - 1).
        """
        if self.ranking is None:
            return False
        best = max(self.ranking.correlations.values())
        return best * math.sqrt(max(0, len(self.pairs) - 1)) < _CHANCE

    @classmethod
    def read(cls, path: Path) -> Record:
        """The record in a file.

        Raises:
            PocketuneError: It cannot be read, or is of another version.
        """
        with reading(path, remedy="remove it to start over"):
            data = parse_object(path.read_bytes(), str(path))
        return read_versioned(cls, data, str(path), SCHEMA, "remove it to start over")


class Journal:
    """The record while it is made: each measurement is written before the next.

    Args:
        folder: Where the files of the search are; created.
        asked: What the measurements are of.

    Raises:
        PocketuneError: The folder has the record of another search.
    """

    def __init__(self, folder: Path, asked: Asked) -> None:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._path = folder, folder / RECORD
        self.record = Record(asked=asked)
        if self._path.exists():
            earlier = Record.read(self._path)
            if strange := asked.difference(earlier.asked):
                raise PocketuneError(
                    f"{self._path} was made with {strange}; name another folder for this search, "
                    "or remove that one"
                )
            self.record = earlier
        else:  # what is left of another search is not this one's
            with writing(folder):
                (folder / ADAPTED).unlink(missing_ok=True)

    def write(self, **changes: object) -> None:
        """Change fields of the record and write it."""
        self.record = replace(self.record, **changes)  # type: ignore[arg-type]
        text = json.dumps(asdict(self.record), indent=1) + "\n"
        with replacing(self._path) as file:
            file.write_text(text, encoding="utf-8")

    def spend(self, phase: str, seconds: float) -> None:
        """Add seconds to those of a phase; they are written with the next change."""
        spent = self.record.seconds.get(phase, 0.0) + seconds
        self.record = replace(self.record, seconds={**self.record.seconds, phase: spent})
