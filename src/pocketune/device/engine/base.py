"""The interface between the training loop and the engine that computes gradients.

One implementation runs a kit on ONNX Runtime, another the adapted network in eager PyTorch. The
loop, the optimizers, the checkpoints and the commands are the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray, State
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from pocketune.kit.kit import Kit
    from pocketune.kit.manifest import MaskSpec
    from pocketune.tasks import Labels


@dataclass(frozen=True)
class Gradients:
    """The results of one training step.

    Attributes:
        loss: Mean loss of the batch, including label smoothing.
        metrics: The task's step metrics by name, each a sum over the images.
        values: Gradient of the loss for each parameter, by the parameter's name and in its shape.
    """

    loss: float
    metrics: dict[str, float]
    values: dict[str, FloatArray]


class Engine(Protocol):
    """Computes gradients and predictions for uint8 photos.

    `parameters` and `statistics` are live, C-contiguous float32 arrays: the optimizer updates
    the parameters in place, and the next call must use the new values. The arrays stay the same
    objects for the lifetime of the engine.
    """

    @property
    def runtime(self) -> str:
        """The library that computes, with its version, such as `onnxruntime 1.31.0`."""
        ...

    @property
    def parameters(self) -> State:
        """The trained parameters by state-dict name."""
        ...

    @property
    def statistics(self) -> State:
        """Running statistics of the norms that use batch statistics, by state-dict name."""
        ...

    @property
    def inputs(self) -> State:
        """The task's step inputs by name; a run writes its own values into these arrays."""
        ...

    def gradients(
        self, images: NDArray[np.uint8], labels: Labels, rng: np.random.Generator
    ) -> Gradients:
        """Loss and gradients of a batch, in training mode; updates `statistics`.

        Args:
            images: (B, S, S, 3) pixels, where B is the batch of the engine.
            labels: (B, ...), as the task collates them.
            rng: Random numbers for this step's dropout masks, used for nothing else.
        """
        ...

    def predict(self, images: NDArray[np.uint8]) -> FloatArray:
        """The network's outputs (N, ...) in evaluation mode, for pixels (N, S, S, 3) and any N."""
        ...

    def embed(self, images: NDArray[np.uint8]) -> FloatArray:
        """The input (N, D) of the output layer in evaluation mode, for pixels (N, S, S, 3).

        Raises:
            PocketuneError: The output layer does not read one vector for each image.
        """
        ...

    def release(self) -> None:
        """Free the memory of open graphs; the next call opens them again."""
        ...

    def state(self) -> State:
        """Copies of all parameters and statistics."""
        ...

    def load(self, state: Mapping[str, FloatArray]) -> None:
        """Write all parameters and statistics, in place."""
        ...


class Preparing(Engine, Protocol):
    """An engine that computes the frozen part of its network on its own.

    Its other methods take encoded features (`pocketune.device.cache`) in place of pixels. Its
    factory has the method too, as a class has.
    """

    def prepare(self, images: NDArray[np.uint8]) -> FloatArray:
        """The features (N, ...) of the frozen part for pixels (N, S, S, 3)."""
        ...


EngineFactory = Callable[["Kit", Mapping[str, FloatArray]], Engine]
"""Makes an engine from a kit and initial values (parameters and statistics)."""


def draw_masks(specs: Iterable[MaskSpec], rng: np.random.Generator) -> State:
    """The dropout masks of one step by name: 0 where an element is dropped, else 1 / keep.

    The device draws them, so that every engine trains with the same masks. An element is kept with
    probability `keep`, so the expected mean of a mask is 1. Masks are drawn in the order of
    `specs`; the same generator state gives the same bits on every machine.
    """
    return {spec.name: spec.draw(rng) for spec in specs}


def no_embeddings() -> PocketuneError:
    """The error of `Engine.embed` for a network without embeddings."""
    return PocketuneError(
        "the network has no embeddings: its output layer does not read one vector for each image"
    )
