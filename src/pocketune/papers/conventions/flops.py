"""FLOPs as the papers count them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pocketune.papers.trace import Call


class Flops(NamedTuple):
    """A layer's floating-point operations for a whole batch."""

    forward: int
    backward: int


@dataclass(frozen=True)
class LayerFlops:
    """A layer's floating-point operations for a whole batch."""

    path: str
    layer: str
    block: str | None
    forward: int
    backward: int


@dataclass(frozen=True)
class PublishedFlops:
    """The work of a fine-tuning step by a paper's own convention, an addition being one FLOP.

    Attributes:
        convention: whose.
        batch: samples of a step.
        total: `forward + backward`.
        forward: of all layers; 0 where the convention counts the backward pass alone.
        backward: of all layers.
        layers: each call of a layer, for the whole batch, in the order in which they run.
    """

    convention: str
    batch: int
    total: int
    forward: int
    backward: int
    layers: tuple[LayerFlops, ...]


def total(convention: str, costs: Iterable[tuple[Call, Flops]], *, batch: int) -> PublishedFlops:
    """Add up what the layers do."""
    layers = tuple(
        LayerFlops(call.path, type(call.module).__name__, call.block, *flops)
        for call, flops in costs
    )
    forward = sum(layer.forward for layer in layers)
    backward = sum(layer.backward for layer in layers)
    return PublishedFlops(convention, batch, forward + backward, forward, backward, layers)
