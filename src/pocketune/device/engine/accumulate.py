"""Gradient accumulation: several small batches for one optimizer step."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from pocketune.device.engine.base import Gradients

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pocketune.arrays import FloatArray, State
    from pocketune.device.engine.base import Engine, EngineFactory, Preparing
    from pocketune.kit.kit import Kit
    from pocketune.tasks import Labels


class AccumulatingEngine:
    """An `Engine` that computes a large batch in parts, by another engine.

    The mean over the parts is the gradient of the whole batch, because images do not influence each
    other. A step takes the memory of one part and a second copy of the gradients.

    Args:
        engine: The engine of the parts.
        batch: Images in a part.
    """

    def __init__(self, engine: Engine, batch: int) -> None:
        self._engine = engine
        self._batch = batch

    @property
    def runtime(self) -> str:
        """See `Engine`."""
        return self._engine.runtime

    @property
    def parameters(self) -> State:
        """See `Engine`."""
        return self._engine.parameters

    @property
    def statistics(self) -> State:
        """See `Engine`; always empty."""
        return self._engine.statistics

    @property
    def inputs(self) -> State:
        """See `Engine`."""
        return self._engine.inputs

    def gradients(
        self, images: NDArray[np.uint8], labels: Labels, rng: np.random.Generator
    ) -> Gradients:
        """See `Engine`; the batch has to be a multiple of a part."""
        starts = range(0, len(images), self._batch)
        total: Gradients | None = None
        for start in starts:
            part = slice(start, start + self._batch)
            found = self._engine.gradients(images[part], labels[part], rng)
            total = _copied(found) if total is None else _add(total, found)
            del found  # the next batch's gradients take its place in the runtime's memory
        assert total is not None
        share = np.float32(1 / len(starts))
        for values in total.values.values():
            values *= share
        return Gradients(total.loss / len(starts), total.metrics, total.values)

    def predict(self, images: NDArray[np.uint8]) -> FloatArray:
        """See `Engine`."""
        return self._engine.predict(images)

    def embed(self, images: NDArray[np.uint8]) -> FloatArray:
        """See `Engine`."""
        return self._engine.embed(images)

    def prepare(self, images: NDArray[np.uint8]) -> FloatArray:
        """The features of the engine of the parts; see `Preparing`."""
        return cast("Preparing", self._engine).prepare(images)

    def release(self) -> None:
        """See `Engine`."""
        self._engine.release()

    def state(self) -> State:
        """See `Engine`."""
        return self._engine.state()

    def load(self, state: Mapping[str, FloatArray]) -> None:
        """See `Engine`."""
        self._engine.load(state)


def accumulating(factory: EngineFactory) -> EngineFactory:
    """A factory of engines that compute a batch in parts of the size of their kit's."""

    def make(kit: Kit, state: Mapping[str, FloatArray]) -> Engine:
        return AccumulatingEngine(factory(kit, state), kit.manifest.batch)

    return make


def _copied(found: Gradients) -> Gradients:
    """The same in memory of its own."""
    values = {name: array.copy() for name, array in found.values.items()}
    return Gradients(found.loss, found.metrics, values)


def _add(total: Gradients, found: Gradients) -> Gradients:
    """The sum, written into the arrays of `total`."""
    for name, values in total.values.items():
        values += found.values[name]
    metrics = {name: value + found.metrics[name] for name, value in total.metrics.items()}
    return Gradients(total.loss + found.loss, metrics, total.values)
