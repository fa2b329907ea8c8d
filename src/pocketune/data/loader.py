"""Batches of decoded images, prepared by threads while the training step runs.

The content of a batch depends only on the seed, the epoch and its position, never on which thread
was faster: every image has its own random stream, and batches are returned in order. Threads are
enough, because Pillow releases Python's lock while it decodes and resizes.
"""

from __future__ import annotations

import math
import signal
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pocketune.data.images.decode import oriented_size
from pocketune.data.images.opening import UnreadableImage, open_image, reading_image
from pocketune.data.images.transforms import Pixels, apply, center_view, random_view
from pocketune.data.streams import Purpose, random_stream
from pocketune.errors import PocketuneError, check_positive, printable
from pocketune.files import Skipped
from pocketune.tasks import Seen

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from pocketune.data.dataset import ImageDataset
    from pocketune.tasks import Labels, Task, View

_REFUSED = "cannot schedule new futures"
AHEAD = 2  # batches being prepared; more would only cost memory


@dataclass(frozen=True, eq=False)
class Batch:
    """Images as the kit's graphs take them.

    Attributes:
        images: uint8 (B, size, size, 3), red, green, blue.
        labels: (B, ...), as the task collates them.
        names: The images' files.
        seen: The part of each image that is in the batch.
    """

    images: npt.NDArray[np.uint8]
    labels: Labels
    names: tuple[str, ...]
    seen: tuple[Seen, ...] = ()


class Sample(NamedTuple):
    """A decoded image, its position in the dataset, and its label as a batch has it."""

    position: int
    pixels: Pixels
    label: Any
    seen: Seen


@dataclass
class Failures:
    """Images that could not be decoded.

    Attributes:
        reported: Only those before this position count.
        reasons: Why, by position.
    """

    reported: int
    reasons: dict[int, str] = field(default_factory=dict)


class Loader:
    """Cuts a dataset into batches, one epoch at a time.

    For training, images come in random order, randomly cropped and mirrored. An incomplete last
    batch is dropped. If the images are fewer than a batch, the only batch has some of them again,
    cropped differently. An image that cannot be decoded is replaced by the next one in the dataset
    that can. For evaluation, center crops come in the order of the dataset, and an image that
    cannot be decoded is missing from its batch. A task may choose other views.

    Args:
        dataset: The images.
        size: Height and width of the squares, in pixels.
        batch: Images in a batch.
        train: Whether the images are for training or for evaluation.
        seed: Seed of order and crops.
        workers: Number of decoding threads. Each holds one decoded image at a time.
        task: The task that chooses the views; by default that of the labels.
        draws: Number of different crops of each training image; epochs after so many repeat them.
            By default, every epoch draws new ones.

    Raises:
        PocketuneError: An argument is invalid, or there is no training image.
    """

    def __init__(
        self,
        dataset: ImageDataset,
        *,
        size: int,
        batch: int,
        train: bool,
        seed: int = 0,
        workers: int = 2,
        task: Task | None = None,
        draws: int | None = None,
    ) -> None:
        check_positive(size=size, batch=batch, workers=workers, draws=draws or 1)
        if seed < 0:
            raise PocketuneError(f"seed={seed} is negative; give 0 or more")
        if train and not len(dataset):
            raise PocketuneError("there are no training images; add some")
        self.dataset = dataset
        self.size = size
        self.batch = batch
        self.train = train
        self.seed = seed
        self.workers = workers
        self.draws = draws
        self._task = task or dataset.task
        self._failures = Failures(reported=len(dataset) if train else 0)

    @property
    def turns(self) -> int:
        """How often an image may be in an epoch: more than once if they are fewer than a batch."""
        return math.ceil(self.batch / max(1, len(self.dataset))) if self.train else 1

    def part(self, indices: npt.NDArray[np.int64]) -> Loader:
        """A loader that evaluates the images at `indices` alone, in that order."""
        part = self.dataset.subset(indices)
        return Loader(part, size=self.size, batch=self.batch, train=False, workers=self.workers)

    def __len__(self) -> int:
        """Batches in an epoch."""
        whole, rest = divmod(len(self.dataset), self.batch)
        return max(1, whole) if self.train else whole + (rest > 0)

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Images that could not be decoded so far, in the dataset's order.

        In an evaluation, only images of the returned batches count, not those decoded ahead.
        """
        failed = sorted(self._failures.reasons.copy().items())  # threads may be adding
        names, reported = self.dataset.names, self._failures.reported
        return tuple(Skipped(printable(names[i]), why) for i, why in failed if i < reported)

    def undecodable(self) -> PocketuneError:
        """The error that none of the training images can be decoded, with the first reason."""
        first = self.skipped[0]
        return PocketuneError(
            f"none of the {len(self.dataset)} training images can be decoded; the first, "
            f"{first.name}: {first.reason}"
        )

    def epoch(self, epoch: int, start: int = 0) -> Generator[Batch, None, None]:
        """The batches of an epoch, from number `start` on; closing it ends the threads.

        A resumed run gets exactly the batches that an uninterrupted run would have got.

        Raises:
            PocketuneError: None of the training images can be decoded.
        """
        # Not a loop, whose variable would hold the images of a batch that is in use already.
        samples = self.decoded(self.draw(epoch), self.chosen(epoch, start))
        yield from map(self.collated, filter(None, samples))

    def draw(self, epoch: int) -> int:
        """The number of the crops that an epoch sees."""
        return epoch % self.draws if self.draws else epoch

    def chosen(self, epoch: int, start: int = 0) -> Iterator[list[int]]:
        """The images of each batch by position, from batch `start` on; further turns count on."""
        order = self._order(epoch)
        for number in range(start, len(self)):
            yield order[number * self.batch : (number + 1) * self.batch].tolist()

    def decoded(
        self, draw: int, groups: Iterable[list[int]]
    ) -> Generator[list[Sample], None, None]:
        """The images of each group, as `chosen` names them; unreadable ones are replaced.

        The groups are taken a few ahead of the images that are returned.
        """
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="pocketune-decode")
        pending: deque[tuple[list[int], list[Future[Sample | None]]]] = deque()
        try:
            for group in groups:
                with _while_running():
                    futures = [pool.submit(self._sample, draw, i) for i in group]
                pending.append((group, futures))
                if len(pending) > AHEAD:
                    yield self._collect(*pending.popleft())
            while pending:
                yield self._collect(*pending.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _order(self, epoch: int) -> npt.NDArray[np.integer]:
        """Positions of the images; from the number of images on, they begin again."""
        count = len(self.dataset)
        if not self.train:
            return np.arange(count)
        order = random_stream(self.seed, Purpose.ORDER, epoch).permutation(count)
        if count >= self.batch:
            return order.astype(np.uint32)  # it is held for the whole epoch
        turns = np.arange(self.batch) // count
        return np.resize(order, len(turns)) + count * turns

    def _collect(self, group: list[int], pending: list[Future[Sample | None]]) -> list[Sample]:
        samples = [sample for sample in (future.result() for future in pending) if sample]
        reported = max(group, default=-1) + 1
        self._failures.reported = max(self._failures.reported, reported)
        return samples

    def collated(self, samples: Sequence[Sample]) -> Batch:
        """A batch of decoded images."""
        return Batch(
            np.stack([sample.pixels for sample in samples]),
            self.labels([sample.label for sample in samples]),
            tuple(self.dataset.names[sample.position] for sample in samples),
            tuple(sample.seen for sample in samples),
        )

    def labels(self, labels: Sequence[Any]) -> Labels:
        """The labels of a batch, as the task collates them."""
        return (self.dataset.task.collate if self.dataset.task else np.stack)(labels)

    def _sample(self, draw: int, index: int) -> Sample | None:
        """The image at `index`; for training, the next one that can be decoded.

        An index past the last image is an image's further turn, with a crop of its own.
        """
        count = len(self.dataset)
        for candidate in range(index, index + (count if self.train else 1)):
            sample = self._seen(candidate % count, draw, index)
            if sample is not None:
                return sample
        if not self.train:
            return None
        raise self.undecodable()

    def _seen(self, index: int, draw: int, drawn: int) -> Sample | None:
        """The image at `index`, with the crop of the one `drawn`; None if it is damaged."""
        if index in self._failures.reasons:
            return None
        name = self.dataset.names[index]
        try:
            with reading_image(name), self.dataset.open(index) as file, open_image(file) as image:
                width, height = oriented_size(image)
                label = self.dataset.label(index, width, height)
                view = self._view(label, width, height, draw, drawn)
                pixels = apply(image, view)
        except UnreadableImage as error:
            self._failures.reasons[index] = error.reason
            return None
        if task := self.dataset.task:
            label = (task.transform if self.train else task.truth)(label, view)
        return Sample(index, pixels, label, Seen(width, height, view.box))

    def _view(self, label: Labels, width: int, height: int, draw: int, drawn: int) -> View:
        task, size = self._task, self.size
        if not self.train:
            chosen = task.evaluation_view(width, height, size) if task else None
            return chosen or center_view(width, height, size)
        rng = random_stream(self.seed, Purpose.CROP, draw, drawn)
        chosen = task.training_view(label, width, height, size, rng) if task else None
        return chosen or random_view(width, height, size, rng)


@contextmanager
def _while_running() -> Iterator[None]:
    """Turn the refusal of a pool into an interrupt: the main thread has ended.

    Python then waits for the other threads, but their pools take nothing more.
    """
    try:
        yield
    except RuntimeError as error:
        if _REFUSED not in str(error):
            raise
        raise KeyboardInterrupt(int(signal.SIGTERM)) from None


def sample(
    photos: ImageDataset, *, size: int, count: int, batch: int = 8, task: Task | None = None
) -> Iterator[Batch]:
    """About `count` of the images, evenly spread over each group, cropped as for evaluation.

    Every call returns the same images. Images that cannot be decoded are left out.

    Args:
        photos: The dataset.
        size: Height and width of the crops, in pixels.
        count: Number of images; up to twice as many are taken.
        batch: Images in each batch.
        task: The task that chooses the views; by default that of the labels.
    """
    chosen = photos.subset(photos.spread(count))
    return Loader(chosen, size=size, batch=batch, train=False, task=task).epoch(0)
