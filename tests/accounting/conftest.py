"""The report of a small network, which is drawn in several ways."""

import pytest
from torch import nn

from pocketune.accounting import Report, account


@pytest.fixture(scope="module")
def report() -> Report:
    features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2))
    return account(nn.Sequential(features, nn.Flatten(), nn.Linear(72, 2)), batch=2, size=9)
