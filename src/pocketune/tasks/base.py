"""The contract of a task: what a network learns, from labels to predictions.

A task is a frozen dataclass, whose fields are stored as JSON in a kit's manifest. The author half
of a task, the loss in PyTorch and in ONNX, is the objective of the same name in
`pocketune.objectives`.
"""

from __future__ import annotations

import math
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray, State
from pocketune.errors import PocketuneError, printable
from pocketune.extensions import import_extension, import_extensions
from pocketune.files import shown
from pocketune.tasks.results import (
    Evaluation,
    Labels,
    Mean,
    Metric,
    Prediction,
    Score,
    Values,
    Verdict,
)
from pocketune.tasks.views import Seen, View

Dims = tuple[int | str, ...]
"""A shape without the batch; `"classes"` and `"size"` stand for numbers."""
CLASSES = "classes"
SIZE = "size"


class RowReader(Protocol):
    """Reads the label in each row of a table.

    Attributes:
        titles: Titles of the columns if each column is a class; else empty.
    """

    titles: tuple[str, ...]

    def __call__(self, row: Sequence[str], line: int) -> Hashable:
        """The label in a row of stripped cells, of at least as many as there are titles.

        `line` is the line number, for messages.
        """
        ...


S = TypeVar("S", bound="Task")


@dataclass(frozen=True)
class Task(ABC):
    """What a network learns.

    Attributes:
        classes: Names of the outputs, in order: classes, attributes or quantities.
        head: Names of the output layer's parameters; the first dimension of each is the classes.
            Empty before there is a network.

    Raises:
        PocketuneError: A field is invalid; the message names it.
    """

    classes: tuple[str, ...]
    head: tuple[str, ...] = ()

    name: ClassVar[str]
    noun: ClassVar[str] = "classes"
    """The word for classes in messages."""
    singular: ClassVar[str] = "class"
    """The word for one of them."""
    table: ClassVar[str]
    """The columns of a CSV with such labels, in words."""
    has_folders: ClassVar[bool] = False
    """Whether the name of an image's folder is its label."""
    dense: ClassVar[bool] = False
    """Whether there is a label and an output for each pixel. The label of an image is then a mask,
    an image file of its own (`pocketune.data.masks`), and an output is (outputs, height, width), of
    any height and width."""
    label_dims: ClassVar[Dims]
    label_type: ClassVar[type[np.generic]]
    output_dims: ClassVar[Dims] = (CLASSES,)
    activation: ClassVar[str] = ""
    """The function that makes outputs probabilities: `softmax`, `sigmoid` or empty."""
    metric_name: ClassVar[str]
    metric_style: ClassVar[str] = ".1%"
    metric_is_share: ClassVar[bool] = False
    """Whether the metric is the share of images that are right, so that chance is binomial."""
    step_metrics: ClassVar[tuple[str, ...]]
    """Outputs of a training step other than its loss, each a sum over the images of the batch."""

    def __post_init__(self) -> None:
        given: object = self.classes
        if isinstance(given, str):
            raise PocketuneError(
                f"{self.noun}={given!r} must be a list of names, such as ('cat', 'dog')"
            )
        object.__setattr__(self, "classes", tuple(self.classes))
        if not all(isinstance(name, str) and name for name in self.classes):
            raise PocketuneError(f"{self.noun} {list(self.classes)} must be non-empty strings")
        strange = next((name for name in self.classes if printable(name) != name), None)
        if strange is not None:
            raise PocketuneError(
                f"the name {shown(strange)!r} among the {self.noun} has a character that cannot be "
                "shown; rename it"
            )
        if not self.classes or len(set(self.classes)) < len(self.classes):
            given = shown(", ".join(self.classes), 200)
            raise PocketuneError(f"{self.noun} [{given}] must be one or more different names")

    @classmethod
    def variants(cls, name: object) -> Mapping[str, type[Task]]:
        """All tasks by name, and that of this name if a package has it; JSON names the class."""
        if isinstance(name, str) and name not in TASKS:
            import_extension("tasks", name)
        return TASKS

    @classmethod
    def counted(cls, number: int) -> str:
        """A number of classes in words: `1 attribute`, `1,000 classes`."""
        return f"{number:,} {cls.singular if number == 1 else cls.noun}"

    def to_dict(self) -> dict[str, Any]:
        """The task's name and its fields, for JSON."""
        return {"name": self.name, **asdict(self)}

    def configured(self: S, **options: float) -> S:
        """The task with other options. An unknown option is ignored if its value is 0.

        Raises:
            PocketuneError: An unknown option has another value.
        """
        own = {field.name for field in fields(self)}
        strange = [name for name, value in options.items() if value and name not in own]
        if strange:
            raise PocketuneError(f"the task {self.name} has no {strange[0]}; leave it out")
        chosen: dict[str, Any] = {name: v for name, v in options.items() if name in own}
        return replace(self, **chosen)

    def fitted(self: S, head: tuple[str, ...], output_shape: tuple[int, ...]) -> S:
        """The task of a network: names of its output layer's parameters, and an image's output."""
        return replace(self, head=head)

    # The head, which is reinitialized for other classes.

    @property
    def output_layer(self) -> str | None:
        """Path of the output layer in the network; None before there is a network."""
        return self.head[0].rpartition(".")[0] if self.head else None

    def count(self, state: Mapping[str, FloatArray]) -> int:
        """The number of classes of a network with these values."""
        sizes = (len(state[name]) for name in self.head if name in state)
        return next(sizes, len(self.classes))

    def shapes(self, shapes: Mapping[str, tuple[int, ...]], classes: int) -> dict[str, Any]:
        """The shapes of tensors for `classes` classes, from those for any other number."""
        return {
            name: (classes, *shape[1:]) if name in self.head else shape
            for name, shape in shapes.items()
        }

    def new_head(
        self, state: Mapping[str, FloatArray], classes: int, rng: np.random.Generator
    ) -> State:
        """The values of a network, with a new output layer of `classes` classes.

        Its weights are uniform in +-1 / sqrt(fan-in) and its biases zero, as in TinyTL (Cai et al.,
        2020).
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
        """The reader of this task's labels in a table with these columns.

        Args:
            titles: Titles of all columns.
            free: Positions of the columns that are neither the file nor the split.
            table: The table's name, for messages.

        Returns:
            None if the columns do not hold labels of this task.

        Raises:
            PocketuneError: The columns hold labels of this task, but one of them is invalid.
        """

    @classmethod
    @abstractmethod
    def find_classes(cls, labels: Iterable[Hashable], titles: tuple[str, ...]) -> tuple[str, ...]:
        """The classes, in order, from the labels and the titles of a reader."""

    @abstractmethod
    def encode(
        self, labels: Sequence[Hashable], titles: tuple[str, ...], where: str, *, complete: bool
    ) -> Labels:
        """The array of all labels, one along the first axis for each image.

        Args:
            labels: Labels from a reader, of the usable images.
            titles: The titles of the reader.
            where: The place of the images, for messages.
            complete: Whether each class must occur.

        Raises:
            PocketuneError: They are not labels of these classes.
        """

    def targets(self, labels: Labels) -> FloatArray | None:
        """The outputs (N, outputs) that a least-squares fit of the output layer should give.

        None if the task's output layer cannot be fitted so; then it is drawn at random.
        """
        return None

    def strata(self, labels: Labels) -> NDArray[np.int64] | None:
        """The group (N,) of each image if groups are to be divided alike; else None."""
        return None

    def check_training(self, training: Labels, validation: Labels, where: str) -> None:  # noqa: B027
        """Check that something can be learned from the labels.

        Raises:
            PocketuneError: Nothing can be learned from them.
        """

    # Views: a task whose labels are of pixels draws them itself.

    def training_view(
        self, label: Labels, width: int, height: int, size: int, rng: np.random.Generator
    ) -> View | None:
        """A random view of a training image; None for a crop that shows a part of it.

        Args:
            label: The image's label, of the whole image.
            width: Width of the upright image, in pixels.
            height: Its height.
            size: Height and width of the view.
            rng: Random numbers for this image and epoch, used for nothing else.
        """
        return None

    def evaluation_view(self, width: int, height: int, size: int) -> View | None:
        """The view of an image of this width and height in an evaluation; None for its center."""
        return None

    def transform(self, label: Labels, view: View) -> Labels:
        """The label of a view of a training image; a label of the whole image does not change."""
        return label

    def truth(self, label: Labels, view: View) -> Any:
        """The label that the output for an evaluation's view is compared with."""
        return label

    def collate(self, labels: Sequence[Any]) -> Labels:
        """The labels of a batch, as the step takes them; or the truths of an evaluation."""
        return np.stack(labels)

    def step_inputs(self, classes: int | None = None) -> State:
        """Constant inputs of a training step by name, beside images and labels; none by default."""
        return {}

    def loss_weight(self, labels: Labels, inputs: Mapping[str, FloatArray]) -> float:
        """What the loss of these labels divides by: their weight in the mean of several batches.

        Args:
            labels: The labels (N, ...) of a batch, as the step takes them.
            inputs: The step inputs.
        """
        return len(labels)

    def balanced(self: S, labels: Labels) -> S:
        """The task with weights of its classes, so that those with few labels count more.

        Raises:
            PocketuneError: The loss of the task has no weights.
        """
        raise PocketuneError(
            f"the loss of {self.name} has no weights of its {self.noun}: leave class_weights out, "
            "or set balance for classes of uneven numbers of photos"
        )

    def label_shape(self, size: int, classes: int | None = None) -> tuple[int, ...]:
        """The shape of one image's label for images of this size."""
        return self._shape(self.label_dims, size, classes)

    def output_shape(self, size: int, classes: int | None = None) -> tuple[int, ...]:
        """The shape of the network's output for one image of this size."""
        return self._shape(self.output_dims, size, classes)

    def _shape(self, dims: Dims, size: int, classes: int | None) -> tuple[int, ...]:
        known = {CLASSES: len(self.classes) if classes is None else classes, SIZE: size}
        return tuple(known[dim] if isinstance(dim, str) else dim for dim in dims)

    # The metric, evaluation and predictions.

    @abstractmethod
    def losses(self, outputs: FloatArray, labels: Labels) -> Values:
        """The loss (N,) of each image, without label smoothing, in float64."""

    @abstractmethod
    def marks(self, outputs: FloatArray, labels: Labels) -> NDArray[Any]:
        """Values whose mean is the metric; any number of them for each image."""

    def is_better(self, score: Score, than: Score) -> bool:
        """Whether a score is better than another; in a tie, the lower loss is better."""
        return (score.value, -score.loss) > (than.value, -than.loss)

    @property
    def larger_is_better(self) -> bool:
        """Whether a larger value of the metric is better."""
        return self.is_better(self.score(1, 0), self.score(0, 0))

    def score(self, value: float, loss: float) -> Score:
        """A score of this task's metric."""
        return Score(self.metric_name, value, loss, self.metric_style)

    def step_score(self, loss: float, metrics: Mapping[str, float], images: int) -> Score:
        """The score of training steps, from their mean loss and the sums of their metrics."""
        return self.score(metrics[self.step_metrics[0]] / images, loss)

    def metric(self) -> Metric:
        """A new metric."""
        return Mean(self)

    @abstractmethod
    def evaluate(self, batches: Iterable[tuple[FloatArray, Labels]]) -> Evaluation:
        """All results for batches of outputs and labels."""

    @abstractmethod
    def predict(
        self, name: str, output: FloatArray, top: int | None, seen: Seen | None = None
    ) -> Prediction:
        """The prediction for one image.

        Args:
            name: The image's file.
            output: The network's output for the image, without the batch.
            top: Number of classes to name; None for the task's default.
            seen: The image, and the part of it that the output is for; needed for dense outputs.
        """

    # What a report says about single images; a task without a method's subject keeps the default.

    def counts(self, labels: Labels) -> NDArray[np.int64] | None:
        """The number of images (classes,) of each class; None if classes are not counted."""
        return None

    def confidences(self, outputs: FloatArray) -> Values | None:
        """The probability of each decision that `marks` judges, in its shape; None without any."""
        return None

    def answers(self, labels: Labels) -> NDArray[np.int64]:
        """The label as answers (N, questions), each a number from 0; no questions by default."""
        return np.zeros((len(labels), 0), np.int64)

    def answer(self, question: int, value: int) -> str:
        """An answer in words."""
        return str(value)

    def verdict(self, output: FloatArray, label: Labels, seen: Seen | None = None) -> Verdict:
        """What the output for one image says, and what its encoded label says, in words."""
        said = ", ".join(f"{value:g}" for value in np.ravel(label).tolist())
        return Verdict(truth=said, guess=str(self.predict("", output, None, seen)))


TASKS: dict[str, type[Task]] = {}
"""All tasks by name. If several tasks can read the same labels, the first one does."""

T = TypeVar("T", bound=type[Task])


def register_task(task: T) -> T:
    """Class decorator that registers a task under its name.

    Raises:
        ValueError: The name is taken.
    """
    if TASKS.setdefault(task.name, task) is not task:
        raise ValueError(f"a task {task.name!r} is registered already")
    return task


def list_tasks() -> list[str]:
    """Names for `task_named`, in the order of registration."""
    import_extensions("tasks")
    return list(TASKS)


def task_named(name: str) -> type[Task]:
    """The task of this name.

    Raises:
        PocketuneError: There is no such task; the message lists all names.
    """
    if name not in TASKS:
        import_extension("tasks", name)
    if name not in TASKS:
        raise PocketuneError(f"unknown task {name!r}: choose one of {', '.join(list_tasks())}")
    return TASKS[name]


def numbered(count: int) -> tuple[str, ...]:
    """The names "0", "1", ... for classes without names."""
    return tuple(map(str, range(count)))


def no_value(what: str, table: str, line: int) -> PocketuneError:
    """The error about a label that a line of a table lacks; a list or an object is none."""
    if table.lower().endswith(".jsonl"):
        return PocketuneError(
            f"{shown(table)} has no text or number as {what} in line {line}; write one, or, where "
            "an image has a list of labels, a member for each label, 1 for images that have it and "
            "0 for others"
        )
    return PocketuneError(f"{shown(table)} has no {what} in line {line}; add it")


def as_label(text: str) -> str:
    """A class name with composed accents, because file systems store accents differently."""
    return unicodedata.normalize("NFC", text)
