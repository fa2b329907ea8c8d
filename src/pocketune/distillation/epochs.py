"""The epochs of a training: their photos, the line that shows them, and the files they leave."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pocketune.data import Loader
from pocketune.device.train.progress import Progress
from pocketune.distillation.checkpoint import EpochCheckpoint
from pocketune.distillation.display import StepDisplay
from pocketune.distillation.fabric import device_batches


@dataclass(frozen=True)
class Epochs:
    """What is around the steps of a training, on one or several devices.

    Attributes:
        checkpoint: What a stopped run resumes from.
        loader: The photos of this process.
        fabric: The Lightning Fabric, launched.
        write: Writes the network that is trained to its file.
    """

    checkpoint: EpochCheckpoint
    loader: Loader
    fabric: Any
    write: Callable[[], None]

    def display(self, epochs: int, done: int, progress: Progress | None) -> StepDisplay:
        """The line for so many epochs, some of which are done; one process shows it."""
        steps = len(self.loader)
        shown = progress if self.fabric.is_global_zero else None
        return StepDisplay(epochs * steps, done * steps, shown)

    def batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Normalized images and labels of an epoch, on this process' device."""
        # for dropout: an epoch draws the same masks in a resumed run
        torch.manual_seed(hash((self.loader.seed, epoch, self.fabric.global_rank)))
        return device_batches(self.checkpoint.network, self.loader, epoch, self.fabric)

    def save(self, done: int) -> None:
        """Write the network, and what a stopped run resumes from, after so many epochs."""
        if self.fabric.is_global_zero:
            self.checkpoint.save(done)
            self.write()
        self.fabric.barrier()

    def finish(self, losses: list[float]) -> None:
        """Remove what a stopped run resumes from.

        Args:
            losses: Of the epochs that this process has trained.
        """
        if self.fabric.is_global_zero:
            if not losses:  # stopped between the last epoch and its file
                self.write()
            self.checkpoint.path.unlink(missing_ok=True)
