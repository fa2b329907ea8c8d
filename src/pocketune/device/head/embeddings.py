"""The embeddings of photos, kept in a file and read in blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pocketune.device.head.sums import BLOCK
from pocketune.files import writing

if TYPE_CHECKING:
    from pocketune.arrays import FloatArray
    from pocketune.data import Loader
    from pocketune.device.engine.base import Engine
    from pocketune.tasks import Labels


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Embeddings in a file.

    Attributes:
        path: The file: float32 rows, one after the other.
        size: Values of a row.
        labels: Labels (N, ...) of the rows.
    """

    path: Path
    size: int
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def blocks(self) -> Iterator[tuple[FloatArray, Labels]]:
        """Rows (N, D) and their labels, in order; only one block is in memory."""
        with self.path.open("rb") as file:
            for start in range(0, len(self), BLOCK):
                labels = self.labels[start : start + BLOCK]
                rows = np.fromfile(file, np.float32, len(labels) * self.size)
                yield rows.reshape(len(labels), self.size), labels


@contextmanager
def embedded(path: Path, size: int, write: Callable[[Path], Labels]) -> Iterator[Embeddings]:
    """The embeddings of photos, in a file that is removed in the end.

    Args:
        path: The file.
        size: Values of an embedding.
        write: Writes the file by `write_embeddings`. An engine that it makes is gone before
            the embeddings are given, with the memory of its graphs.
    """
    try:
        yield Embeddings(path, size, write(path))
    finally:
        path.unlink(missing_ok=True)


def write_embeddings(
    engine: Engine,
    photos: Loader,
    path: Path,
    progress: Callable[[int, float], None],
    seconds: float,
) -> Labels:
    """Write the embeddings of photos; returns the labels of those that were written.

    After a time, the rest of the photos is left out.

    Args:
        engine: Computes them.
        photos: The photos, in an order of which any beginning is a fair sample.
        path: The file to write.
        progress: Called after each batch with the number of photos and the expected seconds left.
        seconds: Time for the photos; one batch is always computed.

    Raises:
        PocketuneError: The file cannot be written, or a batch cannot be computed.
    """
    began, labels, count = time.monotonic(), [photos.dataset.labels[:0]], 0
    with writing(path), path.open("wb") as file, closing(photos.epoch(0)) as batches:
        for batch in batches:
            file.write(np.ascontiguousarray(engine.embed(batch.images)).data)
            labels.append(batch.labels)
            count += len(batch.labels)
            del batch  # before the next one is put together
            taken = time.monotonic() - began
            whole = taken / count * len(photos.dataset)
            progress(count, max(0.0, min(whole, seconds) - taken))
            if taken >= seconds:
                break
    return np.concatenate(labels)
