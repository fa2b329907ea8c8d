"""What a run reports while it works, and to whom."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pocketune.tasks import Score


@dataclass(frozen=True)
class StepReport:
    """A completed step.

    Attributes:
        step: Completed steps.
        steps: Steps of the whole run.
        epoch: The current epoch, from 1.
        epochs: Epochs of the whole run.
        training: Mean loss and metric of this epoch's steps so far.
        rate: Images per second, including decoding and waiting.
        seconds_left: Expected time until the last step.
        memory: Peak resident bytes of the process.
        budget: Bytes that the process may take; None for no limit.
    """

    step: int
    steps: int
    epoch: int
    epochs: int
    training: Score
    rate: float
    seconds_left: float
    memory: int
    budget: int | None


@dataclass(frozen=True)
class EpochReport:
    """A completed epoch.

    Attributes:
        epoch: The epoch, from 1.
        epochs: Epochs of the whole run.
        training: Mean loss and metric of the epoch's steps.
        validation: Mean loss and metric of the validation photos; None without validation photos.
        best: Whether it is the best epoch so far.
        stale: Epochs since the best of them; the start does not count.
        patience: Number of such epochs at which the run stops early; 0 if it never does.
    """

    epoch: int
    epochs: int
    training: Score
    validation: Score | None
    best: bool
    stale: int = 0
    patience: int = 0


@dataclass(frozen=True)
class PhotosReport:
    """Photos whose embeddings are computed, before the first step or after the last one.

    Attributes:
        purpose: What they are computed for, in the words of the line.
        done: Photos whose embeddings are known.
        photos: All photos of this pass.
        seconds_left: Expected time until all are known, or the time for them is over.
    """

    purpose: str
    done: int
    photos: int
    seconds_left: float


@dataclass(frozen=True)
class StartReport:
    """What a run starts from.

    Attributes:
        head: Where the classifier comes from: `class means`, `LDA`, `ridge`, `kept` from
            the kit, or `random`.
        images: Training photos that it was computed from.
        estimate: Its cross-validated score on these; for a kept one, its score. None if unknown.
        validation: Score on the validation photos; None without validation photos.
        photos: All training photos.
        imbalance: Training photos of the largest class for each of the smallest.
        balance: How much rare classes count beyond their number of photos; None without steps.
        factor: On the outputs of a computed classifier in the first step; see `temper`.
    """

    head: str
    images: int
    estimate: Score | None
    validation: Score | None
    photos: int
    imbalance: float = 1.0
    balance: float | None = None
    factor: float = 1.0


@dataclass(frozen=True)
class RefitReport:
    """A classifier that was computed again, after the last step.

    Attributes:
        head: Its form: `class means`, `LDA` or `ridge`.
        validation: Score on the validation photos; None if none of them could be decoded.
        best: Whether it is better than the start and all epochs.
    """

    head: str
    validation: Score | None
    best: bool


class Progress:
    """Receives the start, each step, each epoch, and the classifier computed after the last one.

    A display overrides what it shows.
    """

    def note(self, text: str) -> None:
        """Called with a line about how the run works."""

    def photos(self, report: PhotosReport) -> None:
        """Called after each batch of photos whose embeddings are computed."""

    def counting(self, purpose: str) -> Callable[[int, int], None]:
        """Gives `photos` the number of files that are done and of all, with the time left."""
        began = time.monotonic()

        def show(done: int, files: int) -> None:
            left = (time.monotonic() - began) / done * (files - done)
            self.photos(PhotosReport(purpose, done, files, left))

        return show

    def start(self, report: StartReport) -> None:
        """Called before the first step, unless the run is resumed after it."""

    def step(self, report: StepReport) -> None:
        """Called after each step."""

    def epoch(self, report: EpochReport) -> None:
        """Called after each epoch."""

    def refit(self, report: RefitReport) -> None:
        """Called when the classifier has been computed again."""

    def close(self) -> None:
        """Called when the run has ended or was stopped."""


@contextmanager
def closed_on_error(progress: Progress) -> Iterator[None]:
    """End what a display shows if an error ends the context, so that its message has a line."""
    try:
        yield
    except BaseException:
        progress.close()
        raise


class Silent(Progress):
    """Shows nothing."""
