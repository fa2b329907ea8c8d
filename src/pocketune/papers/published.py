"""A network's memory and FLOPs by the papers' own conventions."""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from torch import nn

from pocketune.errors import PocketuneError, check_positive
from pocketune.papers.counts import PublishedFlops, PublishedMemory
from pocketune.papers.gradfilter import GradientFilterFlops, GradientFilterMemory
from pocketune.papers.mobiletl import MobileTLFlops, MobileTLMemory, MobileTLStored
from pocketune.papers.repnet import RepNetMemory
from pocketune.papers.tinytl import TinyTLMemory
from pocketune.papers.trace import ModuleTrace, trace_modules


class MemoryConvention(Protocol):
    """A way to count memory: a frozen dataclass of its options."""

    def measure(self, trace: ModuleTrace, batch: int) -> PublishedMemory:
        """Memory of a step of `batch` samples."""


class FlopsConvention(Protocol):
    """A way to count FLOPs: a frozen dataclass of its options."""

    def count(self, trace: ModuleTrace, batch: int) -> PublishedFlops:
        """FLOPs of a step of `batch` samples."""


MEMORY: dict[str, MemoryConvention] = {
    convention.name: convention
    for convention in (
        TinyTLMemory(),
        MobileTLMemory(),
        MobileTLStored(),
        RepNetMemory(),
        GradientFilterMemory(),
    )
}
"""The conventions for memory by name, with the defaults of their papers."""

FLOPS: dict[str, FlopsConvention] = {
    convention.name: convention for convention in (MobileTLFlops(), GradientFilterFlops())
}
"""The conventions for FLOPs by name, with the defaults of their papers."""

Convention = TypeVar("Convention")


def published_memory(
    network: nn.Module,
    convention: str | MemoryConvention,
    *,
    batch: int = 8,
    size: int = 224,
) -> PublishedMemory:
    """Memory of a fine-tuning step as a paper counts it, to compare with its tables.

    Args:
        network: Adapted; parameters with `requires_grad` are trained.
        convention: `"tinytl"`, `"mobiletl"`, `"mobiletl-stored"`, `"repnet"`, `"gradfilter"`, or
            one of their classes with options of your own.
        batch: Samples of a step.
        size: Side of the images in pixels.

    Raises:
        PocketuneError: For an unknown convention, a batch or size below 1, a network that cannot
            take such images, and a layer that the convention has no rule for.

    Example:
        >>> import pocketune
        >>> network = pocketune.create_network("mobilenet_v2", width=1.4, classes=102)
        >>> adapted = pocketune.adapt(network, pocketune.FullFineTune())
        >>> memory = pocketune.published_memory(adapted, "tinytl")
        >>> round(memory.total_bytes / 1e6, 1)  # TinyTL, table 3: 644 MB
        644.2
    """
    chosen = _choose(convention, MEMORY)
    return chosen.measure(_follow(network, batch=batch, size=size), batch)


def published_flops(
    network: nn.Module,
    convention: str | FlopsConvention,
    *,
    batch: int = 8,
    size: int = 224,
) -> PublishedFlops:
    """FLOPs of a fine-tuning step as a paper counts them, to compare with its tables.

    Args:
        network: Adapted; parameters with `requires_grad` are trained.
        convention: `"mobiletl"`, or `"gradfilter"` for the backward pass alone, or one of their
            classes with options of your own.
        batch: Samples of a step.
        size: Side of the images in pixels.

    Raises:
        PocketuneError: As `published_memory`.

    Example:
        >>> import pocketune
        >>> network = pocketune.create_network("mobilenet_v3_small", classes=100)
        >>> adapted = pocketune.adapt(network, pocketune.FullFineTune())
        >>> flops = pocketune.published_flops(adapted, "mobiletl")
        >>> round(flops.forward / 1e6, 1)  # MobileTL: 1000.6 million
        1000.6
    """
    chosen = _choose(convention, FLOPS)
    return chosen.count(_follow(network, batch=batch, size=size), batch)


def _choose(convention: str | Convention, known: Mapping[str, Convention]) -> Convention:
    if not isinstance(convention, str):
        return convention
    if convention not in known:
        raise PocketuneError(
            f"there is no published convention {convention!r} here; choose from {', '.join(known)}"
        )
    return known[convention]


def _follow(network: nn.Module, *, batch: int, size: int) -> ModuleTrace:
    check_positive(batch=batch, size=size)
    return trace_modules(network, (3, size, size))
