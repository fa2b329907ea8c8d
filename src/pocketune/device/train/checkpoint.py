"""What a run writes: the state that the rest of it depends on, and the network that it trained."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.kit.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from pathlib import Path

    from pocketune.arrays import State
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


@dataclass(frozen=True)
class RunIdentity:
    """What a checkpoint belongs to; resuming with anything else is an error.

    Attributes:
        kit: Hash of the kit's manifest, which in turn holds the hashes of its files.
        photos: Hash of the training photos' names and labels, in order.
        classes: Class names in the order of the logits.
    """

    kit: str
    photos: str
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Checkpoint:
    """All that the rest of a run depends on. The arrays may be live: saving copies none."""

    parameters: State
    statistics: State
    optimizer: State
    counters: Counters
    settings: TrainSettings
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
