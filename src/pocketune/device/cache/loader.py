"""Batches of features that are computed once for each photo and draw."""

from __future__ import annotations

import math
from collections import deque
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from pocketune.data import Batch, Loader
from pocketune.device.cache.code import Code, Features
from pocketune.device.cache.records import OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from numpy.typing import NDArray

    from pocketune.arrays import FloatArray
    from pocketune.data.loader import Sample
    from pocketune.device.cache.records import Records
    from pocketune.tasks import Labels


@dataclass(frozen=True)
class Part:
    """The places of a loader's records: features and label of each image in each draw.

    Attributes:
        code: How features are written.
        label_shape: Shape of one image's label.
        label_type: Type of its elements.
        images: Images with their further turns.
        draws: Crops of each.
        start: The first place.
    """

    code: Code
    label_shape: tuple[int, ...]
    label_type: np.dtype[np.generic]
    images: int
    draws: int
    start: int = 0

    @cached_property
    def content(self) -> int:
        """Bytes of the features and the label of an image."""
        return self.code.size + self.label_type.itemsize * math.prod(self.label_shape)

    @cached_property
    def record(self) -> int:
        """Bytes of a record: the content behind a key and a checksum."""
        return OVERHEAD + self.content

    @property
    def end(self) -> int:
        """The first place after all records."""
        return self.start + self.draws * self.images * self.record

    def place(self, draw: int, index: int) -> int:
        """The place of an image in a draw."""
        return self.start + (draw * self.images + index) * self.record

    def pack(self, features: FloatArray, label: Labels) -> bytes:
        """The content of an image."""
        return self.code.encode(features) + label.astype(self.label_type, copy=False).tobytes()

    def unpack(self, contents: list[bytes]) -> tuple[Features, Labels]:
        """The features and labels of a batch."""
        rows = np.frombuffer(b"".join(contents), np.uint8).reshape(len(contents), self.content)
        labels = rows[:, self.code.size :].copy().view(self.label_type)
        return (
            Features(self.code, rows[:, : self.code.size]),
            labels.reshape(len(contents), *self.label_shape),
        )


class CachedLoader(Loader):
    """A loader whose batches hold `Features` in place of pixels.

    An image whose features are known is not decoded. The features of the others are computed one
    image at a time, so that they do not depend on which others are known, and encoded before they
    are used, so that known and new features are the same bits. The features of an image that
    replaces an unreadable one are not kept.

    Args:
        loader: The images. Those that cannot be decoded are listed by it too.
        records: Keeps the features.
        part: Where they are kept.
        prepare: Computes the features of images.
        numbers: The number of each image in the part; by default its position.
    """

    def __init__(
        self,
        loader: Loader,
        records: Records,
        part: Part,
        prepare: Callable[[NDArray[np.uint8]], FloatArray],
        numbers: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(
            loader.dataset,
            size=loader.size,
            batch=loader.batch,
            train=loader.train,
            seed=loader.seed,
            workers=loader.workers,
            draws=part.draws,
        )
        self._failures = loader._failures
        self._records = records
        self._part = part
        self._prepare = prepare
        self._numbers = range(part.images) if numbers is None else numbers

    def part(self, indices: NDArray[np.int64]) -> CachedLoader:
        """See `Loader`."""
        numbers = np.asarray(self._numbers)[indices]
        return CachedLoader(
            super().part(indices), self._records, self._part, self._prepare, numbers
        )

    def epoch(self, epoch: int, start: int = 0) -> Generator[Batch, None, None]:
        """See `Loader`."""
        draw = self.draw(epoch)
        ahead: deque[list[_Wanted]] = deque()

        def missing() -> Iterator[list[int]]:
            for chosen in self.chosen(epoch, start):
                ahead.append([self._look_up(draw, index) for index in chosen])
                yield [wanted.number for wanted in ahead[-1] if wanted.content is None]

        with closing(self.decoded(draw, missing())) as decoded:
            for samples in decoded:
                yield from self._batch(ahead.popleft(), deque(samples))

    def _look_up(self, draw: int, index: int) -> _Wanted:
        position = index % len(self.dataset)
        name = self.dataset.names[position]
        place = self._part.place(draw, int(self._numbers[index]))
        # The stamp is read before the image, so that a change in between is noticed later.
        stamp = self.dataset.stamp(position, name)
        content = stamp and self._records.get(place, self._part.content, stamp)
        return _Wanted(index, name, place, stamp, content or None)

    def _batch(self, batch: list[_Wanted], decoded: deque[Sample]) -> Iterator[Batch]:
        found = [
            (wanted.name, content)
            for wanted in batch
            if (content := wanted.content or self._computed(wanted, decoded)) is not None
        ]
        if found:
            features, labels = self._part.unpack([content for _, content in found])
            yield Batch(
                cast("NDArray[np.uint8]", features),  # the engine that prepared them takes them
                labels,
                tuple(name for name, _ in found),
            )

    def _computed(self, wanted: _Wanted, decoded: deque[Sample]) -> bytes | None:
        """The content of an image that was not known; None if an evaluation cannot decode it."""
        index = wanted.number % len(self.dataset)
        if not self.train and (not decoded or decoded[0].position != index):
            return None
        sample = decoded.popleft()
        features = self._prepare(sample.pixels[np.newaxis])[0]
        content = self._part.pack(features, self.labels([sample.label]))
        if sample.position == index and wanted.stamp is not None:
            self._records.put(wanted.place, content, wanted.stamp)
        return content


class _Wanted(NamedTuple):
    """An image of a batch: its place, the stamp of its file, and its content if that is known."""

    number: int
    name: str
    place: int
    stamp: bytes | None
    content: bytes | None
