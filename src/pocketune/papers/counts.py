"""Memory and FLOPs as the papers count them, layer by layer and in total."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import NamedTuple

from pocketune.accounting.costs import Flops, LayerCost, combine
from pocketune.papers.trace import ModuleCall


class LayerMemory(NamedTuple):
    """The memory of a layer for one sample, in bytes: what a convention's rule returns."""

    kept: int
    """Kept for the backward pass."""
    temporary: int
    """Needed while the layer runs."""


NOTHING = LayerMemory(0, 0)


class LayerFlops(NamedTuple):
    """The FLOPs of a layer for the whole batch: what a convention's rule returns."""

    forward: int
    backward: int


@dataclass(frozen=True)
class PublishedMemory:
    """The memory of fine-tuning by a paper's convention, in bytes.

    Attributes:
        convention: Its name.
        batch: Samples of a step.
        total_bytes: `parameter_bytes + activation_bytes`; the papers' MB are 10^6 bytes.
        parameter_bytes: Bytes of all parameters; 0 if the convention counts none.
        activation_bytes: Bytes of the activations of the whole batch.
        peak_layer: Path of the layer at which activations take most; None if the convention is a
            sum over layers.
        layers: Each call of a layer, for one sample, in the order in which they end.
    """

    convention: str
    batch: int
    total_bytes: int
    parameter_bytes: int
    activation_bytes: int
    peak_layer: str | None
    layers: tuple[LayerCost, ...]

    @property
    def kept_bytes(self) -> int:
        """Bytes that one sample keeps for the backward pass."""
        return sum(layer.kept_bytes for layer in self.layers)


def layer_by_layer(
    costs: Iterable[tuple[ModuleCall, LayerMemory]], *, shortcuts: bool = True
) -> tuple[LayerCost, ...]:
    """Follow the memory from layer to layer; a shortcut is held while its block runs."""
    layers, held = [], 0
    for call, (kept, temporary) in costs:
        shortcut = 4 * prod(call.shortcut) if shortcuts and call.shortcut else 0
        layers.append(
            LayerCost(
                name=call.path,
                kind=type(call.module).__name__,
                block=call.block,
                kept_bytes=kept,
                cumulative_kept_bytes=held + kept,
                temporary_bytes=temporary,
                peak_bytes=temporary + held + shortcut,
            )
        )
        held += kept
    return tuple(layers)


def at_peak(
    convention: str, layers: tuple[LayerCost, ...], *, parameter_bytes: int, batch: int
) -> PublishedMemory:
    """Parameters once, and every sample's memory at the layer where it is largest."""
    peak = max(layers, key=lambda layer: layer.peak_bytes)
    activation = batch * peak.peak_bytes
    return PublishedMemory(
        convention=convention,
        batch=batch,
        total_bytes=parameter_bytes + activation,
        parameter_bytes=parameter_bytes,
        activation_bytes=activation,
        peak_layer=peak.name,
        layers=layers,
    )


def sum_of_kept(convention: str, layers: tuple[LayerCost, ...], *, batch: int) -> PublishedMemory:
    """Only what every sample keeps for the backward pass."""
    kept = batch * sum(layer.kept_bytes for layer in layers)
    return PublishedMemory(convention, batch, kept, 0, kept, None, layers)


def by_block(memory: PublishedMemory) -> tuple[LayerCost, ...]:
    """The memory of each block for one sample, in the order in which they run.

    Layers outside of blocks are left out.
    """
    groups = groupby(memory.layers, key=lambda layer: layer.block)
    blocks = ((path, list(layers)) for path, layers in groups if path is not None)
    return tuple(
        combine(
            layers,
            name=path,
            kind="block",
            cumulative_kept_bytes=layers[-1].cumulative_kept_bytes,
        )
        for path, layers in blocks
    )


def packed_bytes(count: int, width: int) -> int:
    """Bytes of `count` elements of `width` bits each, packed."""
    return -(-count * width // 8)


@dataclass(frozen=True)
class PublishedFlops:
    """The FLOPs of a fine-tuning step by a paper's convention; an addition is one FLOP.

    Attributes:
        convention: Its name.
        batch: Samples of a step.
        total: `forward + backward`.
        forward: FLOPs of all layers; 0 if the convention counts only the backward pass.
        backward: FLOPs of all layers.
        layers: Each call of a layer, for the whole batch, in the order in which they end.
    """

    convention: str
    batch: int
    total: int
    forward: int
    backward: int
    layers: tuple[LayerCost, ...]


def sum_of_flops(
    convention: str, costs: Iterable[tuple[ModuleCall, LayerFlops]], *, batch: int
) -> PublishedFlops:
    """Add up the FLOPs of the layers."""
    layers = tuple(
        LayerCost(
            name=call.path,
            kind=type(call.module).__name__,
            block=call.block,
            flops=Flops(forward=flops.forward, backward=flops.backward),
        )
        for call, flops in costs
    )
    forward = sum(layer.flops.forward for layer in layers)
    backward = sum(layer.flops.backward for layer in layers)
    return PublishedFlops(convention, batch, forward + backward, forward, backward, layers)
