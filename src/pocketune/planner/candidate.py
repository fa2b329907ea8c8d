"""What can be chosen: kits that exist, and configurations that kits can be built from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pocketune.schema import Positive


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A kit, or a configuration that a kit can be built from.

    Attributes:
        name: Unique in a plan, such as `mobilenet_v2 0.35, 128 px, mobiletl`.
        group: Candidates of one group have the same weights and resolution, and therefore the same
            features before training.
        kit: Path of the kit; None if it has to be built.
        network: Configuration of the network.
        weights: File of pretrained weights; None for a kit.
        weights_sha256: Of that file.
        method: The method and its options.
        size: Height and width of the images, in pixels.
        batch: Images that the graphs process at once.
        accumulate: Batches in a step.
        frozen_bits: Bits of the frozen part's weights.
    """

    name: str
    group: str
    kit: str | None
    network: dict[str, Any]
    weights: str | None
    method: dict[str, Any]
    size: Positive
    batch: Positive
    accumulate: Positive
    frozen_bits: Positive
    weights_sha256: str | None = None

    @property
    def step_images(self) -> int:
        """Images in a step."""
        return self.batch * self.accumulate


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a candidate takes, predicted before anything runs.

    Attributes:
        optimizer: The optimizer of this prediction.
        memory: Peak resident bytes of the training process.
        least_memory: The same with the optimizer that takes least.
        step_seconds: Seconds of a step on this machine, without decoding photos.
        step_flops: Floating point operations of a step.
        parameters: Number of trained values.
        seconds: Seconds that the prediction took.
    """

    optimizer: str
    memory: Positive
    least_memory: Positive
    step_seconds: float
    step_flops: int
    parameters: int
    seconds: float = 0.0
