"""The files that a run saves: checkpoints to resume from, and the trained network."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketune.arrays import distinct
from pocketune.data.names import name_digests
from pocketune.device.train.folder import Run, RunIdentity
from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.kit.names import BEST, LAST
from pocketune.kit.tensors import copy_tensors, read_tensors, write_tensors
from pocketune.tasks import Score

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from pocketune.arrays import State
    from pocketune.device.engine.base import Engine
    from pocketune.device.train.optimizer import Optimizer
    from pocketune.kit.kit import Kit
    from pocketune.kit.packed import RunFile

_GROUPS = ("parameters", "statistics", "optimizer")
_TRAINED, _EARLIER = "trained", "earlier"


@dataclass
class Counters:
    """The progress of a run.

    Attributes:
        step: Completed optimizer steps.
        epoch: The current epoch, from 0.
        batch: Completed batches of the epoch; with the seed, the exact position in the data.
        loss_sum: Sum of the batch losses of the epoch.
        metrics: Sums of the step metrics of the epoch, by name.
        best: Best score on the validation photos so far; None before there is one.
        best_step: The step of the best score.
        refitted: Form of the classifier that was computed after the last step, if its score is the
            best.
        judged: The best score as epochs are compared: on classes of uneven size, photos of rare
            ones weigh more.
        start: Score on the validation photos before the first step; None without such photos, or
            before it is known.
        head: Where the classifier comes from; see `Start`.
        head_images: Training photos that it was computed from.
        estimate: Its cross-validated score on these; None if unknown.
        further: Whether the run began with the values of another run.
        started: Whether the values before the first step have been validated and saved.
        trained: The best score of an epoch, as epochs are compared; the start does not count.
        stale: Epochs since this score.
        metrics_bytes: Length of metrics.jsonl.
        finished: Why the run has ended: `steps`, `patience` or `time`; None while it is running.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    loss_sum: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    best: Score | None = None
    best_step: int = 0
    refitted: str | None = None
    judged: Score | None = None
    start: Score | None = None
    head: str = "random"
    head_images: int = 0
    estimate: Score | None = None
    further: bool = False
    started: bool = False
    trained: Score | None = None
    stale: int = 0
    metrics_bytes: int = 0
    finished: str | None = None

    def count_step(self, loss: float, metrics: Mapping[str, float]) -> None:
        """Add a step to the current epoch."""
        self.step += 1
        self.batch += 1
        self.loss_sum += loss
        for name, value in metrics.items():
            self.metrics[name] = self.metrics.get(name, 0) + value

    def next_epoch(self) -> None:
        """Begin the next epoch."""
        self.epoch += 1
        self.batch, self.loss_sum, self.metrics = 0, 0.0, {}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Counters:
        """Counters from the dictionary of `dataclasses.asdict`."""
        names = ("best", "judged", "start", "estimate", "trained")
        return cls(**{**values, **{name: _score(values[name]) for name in names}})


@dataclass
class TrainState:
    """The state of a run, which changes from step to step.

    Attributes:
        engine: Computes gradients and predictions; holds parameters and statistics.
        optimizer: Updates the engine's parameters.
        counters: The progress of the run.
    """

    engine: Engine
    optimizer: Optimizer
    counters: Counters


@dataclass(frozen=True)
class Checkpoint:
    """Everything that is needed to resume a run. Saving does not copy the arrays.

    Attributes:
        parameters: The trained parameters by state-dict name.
        statistics: The running statistics by state-dict name.
        optimizer: The state of the optimizer; see `Optimizer.state`.
        counters: The progress of the run.
        settings: The settings of the run.
        photos: Absolute path of the run's photos.
        identity: The kit, photos and classes that the checkpoint belongs to.
        trained: Checksums (n,) of the names of the training photos, uint32.
        shortened: Whether a limit of time left room for fewer steps than the run was asked for.
        validates: Number of validation photos; it may have left room for a part of them, too. None
            for all.
        most: The limit of training and of validation photos that a short trial has; None for all.
        earlier: The checksums of the names of photos that the runs before this one were trained
            on, which led to its first values; None without any.
    """

    parameters: State
    statistics: State
    optimizer: State
    counters: Counters
    settings: TrainSettings
    photos: str
    identity: RunIdentity
    trained: NDArray[np.uint32]
    shortened: bool = False
    validates: int | None = None
    most: int | None = None
    earlier: NDArray[np.uint32] | None = None

    @property
    def seen(self) -> NDArray[np.uint32]:
        """Checksums (n,) of the names of all photos that led to the values."""
        return self.trained if self.earlier is None else np.append(self.trained, self.earlier)

    def save(self, path: Path) -> None:
        """Replace `path`, atomically.

        Raises:
            PocketuneError: It cannot be written; the previous checkpoint is unchanged.
        """
        tensors = {
            f"{group}/{name}": array
            for group in _GROUPS
            for name, array in getattr(self, group).items()
        }
        tensors[_TRAINED] = self.trained.view(np.uint8)
        if self.earlier is not None:
            tensors[_EARLIER] = self.earlier.view(np.uint8)
        metadata = {
            "counters": asdict(self.counters),
            "settings": self.settings.to_dict(),
            "photos": self.photos,
            "identity": asdict(self.identity),
            "shortened": self.shortened,
            "validates": self.validates,
            "most": self.most,
        }
        write_tensors(path, tensors, kind="checkpoint", metadata=metadata)

    @classmethod
    def load(cls, path: RunFile) -> Checkpoint:
        """Read a checkpoint.

        Raises:
            PocketuneError: The file is missing, truncated, or not a checkpoint; or another version
                of Pocketune saved it.
        """
        tensors, metadata = read_tensors(path, kind="checkpoint", codes=True)
        _require_same_fields(metadata, path)
        groups: dict[str, State] = {group: {} for group in _GROUPS}
        try:
            trained, earlier = tensors.pop(_TRAINED), tensors.pop(_EARLIER, None)
            for key, array in tensors.items():
                group, _, name = key.partition("/")
                groups[group][name] = array
            identity = metadata["identity"]
            return cls(
                **groups,
                counters=Counters.from_dict(metadata["counters"]),
                settings=TrainSettings.from_dict(metadata["settings"]),
                photos=metadata["photos"],
                identity=RunIdentity(
                    identity["kit"], identity["photos"], tuple(identity["classes"])
                ),
                trained=trained.view("<u4"),
                shortened=metadata["shortened"],
                validates=metadata["validates"],
                most=metadata["most"],
                earlier=None if earlier is None else earlier.view("<u4"),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise PocketuneError(f"{path} is not a complete checkpoint ({error})") from error

    def require_fits(self, kit: Kit, path: RunFile) -> None:
        """Check that this checkpoint, read from `path`, belongs to a kit.

        Raises:
            PocketuneError: It belongs to another kit, or its tensors are not the kit's.
        """
        if self.identity.kit != kit.identity:
            raise PocketuneError(f"{path} is a checkpoint of another kit, not of {kit.path}")
        shapes = {k: v.shape for k, v in {**self.parameters, **self.statistics}.items()}
        if shapes != kit.manifest.shapes(len(self.identity.classes)):
            raise PocketuneError(f"{path} does not hold the tensors that its kit trains")


def _require_same_fields(metadata: Mapping[str, Any], path: RunFile) -> None:
    """Refuse a checkpoint of another version, whose run would not go on as it began.

    One without `most` validated on another part of the photos where there was not time for all of
    them, and weighed accumulated batches otherwise.
    """
    is_same = "most" in metadata
    for part, kind in (("settings", TrainSettings), ("counters", Counters)):
        stored = metadata.get(part)
        if isinstance(stored, dict):
            is_same &= stored.keys() == {each.name for each in fields(kind)}
    if not is_same:
        raise PocketuneError(
            f"{path} was saved by another version of Pocketune: resume the run with that "
            "version, or start a new run from this one, which keeps what it has learned"
        )


@dataclass(frozen=True)
class TrainedNetwork:
    """The values of the best epoch, under their state-dict names.

    Attributes:
        state: Parameters and statistics by state-dict name.
        classes: Class names in the order of the logits.
        kit: Hash of the manifest of the kit that they belong to.
        step: Completed optimizer steps.
        score: Score on the validation photos; None without validation photos.
    """

    state: State
    classes: tuple[str, ...]
    kit: str
    step: int
    score: Score | None

    def save(self, path: Path) -> None:
        """Replace `path`, atomically.

        Raises:
            PocketuneError: It cannot be written; the previous file is unchanged.
        """
        metadata = {
            "classes": self.classes,
            "kit": self.kit,
            "step": self.step,
            "score": asdict(self.score) if self.score else None,
        }
        write_tensors(path, self.state, kind="trained network", metadata=metadata)

    @classmethod
    def load(cls, path: RunFile) -> TrainedNetwork:
        """Read trained values.

        Raises:
            PocketuneError: The file is missing, truncated, or holds something else.
        """
        state, metadata = read_tensors(path, kind="trained network")
        try:
            return cls(
                state=state,
                classes=tuple(metadata["classes"]),
                kit=metadata["kit"],
                step=metadata["step"],
                score=_score(metadata["score"]),
            )
        except (KeyError, TypeError) as error:
            raise PocketuneError(f"{path} is not a complete trained network ({error})") from error

    @staticmethod
    def load_into(engine: Engine, path: Path) -> None:
        """Copy the values of a file into an engine, with one tensor at a time in memory.

        Raises:
            PocketuneError: The file is missing, truncated, or holds something else.
        """
        arrays = {**engine.parameters, **engine.statistics}
        copy_tensors(path, arrays, kind="trained network")


def trained_names(kit: Kit) -> NDArray[np.uint32] | None:
    """Checksums (n,) of the names of the photos that a run and those before it were trained on.

    None for a kit, and for a run whose checkpoint cannot be read: its best values may be used all
    the same.
    """
    last = kit.find(LAST)
    if last is None:
        return None
    try:
        names = _TRAINED, _EARLIER
        tensors, _ = read_tensors(last, kind="checkpoint", codes=True, only=names)
        trained = tensors[_TRAINED]
        every = np.append(trained, tensors.get(_EARLIER, trained[:0])).view("<u4")
        return distinct(every).astype(np.uint32)
    except (PocketuneError, KeyError):
        return None


def _score(values: dict[str, Any] | None) -> Score | None:
    return None if values is None else Score(**values)


class Saver:
    """Writes the checkpoints and the best network of a run to its folder."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._saved_at = time.monotonic()

    def is_due(self, counters: Counters) -> bool:
        """Whether a checkpoint is due, by steps or by seconds."""
        every = self._run.settings.checkpoint_every
        seconds = self._run.settings.checkpoint_seconds
        if every is not None and counters.step % every == 0:
            return True
        return seconds is not None and time.monotonic() - self._saved_at >= seconds

    def save(self, state: TrainState) -> None:
        """Write `last.safetensors`."""
        Checkpoint(
            parameters=state.engine.parameters,
            statistics=state.engine.statistics,
            optimizer=state.optimizer.state(),
            counters=state.counters,
            settings=self._run.settings,
            photos=str(self._run.photos.path),
            identity=self._run.identity,
            trained=name_digests(self._run.photos.splits.train.names),
            shortened=self._run.shortened,
            validates=len(self._run.photos.splits.val),
            most=self._run.photos.most,
            earlier=self._run.earlier,
        ).save(self._run.folder / LAST)
        self._saved_at = time.monotonic()

    def save_best(self, state: TrainState) -> None:
        """Write `best.safetensors`."""
        values = {**state.engine.parameters, **state.engine.statistics}
        adjustment = self._run.adjustment
        TrainedNetwork(
            state=values if adjustment is None else adjustment.remove_from(values),
            classes=self._run.identity.classes,
            kit=self._run.identity.kit,
            step=state.counters.best_step,
            score=state.counters.best,
        ).save(self._run.folder / BEST)
