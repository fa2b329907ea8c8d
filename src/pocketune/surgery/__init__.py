"""What methods are made of: small changes to a network, in place, by the names of its modules."""

from pocketune.surgery.branch import BRANCH, add_branches
from pocketune.surgery.filter import filter_convolution
from pocketune.surgery.freeze import (
    batch_norms,
    disable_inplace,
    freeze_batch_norms,
    parameters_under,
    train_only,
)
from pocketune.surgery.swap import Factory, swap

__all__ = [
    "BRANCH",
    "Factory",
    "add_branches",
    "batch_norms",
    "disable_inplace",
    "filter_convolution",
    "freeze_batch_norms",
    "parameters_under",
    "swap",
    "train_only",
]
