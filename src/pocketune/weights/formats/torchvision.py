"""Weights of torchvision's networks that classify pixels, under the names that they have here."""

from collections.abc import Mapping

import torch
from torch import Tensor

from pocketune.errors import PocketuneError
from pocketune.networks.config import NetworkConfig

AUXILIARY = "aux_classifier."
"""A second head that only pretraining needs."""

NAMES = {  # of torchvision's modules, and ours
    "fcn_torchvision": {
        "classifier.0.": "decode_head.bottleneck.0.",
        "classifier.1.": "decode_head.bottleneck.1.",
        "classifier.4.": "classifier.1.",
    },
    "deeplabv3_torchvision": {
        "classifier.0.convs.4.1.": "decode_head.image_pool.0.",
        "classifier.0.convs.4.2.": "decode_head.image_pool.1.",
        "classifier.0.convs.": "decode_head.aspp.",
        "classifier.0.project.": "decode_head.project.",
        "classifier.1.": "decode_head.bottleneck.0.",
        "classifier.2.": "decode_head.bottleneck.1.",
        "classifier.4.": "classifier.0.",
    },
    "lraspp": {
        "classifier.cbr.": "decode_head.cbr.",
        "classifier.scale.1.": "decode_head.scale.0.",
    },
}
SIGNS = {  # a name in the state dict that shows which of them it is
    "classifier.cbr.0.weight": "lraspp",
    "classifier.0.project.0.weight": "deeplabv3_torchvision",
    "classifier.0.weight": "fcn_torchvision",
}


def is_torchvision(state: Mapping[str, Tensor]) -> bool:
    """Whether a state dict is that of a network of torchvision that classifies pixels."""
    backbone = any(name.startswith("backbone.") for name in state)
    return backbone and not any(name.startswith("decode_head.") for name in state)


def from_torchvision(
    state: Mapping[str, Tensor], config: NetworkConfig, source: str
) -> dict[str, Tensor]:
    """The state dict of the same network here, without the auxiliary head.

    Args:
        state: What `is_torchvision` accepts.
        config: Of the network to load it into.
        source: Name of the weights for errors.

    Raises:
        PocketuneError: It is that of another network.
    """
    kind = next((kind for sign, kind in SIGNS.items() if sign in state), None)
    if kind != config.name:
        remedy = f"create {kind}" if kind else f"create one of {', '.join(NAMES)}"
        raise PocketuneError(
            f"{source} has another decode head than {config.name}, that of torchvision; {remedy}"
        )
    renamed = {
        _renamed(name, NAMES[kind]): tensor
        for name, tensor in state.items()
        if not name.startswith(AUXILIARY)
    }
    return _one_classifier(renamed) if kind == "lraspp" else renamed


def _renamed(name: str, names: Mapping[str, str]) -> str:
    prefix = next((prefix for prefix in names if name.startswith(prefix)), None)
    return name if prefix is None else names[prefix] + name.removeprefix(prefix)


def _one_classifier(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The classifiers of the two maps as one of both: see `LRASPPHead`."""
    parts = {kind: state.pop(f"classifier.{kind}_classifier.weight") for kind in ("low", "high")}
    biases = [state.pop(f"classifier.{kind}_classifier.bias") for kind in ("low", "high")]
    weight = torch.cat([parts["low"], parts["high"]], 1)
    return {**state, "classifier.0.weight": weight, "classifier.0.bias": biases[0] + biases[1]}
