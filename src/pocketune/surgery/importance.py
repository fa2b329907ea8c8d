"""How much each hidden channel of a block matters."""

from collections.abc import Iterable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.networks.probe import watch_inputs
from pocketune.surgery.channels import Hidden

RANKINGS = ("l2", "weight")


def rank_channels(
    network: nn.Module,
    sets: Sequence[Hidden],
    importance: str,
    batches: Iterable[Tensor] | None = None,
) -> list[Tensor]:
    """Importance of every channel of each set, (C,) float64; more is more important.

    Args:
        network: left as it is.
        sets: the hidden channels to rank.
        importance: `"l2"`, the L2 norm of what arrives of the channel at the convolution that
            reads it, over all images and pixels; or `"weight"`, the L2 norm of the weights by
            which that convolution reads it. (The weights that produce a channel say nothing
            where a batch norm follows, which undoes their scale.)
        batches: normalized images (N, 3, H, W), for `"l2"`.

    Raises:
        PocketuneError: for an unknown importance, or `"l2"` without images.
    """
    if importance not in RANKINGS:
        raise PocketuneError(f"importance={importance!r} is unknown; choose from {RANKINGS}")
    if importance == "weight":
        return [_weight_norms(network, hidden) for hidden in sets]
    return _activation_norms(network, sets, () if batches is None else batches)


def _weight_norms(network: nn.Module, hidden: Hidden) -> Tensor:
    """Norm of a convolution's weights (O, C, k, k) by input channel."""
    weight = network.get_submodule(hidden.consumer.conv).get_parameter("weight")
    return weight.detach().double().square().sum((0, 2, 3)).sqrt()


def _activation_norms(
    network: nn.Module, sets: Sequence[Hidden], batches: Iterable[Tensor]
) -> list[Tensor]:
    """Run the network as it predicts, and watch what goes into each consumer."""
    sums = [torch.zeros(hidden.count(network), dtype=torch.float64) for hidden in sets]

    watchers = {
        network.get_submodule(hidden.consumer.conv): partial(_add_squares, total)
        for hidden, total in zip(sets, sums, strict=True)
    }
    if watch_inputs(network, batches, watchers) == 0:
        raise PocketuneError(
            "importance='l2' ranks channels by what photos make of them, and there are none: give "
            "a few hundred, or importance='weight'"
        )
    return [total.sqrt() for total in sums]


def _add_squares(total: Tensor, x: Tensor) -> None:
    total.add_(x.square().sum((0, 2, 3), dtype=torch.float64).cpu())
