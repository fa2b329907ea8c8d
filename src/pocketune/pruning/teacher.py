"""The unpruned network that a pruned one is distilled from."""

from __future__ import annotations

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.networks import about
from pocketune.weights import create_network
from pocketune.weights.saved import recorded_classes


def load_teacher(weights: str, student: nn.Module) -> nn.Module:
    """The network that `student` was before it lost channels or gained modules.

    Args:
        weights: of that network.
        student: of `create_network` or `load_network`.

    Raises:
        PocketuneError: if the weights are not of such a network.
    """
    known = about(student)
    if known.config is None:
        raise PocketuneError(
            f"{type(student).__name__} has no config to build its teacher from; create it with "
            "create_network"
        )
    options = known.config.to_dict()
    for changed in ("hidden", "branches"):
        options.pop(changed, None)
    options["classes"] = recorded_classes(weights)
    return create_network(**options, weights=weights, normalization=known.normalization)
