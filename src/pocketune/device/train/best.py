"""What a run is for: the trained values, for everything that uses or passes on the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketune.errors import PocketuneError
from pocketune.kit.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from pathlib import Path

    from pocketune.arrays import State


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
