"""The choices of options are those of the library."""

from collections.abc import Collection

import pytest

from pocketune.accounting.report import OPTIMIZERS as ACCOUNTED
from pocketune.cli import options
from pocketune.device.train.defaults import OPTIMIZERS
from pocketune.networks.config import NORMS, PADDINGS
from pocketune.papers.published import MEMORY
from pocketune.surgery.prune import RANKINGS


@pytest.mark.parametrize(
    ("choices", "known"),
    [
        (options.PADDINGS, PADDINGS),
        (options.NORMS, NORMS),
        (OPTIMIZERS, ACCOUNTED),
        (options.RANKINGS, RANKINGS),
        (options.CONVENTIONS, MEMORY),
    ],
)
def test_choices(choices: Collection[str], known: Collection[str]) -> None:
    assert set(choices) == set(known)
