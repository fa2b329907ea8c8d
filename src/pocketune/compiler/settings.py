"""What a training step is compiled for."""

from dataclasses import dataclass

from pocketune.errors import check_positive, whole_number
from pocketune.tasks import Task


@dataclass(frozen=True)
class CompileSettings:
    """What every stage of `compile` shares.

    Attributes:
        batch: Images that a training step computes at once.
        size: Height and width of the images, in pixels.
        task: What is learned, with the names of the classes and of the head's parameters.

    Raises:
        PocketuneError: A value is out of range.
    """

    batch: int
    size: int
    task: Task

    def __post_init__(self) -> None:
        check_positive(batch=self.batch, size=self.size)
        for name in ("batch", "size"):  # JSON cannot hold NumPy's integers
            object.__setattr__(self, name, whole_number(getattr(self, name)))
