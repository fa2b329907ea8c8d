"""What a run writes: the state that the rest of it depends on, and the network that it trained."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pocketune.device.train.folder import Run, RunIdentity
from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.kit.names import BEST, LAST
from pocketune.kit.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from pathlib import Path

    from pocketune.arrays import State
    from pocketune.device.engine.base import Engine
    from pocketune.device.train.optimizer import Optimizer
    from pocketune.kit.kit import Kit

_GROUPS = ("parameters", "statistics", "optimizer")


@dataclass
class Counters:
    """Where a run stands.

    Attributes:
        step: Optimizer steps done.
        epoch: The epoch in progress, from 0.
        batch: Batches of that epoch done; with the seed, the whole position in the data.
        loss_sum: Sum of the batch losses of that epoch.
        correct: Images of that epoch classified correctly while training, as ``Gradients`` counts.
        best_accuracy: Best share of right guesses on the validation photos so far.
        best_loss: Validation loss of the same epoch.
        best_step: The step it was reached at.
        stale: Epochs since then.
        metrics_bytes: Length of metrics.jsonl.
        finished: Why the run is over: ``steps`` or ``patience``; None while it is not.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    loss_sum: float = 0.0
    correct: float = 0
    best_accuracy: float | None = None
    best_loss: float | None = None
    best_step: int = 0
    stale: int = 0
    metrics_bytes: int = 0
    finished: str | None = None

    def is_better(self, accuracy: float, loss: float) -> bool:
        """Whether a validation is better than the best so far; the loss decides a tie."""
        if self.best_accuracy is None or self.best_loss is None:
            return True
        return (accuracy, -loss) > (self.best_accuracy, -self.best_loss)


@dataclass
class TrainState:
    """What changes from step to step.

    Attributes:
        engine: Computes gradients and predictions; holds parameters and statistics.
        optimizer: Updates the engine's parameters.
        counters: Where the run stands.
    """

    engine: Engine
    optimizer: Optimizer
    counters: Counters


@dataclass(frozen=True)
class Checkpoint:
    """All that the rest of a run depends on. The arrays may be live: saving copies none.

    Attributes:
        parameters: What is trained, by state-dict name.
        statistics: Running statistics, by state-dict name.
        optimizer: What :meth:`Optimizer.state` gives.
        counters: Where the run stands.
        settings: How the run trains.
        photos: Absolute path of its photos.
        identity: What it belongs to.
    """

    parameters: State
    statistics: State
    optimizer: State
    counters: Counters
    settings: TrainSettings
    photos: str
    identity: RunIdentity

    def save(self, path: Path) -> None:
        """Replace ``path``, atomically.

        Raises:
            PocketuneError: It cannot be written; the checkpoint before it is as it was.
        """
        tensors = {
            f"{group}/{name}": array
            for group in _GROUPS
            for name, array in getattr(self, group).items()
        }
        metadata = {
            "counters": asdict(self.counters),
            "settings": self.settings.to_dict(),
            "photos": self.photos,
            "identity": asdict(self.identity),
        }
        write_tensors(path, tensors, kind="checkpoint", metadata=metadata)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read a checkpoint.

        Raises:
            PocketuneError: The file is missing, truncated, or not a checkpoint.
        """
        tensors, metadata = read_tensors(path, kind="checkpoint")
        groups: dict[str, State] = {group: {} for group in _GROUPS}
        try:
            for key, array in tensors.items():
                group, _, name = key.partition("/")
                groups[group][name] = array
            identity = metadata["identity"]
            return cls(
                **groups,
                counters=Counters(**metadata["counters"]),
                settings=TrainSettings.from_dict(metadata["settings"]),
                photos=metadata["photos"],
                identity=RunIdentity(
                    identity["kit"], identity["photos"], tuple(identity["classes"])
                ),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise PocketuneError(f"{path} is not a complete checkpoint ({error})") from error

    def require_fits(self, kit: Kit, path: Path) -> None:
        """Check that this checkpoint, read from ``path``, belongs to a kit.

        Raises:
            PocketuneError: It belongs to another kit, or its tensors are not the kit's.
        """
        if self.identity.kit != kit.identity:
            raise PocketuneError(f"{path} is a checkpoint of another kit, not of {kit.path}")
        shapes = {k: v.shape for k, v in {**self.parameters, **self.statistics}.items()}
        if shapes != kit.manifest.shapes(len(self.identity.classes)):
            raise PocketuneError(f"{path} does not hold the tensors that its kit trains")


@dataclass(frozen=True)
class TrainedNetwork:
    """The values of the best epoch, under their state-dict names.

    Attributes:
        state: Parameters and statistics by state-dict name.
        classes: Class names in the order of the logits.
        kit: Hash of the manifest of the kit they belong to.
        step: Optimizer steps done.
        accuracy: Share of right guesses on the validation photos; None where there were none.
        loss: Mean loss on them.
    """

    state: State
    classes: tuple[str, ...]
    kit: str
    step: int
    accuracy: float | None
    loss: float | None

    def save(self, path: Path) -> None:
        """Replace ``path``, atomically.

        Raises:
            PocketuneError: It cannot be written; the file before it is as it was.
        """
        metadata = {
            "classes": self.classes,
            "kit": self.kit,
            "step": self.step,
            "accuracy": self.accuracy,
            "loss": self.loss,
        }
        write_tensors(path, self.state, kind="trained network", metadata=metadata)

    @classmethod
    def load(cls, path: Path) -> TrainedNetwork:
        """Read trained values.

        Raises:
            PocketuneError: The file is missing, truncated, or holds something else.
        """
        state, metadata = read_tensors(path, kind="trained network")
        try:
            return cls(
                state=state,
                classes=tuple(metadata["classes"]),
                **{key: metadata[key] for key in ("kit", "step", "accuracy", "loss")},
            )
        except (KeyError, TypeError) as error:
            raise PocketuneError(f"{path} is not a complete trained network ({error})") from error


class Saver:
    """Writes the checkpoints and the best network of a run to its folder."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._saved_at = time.monotonic()

    def is_due(self, counters: Counters) -> bool:
        """Whether as many steps or seconds have passed as the settings say."""
        every = self._run.settings.checkpoint_every
        seconds = self._run.settings.checkpoint_seconds
        if every is not None and counters.step % every == 0:
            return True
        return seconds is not None and time.monotonic() - self._saved_at >= seconds

    def save(self, state: TrainState) -> None:
        """Write ``last.safetensors``."""
        Checkpoint(
            parameters=state.engine.parameters,
            statistics=state.engine.statistics,
            optimizer=state.optimizer.state(),
            counters=state.counters,
            settings=self._run.settings,
            photos=str(self._run.photos.path),
            identity=self._run.identity,
        ).save(self._run.folder / LAST)
        self._saved_at = time.monotonic()

    def save_best(self, state: TrainState) -> None:
        """Write ``best.safetensors``."""
        TrainedNetwork(
            state={**state.engine.parameters, **state.engine.statistics},
            classes=self._run.identity.classes,
            kit=self._run.identity.kit,
            step=state.counters.best_step,
            accuracy=state.counters.best_accuracy,
            loss=state.counters.best_loss,
        ).save(self._run.folder / BEST)
