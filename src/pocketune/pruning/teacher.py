"""The unpruned network that a pruned one is distilled from."""

from __future__ import annotations

from typing import Any

from torch import nn

from pocketune.weights import create_network
from pocketune.weights.saved import recorded_classes


def load_teacher(weights: str, student: Any) -> nn.Module:
    """The network that `student` was before it lost channels or gained modules.

    Args:
        weights: of that network.
        student: of `create_network` or `load_network`.

    Raises:
        PocketuneError: if the weights are not of such a network.
    """
    options = student.config.to_dict()
    for changed in ("hidden", "branches"):
        options.pop(changed, None)
    options["classes"] = recorded_classes(weights)
    return create_network(**options, weights=weights, normalization=student.normalization)
