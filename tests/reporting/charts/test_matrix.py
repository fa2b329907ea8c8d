"""The confusion matrix in words."""

import numpy as np
import pytest

from pocketune.reporting.charts.matrix import confusion_chart
from pocketune.reporting.confusion import Matrix, confused_pairs
from pocketune.tasks.results import Confusions


@pytest.mark.parametrize(
    ("mistakes", "said"),
    [
        ([], "No photo is taken for another class."),
        ([(0, 1, 1)], "The only mistake: 1 photo labeled daisy is taken for roses."),
        ([(0, 1, 3)], "The only mistake: 3 photos labeled daisy are taken for roses."),
        ([(0, 1, 1), (1, 0, 1)], "No mistake occurs twice."),
        (
            [(0, 1, 1), (1, 0, 2)],
            "The most frequent mistake: 2 photos labeled roses are taken for daisy.",
        ),
    ],
)
def test_one_photo_is_not_the_most_frequent_mistake(mistakes, said):
    names = ("daisy", "roses")
    counted = np.array([(0, 0, 9), (1, 1, 9), *mistakes])
    matrix = np.zeros((2, 2), np.int64)
    matrix[counted[:, 0], counted[:, 1]] = counted[:, 2]
    pairs = confused_pairs(Confusions(names, counted), 40)
    assert confusion_chart(Matrix(names, matrix), pairs, 2).text == said
