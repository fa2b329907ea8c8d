"""The photos of a run: divided, in the order of the kit's classes, and recognized again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketune.data import Loader, Skipped, Splits, load_splits
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from pocketune.device.train.settings import TrainSettings
    from pocketune.kit.kit import Kit


@dataclass(frozen=True)
class Photos:
    """Photos to train on and to validate with.

    Attributes:
        splits: The photos by name.
        training: Those to train on, a step at a time.
        validation: Those to validate with; None where there are none.
    """

    splits: Splits
    training: Loader
    validation: Loader | None

    @classmethod
    def open(
        cls, settings: TrainSettings, kit: Kit, classes: tuple[str, ...] | None = None
    ) -> Photos:
        """Find and divide the photos that the settings name; none is decoded yet.

        Args:
            settings: Of the run.
            kit: Gives the size of photos and batches.
            classes: The order of the classes. Where it is not given and the classes are the
                kit's, it is the kit's order, so that its output layer stays of use.

        Raises:
            PocketuneError: They cannot be used, or are fewer than a batch.
        """
        splits = _load(settings, kit, classes)
        known = kit.manifest.classes
        if splits.classes != known and set(splits.classes) == set(known):
            splits = _load(settings, kit, known)
        size, batch, seed = kit.manifest.size, kit.manifest.batch, settings.seed
        step = batch * settings.accumulate
        require_batch(len(splits.train), batch, settings.accumulate)
        training = Loader(splits.train, size=size, batch=step, train=True, seed=seed)
        validation = Loader(splits.val, size=size, batch=batch, train=False)
        return cls(splits, training, validation if len(splits.val) else None)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the labels."""
        return self.splits.classes

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Files that were left out so far, with the reason."""
        later = self.validation.skipped if self.validation else ()
        return (*self.splits.skipped, *self.training.skipped, *later)

    def fingerprint(self) -> str:
        """What a resumed run needs to find unchanged."""
        return self.splits.fingerprint()


def require_batch(images: int, batch: int, accumulate: int) -> None:
    """Refuse to train on fewer images than a step has.

    Raises:
        PocketuneError: Naming what makes a smaller step.
    """
    if images >= batch * accumulate:
        return
    if images >= batch:
        remedy = f"accumulate fewer than {accumulate} batches"
    else:
        remedy = (
            "train with a kit of a smaller batch, as --network NAME --batch "
            f"{images} or pocketune kit build makes one"
        )
    raise PocketuneError(
        f"a batch of {batch * accumulate} is larger than the data, {images} training images; add "
        f"images, or {remedy}"
    )


def _load(settings: TrainSettings, kit: Kit, classes: tuple[str, ...] | None) -> Splits:
    return load_splits(
        settings.photos,
        val_fraction=settings.val_fraction,
        seed=settings.seed,
        classes=classes,
        attributes=kit.manifest.has_attributes,
    )
