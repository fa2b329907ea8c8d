"""What a training step is compiled for."""

from dataclasses import dataclass

from pocketune.errors import PocketuneError, check_positive
from pocketune.tasks.losses import BINARY_CROSS_ENTROPY, CROSS_ENTROPY, LOSSES


@dataclass(frozen=True)
class CompileSettings:
    """The numbers and names that every stage of `compile` shares.

    Attributes:
        batch: images of a training step.
        size: height and width of the images, in pixels.
        label_smoothing: share of the target that is spread over all classes, in [0, 1).
        loss: one of `LOSSES`.
        classes: names of the network's outputs, in order.

    Raises:
        PocketuneError: a value is out of range.
    """

    batch: int = 8
    size: int = 224
    label_smoothing: float = 0.0
    loss: str = CROSS_ENTROPY
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_positive(batch=self.batch, size=self.size)
        if not 0 <= self.label_smoothing < 1:
            raise PocketuneError(f"label_smoothing={self.label_smoothing} must lie in [0, 1)")
        if self.loss not in LOSSES:
            raise PocketuneError(f"loss={self.loss!r} is unknown; choose from {', '.join(LOSSES)}")

    @property
    def attributes(self) -> int | None:
        """Number of attributes of an image; None where an image has one class."""
        return len(self.classes) if self.loss == BINARY_CROSS_ENTROPY else None
