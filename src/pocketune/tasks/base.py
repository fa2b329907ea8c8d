"""The contract of a task: what a network learns, from the labels to the predictions.

A task is a frozen dataclass: its fields are its JSON in a kit's manifest. Its author half, the loss
in PyTorch and in ONNX, is the objective of the same name in `pocketune.objectives`.
"""

from __future__ import annotations

import math
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray, State
from pocketune.errors import PocketuneError
from pocketune.files import shown
from pocketune.tasks.results import Evaluation, Labels, Mean, Metric, Prediction, Score, Values

Dims = tuple[int | str, ...]
"""A shape without the batch; ``"classes"`` and ``"size"`` stand for their numbers."""
CLASSES = "classes"
SIZE = "size"


class Box(NamedTuple):
    """A part of an upright image, in its pixels."""

    left: float
    top: float
    width: float
    height: float


class View(NamedTuple):
    """What a network sees of an image: a part, resized to a square and mirrored or not.

    Attributes:
        box: The part.
        size: Sides of the square, in pixels.
        mirrored: Whether left and right are exchanged.
    """

    box: Box
    size: int
    mirrored: bool = False


class RowReader(Protocol):
    """Reads the label out of each row of a table.

    Attributes:
        titles: Names of the columns where each of them is a class; else empty.
    """

    titles: tuple[str, ...]

    def __call__(self, row: Sequence[str], line: int) -> Hashable:
        """The label in a row, whose cells are stripped; ``line`` is its number, for messages."""
        ...


S = TypeVar("S", bound="Task")


@dataclass(frozen=True)
class Task(ABC):
    """What a network learns.

    Attributes:
        classes: What the outputs are called, in their order: classes, attributes, quantities.
        head: Parameters of the output layer; the first dimension of each is the classes. Empty
            before there is a network.

    Raises:
        PocketuneError: A field makes no sense; the message names it.
    """

    classes: tuple[str, ...]
    head: tuple[str, ...] = ()

    name: ClassVar[str]
    noun: ClassVar[str] = "classes"
    """What the classes are called on the terminal."""
    table: ClassVar[str]
    """The columns of a CSV of such labels, in words."""
    has_folders: ClassVar[bool] = False
    """Whether the name of an image's folder is its label."""
    label_dims: ClassVar[Dims]
    label_type: ClassVar[type[np.generic]]
    output_dims: ClassVar[Dims] = (CLASSES,)
    activation: ClassVar[str] = ""
    """``softmax`` or ``sigmoid`` where it turns outputs into probabilities."""
    metric_name: ClassVar[str]
    metric_style: ClassVar[str] = ".1%"
    step_metrics: ClassVar[tuple[str, ...]]
    """Outputs of a training step beside its loss, each a sum over the images of the batch."""

    def __post_init__(self) -> None:
        if not all(isinstance(name, str) and name for name in self.classes):
            raise PocketuneError(f"{self.noun} {list(self.classes)} must be texts")
        if not self.classes or len(set(self.classes)) < len(self.classes):
            given = shown(", ".join(self.classes), 200)
            raise PocketuneError(f"{self.noun} [{given}] must be one name or more, each once")

    @classmethod
    def variants(cls) -> Mapping[str, type[Task]]:
        """All tasks by name; an object in JSON names the one whose fields it has."""
        return TASKS

    def to_dict(self) -> dict[str, Any]:
        """The task's name and its fields, for JSON."""
        return {"name": self.name, **asdict(self)}

    def configured(self: S, **options: float) -> S:
        """The task with other options; one that is 0 and that the task does not have is left out.

        Raises:
            PocketuneError: The task does not have an option.
        """
        own = {field.name for field in fields(self)}
        strange = [name for name, value in options.items() if value and name not in own]
        if strange:
            raise PocketuneError(f"the task {self.name} has no {strange[0]}; leave it out")
        chosen: dict[str, Any] = {name: v for name, v in options.items() if name in own}
        return replace(self, **chosen)

    # The head: what is reinitialized for other classes.

    def count(self, state: Mapping[str, FloatArray]) -> int:
        """The number of classes that a network of these values has."""
        sizes = (len(state[name]) for name in self.head if name in state)
        return next(sizes, len(self.classes))

    def shapes(self, shapes: Mapping[str, tuple[int, ...]], classes: int) -> dict[str, Any]:
        """The shapes of tensors when there are ``classes`` classes, given any others."""
        return {
            name: (classes, *shape[1:]) if name in self.head else shape
            for name, shape in shapes.items()
        }

    def new_head(
        self, state: Mapping[str, FloatArray], classes: int, rng: np.random.Generator
    ) -> State:
        """The values of a network with an untrained output layer of ``classes`` classes.

        Weights are uniform in +-1 / sqrt(fan-in) and biases zero, as in TinyTL (Cai et al., 2020).
        """
        new = dict(state)
        for name in self.head:
            shape = (classes, *state[name].shape[1:])
            limit = 1.0 / math.sqrt(math.prod(shape[1:]))
            drawn = rng.uniform(-limit, limit, shape) if len(shape) > 1 else np.zeros(shape)
            new[name] = drawn.astype(np.float32)
        return new

    # Labels: from the user's files to the arrays of a step.

    @classmethod
    @abstractmethod
    def columns(cls, titles: Sequence[str], free: Sequence[int], table: str) -> RowReader | None:
        """What reads this task's labels from a table with these columns.

        Args:
            titles: Of all columns.
            free: Positions of the columns that are neither the file nor the split.
            table: The table's name, for messages.

        Returns:
            None where the columns hold no such labels.

        Raises:
            PocketuneError: They do, and one is wrong.
        """

    @classmethod
    @abstractmethod
    def find_classes(cls, labels: Iterable[Hashable], titles: tuple[str, ...]) -> tuple[str, ...]:
        """The classes, in order, of labels as they were read, and of the reader's titles."""

    @abstractmethod
    def encode(
        self, labels: Sequence[Hashable], titles: tuple[str, ...], where: str, *, complete: bool
    ) -> Labels:
        """Labels as they were read, as one array along the images.

        Args:
            labels: Of the images that can be used.
            titles: As the reader has them.
            where: The place of the images, for messages.
            complete: Whether each class must occur.

        Raises:
            PocketuneError: They are not labels of these classes.
        """

    def strata(self, labels: Labels) -> NDArray[np.int64] | None:
        """The group (N,) of each image where each group shall be divided alike; None without."""
        return None

    def check_division(self, labels: Labels, names: Sequence[str]) -> None:  # noqa: B027
        """Check that a random division into training and validation leaves enough on each side.

        Raises:
            PocketuneError: It does not.
        """

    def check_training(self, training: Labels, validation: Labels, where: str) -> None:  # noqa: B027
        """Check that there is something to be learned from the labels, none of them missing.

        Raises:
            PocketuneError: There is not.
        """

    def transform(self, label: Labels, view: View) -> Labels:
        """One image's label for a view of the image; a label of the whole image stays."""
        return label

    def collate(self, labels: Sequence[Labels]) -> Labels:
        """The labels of a batch, as the step takes them."""
        return np.stack(labels)

    def label_shape(self, size: int, classes: int | None = None) -> tuple[int, ...]:
        """Shape of one image's label for images of side ``size``."""
        return self._shape(self.label_dims, size, classes)

    def output_shape(self, size: int, classes: int | None = None) -> tuple[int, ...]:
        """Shape of what the network computes of one image."""
        return self._shape(self.output_dims, size, classes)

    def _shape(self, dims: Dims, size: int, classes: int | None) -> tuple[int, ...]:
        known = {CLASSES: len(self.classes) if classes is None else classes, SIZE: size}
        return tuple(known[dim] if isinstance(dim, str) else dim for dim in dims)

    # The metric, and what is made of outputs.

    @abstractmethod
    def losses(self, outputs: FloatArray, labels: Labels) -> Values:
        """The loss (N,) of each image, without label smoothing, in float64."""

    @abstractmethod
    def marks(self, outputs: FloatArray, labels: Labels) -> NDArray[Any]:
        """Values whose mean is the metric, any number for each image."""

    def is_better(self, score: Score, than: Score) -> bool:
        """Whether a score is better than another; the loss decides a tie."""
        return (score.value, -score.loss) > (than.value, -than.loss)

    def score(self, value: float, loss: float) -> Score:
        """A value of the metric under its name."""
        return Score(self.metric_name, value, loss, self.metric_style)

    def step_score(self, loss: float, metrics: Mapping[str, float], images: int) -> Score:
        """The score of training steps: their mean loss, and their metrics added up over images."""
        return self.score(metrics[self.step_metrics[0]] / images, loss)

    def metric(self) -> Metric:
        """A metric that has seen nothing yet."""
        return Mean(self)

    @abstractmethod
    def evaluate(self, batches: Iterable[tuple[FloatArray, Labels]]) -> Evaluation:
        """All figures over batches of outputs and labels."""

    @abstractmethod
    def predict(self, name: str, output: FloatArray, top: int | None) -> Prediction:
        """What one image's output says.

        Args:
            name: The image's file.
            output: What the network computes of it, without the batch.
            top: How many classes to name; None for what the task usually names.
        """


TASKS: dict[str, type[Task]] = {}
"""All tasks by name; labels that several of them could read are the first one's."""

T = TypeVar("T", bound=type[Task])


def register_task(task: T) -> T:
    """Class decorator: make a task known by its name.

    Raises:
        ValueError: The name is taken.
    """
    if TASKS.setdefault(task.name, task) is not task:
        raise ValueError(f"a task {task.name!r} is registered already")
    return task


def task_named(name: str) -> type[Task]:
    """The task of this name.

    Raises:
        PocketuneError: There is none; the message lists those that there are.
    """
    if name not in TASKS:
        raise PocketuneError(f"unknown task {name!r}: choose one of {', '.join(TASKS)}")
    return TASKS[name]


def numbered(count: int) -> tuple[str, ...]:
    """The names "0", "1", ... for classes that have no others."""
    return tuple(map(str, range(count)))


def as_label(text: str) -> str:
    """A class name; accents are composed, since file systems differ in how they spell them."""
    return unicodedata.normalize("NFC", text)
