"""What options can be is what the library has."""

from collections.abc import Collection
from typing import Any, get_args

import pytest

from pocketune.accounting.report import OPTIMIZERS as ACCOUNTED
from pocketune.cli import options
from pocketune.device.train.optimizer import OPTIMIZERS
from pocketune.networks.config import PADDINGS
from pocketune.papers.published import MEMORY
from pocketune.pruning.retraining import LEARNING_RATES
from pocketune.surgery.prune import RANKINGS
from pocketune.tasks.losses import LOSSES


@pytest.mark.parametrize(
    ("choices", "known"),
    [
        (options.Padding, PADDINGS),
        (options.Optimizer, OPTIMIZERS),
        (options.Optimizer, ACCOUNTED),
        (options.Loss, LOSSES),
        (options.Importance, RANKINGS),
        (options.Followed, LEARNING_RATES),
        (options.Convention, MEMORY),
    ],
)
def test_choices(choices: Any, known: Collection[str]) -> None:
    assert set(get_args(choices)) == set(known)
