"""Logits that are adjusted while a run trains on classes of uneven size.

With plain cross-entropy, a rare class is predicted as rarely as it occurs. Menon et al. (2021,
equation 10) add a multiple of the logarithm of each class's frequency to its logit in the loss
alone, so that the network need not learn the frequencies. The bias of the output layer holds this
constant while the run trains; it is taken away where outputs are judged and values are saved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pocketune.tasks.results import share

if TYPE_CHECKING:
    from pocketune.arrays import FloatArray, State
    from pocketune.data import ImageDataset
    from pocketune.tasks import Labels, Score, Task


@dataclass(frozen=True, eq=False)
class Adjustment:
    """What is added to the logits while a run trains.

    Attributes:
        bias: Name of the output layer's bias.
        offsets: What is added for each class (K,), 0 on average.
    """

    bias: str
    offsets: FloatArray

    @classmethod
    def of(cls, photos: ImageDataset, task: Task, balance: float) -> Adjustment | None:
        """The adjustment for training photos; None if there is none to make.

        Args:
            photos: The training photos.
            task: The task of the kit, with the names of the output layer's parameters.
            balance: The factor on the logarithms: 1 makes all classes count alike.
        """
        groups = task.strata(photos.labels)
        if groups is None or task.activation != "softmax":
            return None
        counts = np.bincount(groups, minlength=len(photos.classes))
        offsets = balance * np.log(np.maximum(counts, 1))
        return cls(task.head[1], (offsets - offsets.mean()).astype(np.float32))

    def add_to(self, values: State) -> State:
        """Values to train with, from those of a network."""
        return {**values, self.bias: values[self.bias] + self.offsets}

    def logits(self, outputs: FloatArray) -> FloatArray:
        """Logits (N, K) of the network, from those that are trained."""
        plain: FloatArray = outputs - self.offsets
        return plain

    def metric(self, task: Task) -> AdjustedMetric:
        """A metric in which each class weighs as much as in training."""
        return AdjustedMetric(self, task)

    def remove_from(self, values: State) -> State:
        """Values of a network, from those that are trained."""
        return {**values, self.bias: values[self.bias] - self.offsets}


class AdjustedMetric:
    """The mean loss and metric of photos, of which those of rare classes weigh more.

    A photo weighs as much as its class's frequency was scaled in training: with a balance of 1, the
    metric is the mean recall of classes that validate as large a fraction as they train. Each class
    is summed alone, so that networks with equal recalls have the same metric to the bit, and their
    losses decide.
    """

    def __init__(self, adjustment: Adjustment, task: Task) -> None:
        self.images = 0
        self.adjustment = adjustment
        self._task = task
        self._sums = np.zeros((3, len(adjustment.offsets)))  # of marks, losses and photos

    def update(self, outputs: FloatArray, labels: Labels) -> None:
        """See `Metric`."""
        classes = self._sums.shape[1]
        values = self._task.marks(outputs, labels), self._task.losses(outputs, labels), None
        self._sums += [np.bincount(labels, value, classes) for value in values]
        self.images += len(labels)

    @property
    def score(self) -> Score:
        """See `Metric`."""
        weights = np.exp(-self.adjustment.offsets.astype(np.float64))
        marks, loss, weight = (self._sums @ weights).tolist()
        return self._task.score(share(marks, weight), share(loss, weight))
