"""What all candidates of a plan are measured with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketune.planner.predict import predict_cost
from pocketune.planner.probe import run_probe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pocketune.data import ImageDataset
    from pocketune.data.images.cost import Decoding
    from pocketune.device.train.settings import TrainSettings
    from pocketune.kit.manifest import Manifest
    from pocketune.planner.candidate import Cost
    from pocketune.planner.trial import Length, Probe, Trial


@dataclass(frozen=True)
class PlanContext:
    """Photos, settings and the process of every run.

    Attributes:
        path: Path of the photos.
        photos: The training photos, labeled.
        settings: The settings of every run.
        process: Resident bytes of a training process before it opens a kit.
        folder: Folder of the plan, for kits and short runs.
        decoding: What decoding the photos takes, for a size of the images.
    """

    path: Path
    photos: ImageDataset
    settings: TrainSettings
    process: int
    folder: Path
    decoding: Callable[[int], Decoding | None]

    def cost(
        self, manifest: Manifest, accumulate: int, settings: TrainSettings | None = None
    ) -> Cost:
        """What a run on the photos takes, without running anything.

        Args:
            manifest: The manifest of the kit or its draft.
            accumulate: Batches in a step.
            settings: The settings of the run, if they are not those of every run.
        """
        return predict_cost(
            manifest,
            settings or self.settings,
            process=self.process,
            classes=len(self.photos.classes),
            accumulate=accumulate,
            decoding=self.decoding(manifest.size),
        )

    def probe(self, trial: Trial, kit: Path, length: Length) -> Probe:
        """A short run of a trial's kit on the photos.

        Raises:
            PocketuneError: See `run_probe`.
        """
        return run_probe(kit, self.path, trial.settings(self.settings), self.folder, length)
