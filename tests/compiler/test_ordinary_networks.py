"""What users' networks have that ours have not, adapted, accounted for and compiled."""

from pathlib import Path

import pytest
from torch import nn

from pocketune.accounting import account
from pocketune.compiler import compile
from pocketune.methods import FullFineTune, LastLayer, Method, NormAndLast, TopBlocks, adapt

from .networks import BATCH, CLASSES, SIZE, tiny


def check(network: nn.Module, method: Method, tmp_path: Path) -> None:
    """`compile` itself compares every tensor with PyTorch for five steps."""
    adapted = adapt(network, method)
    assert account(adapted, batch=BATCH, size=SIZE).kept_bytes > 0
    compile(adapted, tmp_path / "kit", batch=BATCH, size=SIZE)


@pytest.mark.parametrize(
    "method", [FullFineTune(), LastLayer(), NormAndLast(), TopBlocks(1)], ids=str
)
def test_a_batch_norm_of_vectors_in_the_head(method: Method, tmp_path: Path) -> None:
    network = tiny()
    network.classifier = nn.Sequential(
        nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, CLASSES)
    )
    check(network, method, tmp_path)
