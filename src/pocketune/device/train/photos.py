"""The photos of a run: their division, and a fingerprint that detects changes before a resume."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pocketune.data import (
    Loader,
    MaskOptions,
    Purpose,
    Skipped,
    Splits,
    imbalance,
    load_splits,
    random_stream,
)
from pocketune.data.labels.layouts import wrapper
from pocketune.data.names import name_digests
from pocketune.device.train.defaults import TOO_FEW_TO_DIVIDE
from pocketune.errors import counted
from pocketune.files import shown
from pocketune.kit.names import LAST
from pocketune.kit.tensors import read_tensors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pocketune.arrays import StrPath
    from pocketune.data import ImageDataset
    from pocketune.data.masks.numbered import AfterMask
    from pocketune.data.names import Names
    from pocketune.device.train.settings import TrainSettings
    from pocketune.kit.kit import Kit
    from pocketune.kit.manifest import Manifest
    from pocketune.tasks import Task

_NAMED = 6
"""Classes that are named where a run says what it trains on."""


@dataclass(frozen=True)
class Photos:
    """The photos for training and validation.

    Attributes:
        path: Their absolute path: a folder, a CSV or a .zip.
        splits: The photos by name.
        training: Loader of the training photos; a batch is one step.
        validation: Loader of the validation photos; None if there are none.
        sample: Loader of the training photos as they are evaluated, in an order of which any
            beginning is a fair sample.
        most: The limit of each part that a short trial has; None for all photos.
    """

    path: Path
    splits: Splits
    training: Loader
    validation: Loader | None
    sample: Loader
    most: int | None = None

    @classmethod
    def open(
        cls,
        path: StrPath,
        settings: TrainSettings,
        kit: Kit,
        *,
        classes: tuple[str, ...] | None = None,
        after_mask: AfterMask = lambda _done, _all: None,
        most: int | None = None,
        masks: MaskOptions | None = None,
    ) -> Photos:
        """Find and divide photos without decoding them; masks are decoded once.

        Args:
            path: Path of the photos.
            settings: The settings of the run.
            kit: The kit, which sets the size of photos and batches.
            classes: The order of the classes. By default it is the kit's order if the photos have
                the kit's classes, so that its output layer fits them.
            after_mask: Called after each mask with the number of masks that were read and of all.
            most: Take at most so many photos for training and for validation, evenly spread; by
                default all.
            masks: How masks are read; by default as the settings say.

        Raises:
            PocketuneError: The photos cannot be used.
        """
        path = Path(path)
        load = partial(
            load_photos,
            path,
            settings,
            task=kit.manifest.task,
            size=kit.manifest.size,
            after_mask=after_mask,
            masks=masks,
            most=most,
        )
        splits = load(classes=classes)
        known = kit.manifest.classes
        if splits.classes != known and set(splits.classes) == set(known):
            splits = load(classes=known)
        if settings.class_weights == "balanced":
            task = splits.train.labeled.balanced(splits.train.labels)
            splits = replace(splits, train=replace(splits.train, task=task))
        size, batch, seed = kit.manifest.size, kit.manifest.batch, settings.seed
        step = batch * settings.accumulate
        training = Loader(
            splits.train, size=size, batch=step, train=True, seed=seed, draws=settings.draws
        )
        validation = Loader(splits.val, size=size, batch=batch, train=False)
        order = random_stream(seed, Purpose.SAMPLE).permutation(len(splits.train))
        sample = Loader(splits.train.subset(order), size=size, batch=batch, train=False)
        place = path.absolute()  # a run may be resumed in another folder
        validated = validation if len(splits.val) else None
        return cls(place, splits, training, validated, sample, most)

    def validated_on(self, most: int | None) -> Photos:
        """The same with at most so many validation photos, evenly spread; None for all."""
        loader = self.validation
        if loader is None or most is None or len(loader.dataset) <= most:
            return self
        part = loader.dataset.thinned(most)
        fewer = Loader(part, size=loader.size, batch=loader.batch, train=False)
        return replace(self, splits=replace(self.splits, val=part), validation=fewer)

    @property
    def task(self) -> Task:
        """The kit's task, with the classes of the photos."""
        return self.splits.train.labeled

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the labels."""
        return self.splits.classes

    @property
    def imbalance(self) -> float:
        """Training photos of the largest class for each of the smallest; 1 without classes."""
        return imbalance(self.splits.train.groups)

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Files that were skipped so far, with the reason."""
        later = self.validation.skipped if self.validation else ()
        loaders = (*self.sample.skipped, *self.training.skipped, *later)
        return tuple(dict.fromkeys((*self.splits.skipped, *loaders)))

    def describe(self) -> str:
        """What the run trains on, in one line."""
        names = [shown(name, 30) for name in self.classes[:_NAMED]]
        more = ["..."] * (len(self.classes) > _NAMED)
        training, validation = len(self.splits.train), len(self.splits.val)
        return (
            f"photos  {self.task.counted(len(self.classes))} ({', '.join([*names, *more])}), "
            f"{training:,} to train, {f'{validation:,}' if validation else 'none'} to validate"
        )

    def describe_untested(self) -> str | None:
        """What to say of classes that no photo can test; None without any.

        Without validation photos, the classifier is tested on each photo by what the others of its
        class look like.
        """
        train, val = self.splits.train, self.splits.val
        if self.task.strata(train.labels) is None:  # images have no single class
            return None
        counts = np.bincount(train.groups)  # numpy's functions of sets would import masked arrays
        if len(val):
            validated = np.bincount(val.groups, minlength=len(counts))[: len(counts)]
            untested, have = ((counts > 0) & (validated == 0)).sum(), "no photo to validate"
        else:
            untested, have = (counts == 1).sum(), "one photo"
        if not untested:
            return None
        words = ("has", "it is") if untested == 1 else ("have", "they are")
        return (
            f"classes  {untested:,} of {len(self.classes):,} {words[0]} {have}, so nothing "
            f"tells how well {words[1]} recognized"
        )

    def describe_alike(self) -> str | None:
        """What to say of names of classes that differ in their case alone; None without any."""
        first: dict[str, str] = {}
        alike = [(first.setdefault(name.casefold(), name), name) for name in self.classes]
        alike = [(one, other) for one, other in alike if one != other]
        if not alike:
            return None
        one, other = (shown(name, 30) for name in alike[0])
        return (
            f"classes  {one!r} and {other!r} differ only in case, and are learned as two; write "
            "them alike if they are one"
        )

    def describe_seen(self, seen: NDArray[np.uint32] | None) -> str | None:
        """What to say of validation photos that an earlier run was trained on; None without any.

        Args:
            seen: Checksums of the names of its training photos; None without an earlier run.
        """
        if seen is None:
            return None
        count = count_named(self.splits.val.names, self.path, seen)
        if not count:
            return None
        return (
            f"validation  {count:,} of {counted(len(self.splits.val), 'photo')} have the names of "
            "photos that the run was trained on from which this one starts: if they are the same, "
            "scores are too good"
        )

    def fingerprint(self) -> str:
        """Hash of the names and labels, which must not change before a run is resumed."""
        return self.splits.fingerprint()


def count_named(names: Names, place: Path, known: NDArray[np.uint32]) -> int:
    """How many photos have names with these checksums.

    A table beside the folder of the photos, or an archive of it, names the folder too: names are
    also compared without the folder around all of them, and with that of the photos.

    Args:
        names: The names of the photos.
        place: Where these are.
        known: The checksums.
    """
    around = wrapper(names)
    inside = (name.removeprefix(around) for name in names)
    beside = (f"{place.name}/{name}" for name in names)
    return max(int(np.isin(name_digests(each), known).sum()) for each in (names, inside, beside))


def load_photos(
    path: Path,
    settings: TrainSettings,
    *,
    task: Task | None = None,
    classes: tuple[str, ...] | None = None,
    size: int | None = None,
    after_mask: AfterMask = lambda _done, _all: None,
    masks: MaskOptions | None = None,
    most: int | None = None,
) -> Splits:
    """The photos as a run with these settings reads and divides them; see `load_splits`.

    With `most`, at most so many of them train and validate, evenly spread.
    """
    splits = load_splits(
        path,
        val_fraction=settings.val_fraction,
        seed=settings.seed,
        classes=classes,
        task=task,
        masks=masks or mask_options(settings),
        after_mask=after_mask,
        size=size,
        max_pixels=settings.pixels_limit,
    )
    return splits.thinned(most)


def makes_no_steps(splits: Splits, settings: TrainSettings) -> bool:
    """Whether the classifier that is computed from all photos is the result of a run by default.

    So it is with few photos: holding some back, to tell whether steps improve on it, costs more
    than steps gain (docs/uneven.md). So it is, too, where no class has enough to hold some back.
    The user asks for steps by a setting of them, or by a division of the photos.
    """
    if settings.asks_for_steps or settings.head_start == "random":
        return False
    if settings.val_fraction is not None or splits.divided:
        return False
    photos = len(splits.train) + len(splits.val)
    undivided = photos < TOO_FEW_TO_DIVIDE or not len(splits.val)
    return undivided and _has_targets(splits.train)


def has_closed_form(manifest: Manifest, photos: ImageDataset) -> bool:
    """Whether the classifier of a kit for whole images can be computed from such photos.

    Their classes may be more than those that the kit was made for.
    """
    return is_linear(manifest) and _has_targets(photos)


def _has_targets(photos: ImageDataset) -> bool:
    """Whether the labels of photos are targets of a linear regression."""
    return photos.labeled.targets(photos.labels[:1]) is not None


def is_linear(manifest: Manifest) -> bool:
    """Whether the output layer of a kit is a weight and a bias on one vector for each photo."""
    return manifest.embeddings is not None and len(manifest.task.head) == 2


def mask_options(settings: TrainSettings, inherited: tuple[str, ...] | None = None) -> MaskOptions:
    """How a run with these settings reads masks; one that exists, of these classes, may have
    inherited them.
    """
    return MaskOptions(
        ignore=settings.ignore, class_names=settings.class_names, inherited=inherited
    )


def masks_of(kit: Kit, given: MaskOptions) -> MaskOptions:
    """How a run that goes on with another one reads masks: what is not given is as in that one.

    The other photos may lack a class that the run has ignored. A checkpoint of another version will
    do: only these two settings are read.

    Raises:
        PocketuneError: The run's checkpoint is damaged.
    """
    last = kit.find(LAST)
    if last is None:
        return given
    _, metadata = read_tensors(last, kind="checkpoint", codes=True, only=())
    own = metadata.get("settings", {})
    known = () if given.class_names else metadata.get("identity", {}).get("classes", ())
    return MaskOptions(
        ignore=given.ignore or own.get("ignore"),
        class_names=given.class_names or own.get("class_names"),
        inherited=tuple(known) if given.ignore is None else None,
    )
