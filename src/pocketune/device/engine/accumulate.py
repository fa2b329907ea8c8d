"""Gradient accumulation: one step in several parts, which are in memory one after the other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from pocketune.device.engine.base import Gradients

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pocketune.arrays import FloatArray, State
    from pocketune.device.engine.base import Engine, EngineFactory, Preparing
    from pocketune.kit.kit import Kit
    from pocketune.tasks import Labels, Task

_BLOCK = 1 << 16
"""Values that are added at once."""


class AccumulatingEngine:
    """An `Engine` that computes a large batch in parts, by another engine.

    The mean over the parts, each with the weight of its labels in the loss, is the gradient of the
    whole batch, because images do not influence each other. A step takes the memory of one part and
    a second copy of the gradients.

    Args:
        engine: The engine of the parts.
        batch: Images in a part.
        task: The kit's task, which tells the weight of labels.
    """

    def __init__(self, engine: Engine, batch: int, task: Task) -> None:
        self._engine = engine
        self._batch = batch
        self._task = task

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
        weight = partial(self._task.loss_weight, inputs=self._engine.inputs)
        return add_parts(self._engine.gradients, images, labels, rng, self._batch, weight)

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
        return AccumulatingEngine(factory(kit, state), kit.manifest.batch, kit.manifest.task)

    return make


class Parts(Protocol):
    """Images, or what is kept of them, of which a slice holds some."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Any: ...


def add_parts(
    compute: Callable[[Any, Labels, np.random.Generator], Gradients],
    images: Parts,
    labels: Labels,
    rng: np.random.Generator,
    size: int,
    weight: Callable[[Labels], float],
) -> Gradients:
    """Loss and gradients of images that do not influence each other, from those of its parts.

    Args:
        compute: `Engine.gradients` of a part.
        images: A multiple of `size`.
        labels: Theirs.
        rng: Given to each part in turn.
        size: Images in a part.
        weight: The weight of labels in the mean; see `Task.loss_weight`.
    """
    parts = [slice(i, i + size) for i in range(0, len(images), size)]
    weights = [weight(labels[part]) for part in parts]
    whole = sum(weights) or 1.0  # without any weight, all gradients are 0
    total: Gradients | None = None
    for part, share in zip(parts, weights, strict=True):
        found = compute(images[part], labels[part], rng)
        total = _add(total or _nothing(found), found, share / whole)
        del found  # the gradients of the next part take its place in the runtime's memory
    assert total is not None
    return total


def _nothing(like: Gradients) -> Gradients:
    """Zeros in memory of their own."""
    values = {name: np.zeros(array.shape, np.float32) for name, array in like.values.items()}
    return Gradients(0.0, dict.fromkeys(like.metrics, 0), values)


def _add(total: Gradients, found: Gradients, share: float) -> Gradients:
    """The sum with a share of what was found, written into the arrays of `total` by blocks.

    A whole array times its share would be a third copy of it.
    """
    for name, values in total.values.items():
        sums, added = values.reshape(-1), found.values[name].reshape(-1)
        for start in range(0, len(sums), _BLOCK):
            block = slice(start, start + _BLOCK)
            sums[block] += np.float32(share) * added[block]
    metrics = {name: value + found.metrics[name] for name, value in total.metrics.items()}
    return Gradients(total.loss + share * found.loss, metrics, total.values)
