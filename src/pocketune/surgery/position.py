"""Whether a block treats each of its hidden channels alike, wherever it stands among the others."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.networks.copies import copy_network
from pocketune.networks.probe import watch_inputs
from pocketune.surgery.channels import Hidden, keep_inputs

TOLERANCE = 1e-3
"""Relative difference of two feature maps in float32 that are the same but for rounding."""

_COARSE = 0.1
"""The same in fewer bits."""


def require_same_channels(
    network: nn.Module, pruned: nn.Module, kept: Mapping[Hidden, Tensor], image: Tensor
) -> None:
    """Check that the channels that are left have the values that they had among all.

    They have others if the network's own code shuffles the channels, divides by their number or
    subtracts their mean.

    Args:
        network: The network before, which runs on the image; not changed.
        pruned: The network without the other channels; not changed.
        kept: The places of the channels that are left.
        image: (1, 3, H, W); nothing is known of one without values.

    Raises:
        PocketuneError: They have other values; the message names the block.
    """
    if image.is_meta:
        return
    expected = _read(_reading(network, kept), kept, image)
    for hidden, found in _read(pruned, kept, image).items():
        if not _same(found, expected[hidden]):
            raise PocketuneError(
                f"block {hidden.block} cannot be pruned: its own code mixes its hidden channels by "
                f"their place or counts them, since what {hidden.consumer.conv} reads of the ones "
                "that are left changes; leave it out"
            )


def _reading(network: nn.Module, kept: Mapping[Hidden, Tensor]) -> nn.Module:
    """A copy that makes all channels, of which it reads those that are left."""
    reading = copy_network(network)
    for hidden, places in kept.items():
        for path in keep_inputs(reading, hidden, places):
            reading.get_submodule(path).register_forward_pre_hook(_select(places))
    return reading


def _select(places: Tensor) -> Callable[..., Any]:
    return lambda _, inputs: (inputs[0].index_select(1, places.to(inputs[0].device)),)


def _read(
    network: nn.Module, kept: Mapping[Hidden, Tensor], image: Tensor
) -> dict[Hidden, list[Tensor]]:
    """What the consumers of hidden channels read, in each of their calls."""
    seen: dict[Hidden, list[Tensor]] = {hidden: [] for hidden in kept}
    watchers = {hidden.consumer.conv: maps.append for hidden, maps in seen.items()}
    watch_inputs(network, [image], watchers)
    return seen


def _same(found: list[Tensor], expected: list[Tensor]) -> bool:
    if [x.shape for x in found] != [x.shape for x in expected]:
        return False
    for x, y in zip(found, expected, strict=True):
        tolerance = _COARSE if x.element_size() < 4 else TOLERANCE
        away = (x - y).nan_to_num().norm()
        if not away <= tolerance * y.nan_to_num().norm():
            return False
    return True
