"""Memory as the papers count it: what is kept for the backward pass, and the largest moment."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pocketune.papers.trace import Call


class Memory(NamedTuple):
    """What a layer takes for one sample, in bytes."""

    saved: int
    """Kept for the backward pass."""
    temporary: int
    """Needed while the layer runs."""


NOTHING = Memory(0, 0)


@dataclass(frozen=True)
class LayerMemory:
    """A layer's memory for one sample, in bytes.

    Attributes:
        path: name of the module.
        layer: its class.
        block: path of its block, None outside of blocks.
        saved_bytes: what it keeps for the backward pass.
        temporary_bytes: what it needs while it runs.
        shortcut_bytes: what its block holds for the shortcut at that time.
        cumulative_bytes: what has been kept for the backward pass when the layer is done.
        peak_bytes: all that is held while it runs.
    """

    path: str
    layer: str
    block: str | None
    saved_bytes: int
    temporary_bytes: int
    shortcut_bytes: int
    cumulative_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class PublishedMemory:
    """The memory of fine-tuning by a paper's own convention, in bytes.

    Attributes:
        convention: whose.
        batch: samples of a step.
        total_bytes: `parameter_bytes + activation_bytes`; the papers' MB are 10^6 bytes.
        parameter_bytes: all parameters; 0 where the convention counts none.
        activation_bytes: of the whole batch.
        peak_layer: path of the layer at which activations take most; None where the convention
            is a sum over layers.
        layers: each call of a layer, for one sample, in the order in which they run.
    """

    convention: str
    batch: int
    total_bytes: int
    parameter_bytes: int
    activation_bytes: int
    peak_layer: str | None
    layers: tuple[LayerMemory, ...]

    @property
    def saved_bytes(self) -> int:
        """What one sample keeps for the backward pass."""
        return sum(layer.saved_bytes for layer in self.layers)


def along(
    costs: Iterable[tuple[Call, Memory]], *, shortcuts: bool = True
) -> tuple[LayerMemory, ...]:
    """Follow what is held from layer to layer; a shortcut is held while its block runs."""
    layers, kept = [], 0
    for call, (saved, temporary) in costs:
        shortcut = 4 * elements(call.shortcut) if shortcuts and call.shortcut else 0
        layers.append(
            LayerMemory(
                path=call.path,
                layer=type(call.module).__name__,
                block=call.block,
                saved_bytes=saved,
                temporary_bytes=temporary,
                shortcut_bytes=shortcut,
                cumulative_bytes=kept + saved,
                peak_bytes=temporary + kept + shortcut,
            )
        )
        kept += saved
    return tuple(layers)


def at_peak(
    convention: str, layers: tuple[LayerMemory, ...], *, parameter_bytes: int, batch: int
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
        peak_layer=peak.path,
        layers=layers,
    )


def all_saved(convention: str, layers: tuple[LayerMemory, ...], *, batch: int) -> PublishedMemory:
    """What every sample keeps for the backward pass, and nothing else."""
    saved = batch * sum(layer.saved_bytes for layer in layers)
    return PublishedMemory(convention, batch, saved, 0, saved, None, layers)


def elements(shape: tuple[int, ...]) -> int:
    """Numbers in a tensor of that shape."""
    count = 1
    for size in shape:
        count *= size
    return count


def bits(count: int, width: int) -> int:
    """Bytes of `count` elements of `width` bits each."""
    return -(-count * width // 8)
