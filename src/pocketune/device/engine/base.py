"""The one interface between the training loop and whatever computes gradients.

ONNX Runtime on a kit is one implementation, eager PyTorch on the adapted network another; the
loop, the optimizers, the checkpoints and the commands are the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray, State

if TYPE_CHECKING:
    from pocketune.kit.kit import Kit
    from pocketune.kit.manifest import MaskSpec
    from pocketune.tasks import Labels


@dataclass(frozen=True)
class Gradients:
    """What one batch gives.

    Attributes:
        loss: Mean loss of the batch, label smoothing included.
        metrics: The task's further outputs of a step by name, each a sum over the images.
        values: Gradient of the loss for each parameter, by the parameter's name and in its shape.
    """

    loss: float
    metrics: dict[str, float]
    values: dict[str, FloatArray]


class Engine(Protocol):
    """Computes gradients and predictions for uint8 photos.

    ``parameters`` and ``statistics`` are live, C-contiguous float32 arrays: the optimizer writes
    into the parameters in place and the next call must see the new values. The arrays themselves
    stay the same objects for as long as the engine lives.
    """

    @property
    def parameters(self) -> State:
        """What is trained, by state-dict name."""
        ...

    @property
    def statistics(self) -> State:
        """Running statistics of the norms that use batch statistics, by state-dict name."""
        ...

    def gradients(
        self, images: NDArray[np.uint8], labels: Labels, rng: np.random.Generator
    ) -> Gradients:
        """Loss and gradients of a batch, in training mode; updates ``statistics``.

        Args:
            images: (B, S, S, 3) pixels, B the batch that the engine was made for.
            labels: (B, ...), as the task collates them.
            rng: Source of this step's dropout masks and of nothing else.
        """
        ...

    def predict(self, images: NDArray[np.uint8]) -> FloatArray:
        """The network's outputs (N, ...) for pixels (N, S, S, 3) in evaluation mode, for any N."""
        ...

    def state(self) -> State:
        """Copies of all parameters and statistics."""
        ...

    def load(self, state: Mapping[str, FloatArray]) -> None:
        """Write all parameters and statistics, in place."""
        ...


EngineFactory = Callable[["Kit", Mapping[str, FloatArray]], Engine]
"""Makes an engine from a kit and the values (parameters and statistics) to start from."""


def draw_masks(specs: Iterable[MaskSpec], rng: np.random.Generator) -> State:
    """One step's dropout masks by name: 0 where an element is dropped, 1 / keep where it is kept.

    The device draws them, so that every engine trains with the same ones. An element is kept with
    probability `keep`, so the mean of a mask is 1. Masks are drawn in the order of `specs`; the
    same generator state gives the same bits on every machine.
    """
    return {spec.name: spec.draw(rng) for spec in specs}
