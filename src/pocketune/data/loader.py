"""Batches of decoded images, prepared by threads while the training step runs.

What a batch holds depends on the seed, the epoch and its position alone, never on which thread was
faster: every image has a random stream of its own, and batches are handed out in order. Pillow lets
go of Python's lock while it decodes and resizes, so threads are enough.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from pocketune.data.images import UnreadableImage, open_image, oriented_size, reading_image
from pocketune.data.streams import Purpose, random_stream
from pocketune.data.transforms import Pixels, apply, center_view, random_view
from pocketune.errors import PocketuneError, check_positive
from pocketune.files import Skipped, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from PIL import Image

    from pocketune.data.dataset import ImageDataset
    from pocketune.tasks import Labels, View

AHEAD = 2  # batches being prepared; more would only cost memory


@dataclass(frozen=True, eq=False)
class Batch:
    """Images as the kit's graphs take them.

    Attributes:
        images: uint8 (B, size, size, 3), red, green, blue.
        labels: (B, ...), as the task collates them.
        names: the images' files.
    """

    images: npt.NDArray[np.uint8]
    labels: Labels
    names: tuple[str, ...]


class _Sample(NamedTuple):
    position: int  # in the dataset
    pixels: Pixels
    label: Labels


class Loader:
    """Cuts a dataset into batches, one epoch at a time.

    For training, images come in an order drawn for the epoch, randomly cropped and mirrored, and
    what does not fill the last batch is left for other epochs. An image that cannot be decoded is
    replaced by the next one of the dataset that can. For evaluation, images come in the dataset's
    order, their center cropped; one that cannot be decoded is missing from its batch.

    Args:
        dataset: the images.
        size: sides of the squares, in pixels.
        batch: images in a batch.
        train: random crops in random order, or all images as they are.
        seed: of order and crops.
        workers: threads that decode. Each holds one decoded image at a time.

    Raises:
        PocketuneError: for an impossible argument, or a dataset smaller than a training batch.
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
    ) -> None:
        check_positive(size=size, batch=batch, workers=workers)
        if seed < 0:
            raise PocketuneError(f"seed={seed} is negative; give 0 or more")
        if train and len(dataset) < batch:
            raise PocketuneError(
                f"a batch of {batch} is larger than the data, {len(dataset)} training images; add "
                "images or use a smaller batch"
            )
        self.dataset = dataset
        self.size = size
        self.batch = batch
        self.train = train
        self.seed = seed
        self.workers = workers
        self._failed: dict[int, str] = {}
        self._told = len(dataset) if train else 0  # positions whose failures are told of

    def __len__(self) -> int:
        """Batches in an epoch."""
        whole, rest = divmod(len(self.dataset), self.batch)
        return whole + (rest > 0 and not self.train)

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Images that could not be decoded so far, in the dataset's order.

        Of an evaluation, those of the batches handed out: not what threads have met ahead of them.
        """
        failed = sorted(self._failed.copy().items())  # threads may be adding
        names = self.dataset.names
        return tuple(Skipped(printable(names[i]), why) for i, why in failed if i < self._told)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from number ``start`` on.

        A run that is resumed at a batch gets exactly what an uninterrupted one would have got.

        Raises:
            PocketuneError: when training, if no image at all can be decoded.
        """
        order = self._order(epoch)
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="pocketune-decode")
        pending: deque[list[Future[_Sample | None]]] = deque()
        try:
            for number in range(start, len(self)):
                chosen = order[number * self.batch : (number + 1) * self.batch]
                pending.append([pool.submit(self._sample, epoch, int(i)) for i in chosen])
                if len(pending) > AHEAD:
                    yield from self._collect(pending.popleft())
            while pending:
                yield from self._collect(pending.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _order(self, epoch: int) -> npt.NDArray[np.int64]:
        if not self.train:
            return np.arange(len(self.dataset))
        return random_stream(self.seed, Purpose.ORDER, epoch).permutation(len(self.dataset))

    def _collect(self, pending: list[Future[_Sample | None]]) -> Iterator[Batch]:
        samples = [sample for sample in (future.result() for future in pending) if sample]
        self._told += len(pending)
        if samples:
            task = self.dataset.task
            yield Batch(
                np.stack([sample.pixels for sample in samples]),
                (task.collate if task else np.stack)([sample.label for sample in samples]),
                tuple(self.dataset.names[sample.position] for sample in samples),
            )

    def _sample(self, epoch: int, index: int) -> _Sample | None:
        """The image at ``index``, or for training the next that can be decoded."""
        count = len(self.dataset)
        for candidate in range(index, index + (count if self.train else 1)):
            sample = self._seen(candidate % count, epoch, index)
            if sample is not None:
                return sample
        if not self.train:
            return None
        first = self.skipped[0]
        raise PocketuneError(
            f"none of the {count} training images can be decoded; the first, {first.name}: "
            f"{first.reason}"
        )

    def _seen(self, index: int, epoch: int, drawn: int) -> _Sample | None:
        """The image at ``index``, for training in place of the one ``drawn``; None if damaged."""
        if index in self._failed:
            return None
        name = self.dataset.names[index]
        try:
            with reading_image(name), self.dataset.open(index) as file, open_image(file) as image:
                view = self._view(image, epoch, drawn)
                pixels = apply(image, view)
        except UnreadableImage as error:
            self._failed[index] = error.reason
            return None
        task, label = self.dataset.task, self.dataset.labels[index]
        return _Sample(index, pixels, task.transform(label, view) if task else label)

    def _view(self, image: Image.Image, epoch: int, drawn: int) -> View:
        if not self.train:
            return center_view(*oriented_size(image), self.size)
        rng = random_stream(self.seed, Purpose.CROP, epoch, drawn)
        return random_view(*oriented_size(image), self.size, rng)


def sample(photos: ImageDataset, *, size: int, count: int, batch: int = 8) -> Iterator[Batch]:
    """About `count` of the images, spread over all of them, as they are evaluated.

    It is the same images whenever it is called. What cannot be decoded is left out.

    Args:
        photos: where they are taken from.
        size: side that they are brought to, in pixels.
        count: how many; from there to less than twice as many are taken.
        batch: images in each batch.
    """
    spread = range(0, len(photos), max(1, len(photos) // count))
    return Loader(photos.subset(list(spread)), size=size, batch=batch, train=False).epoch(0)
