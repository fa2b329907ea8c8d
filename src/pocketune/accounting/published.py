"""A network's memory by the papers' own conventions."""

from typing import Protocol

from torch import nn

from pocketune.accounting.conventions.memory import PublishedMemory
from pocketune.accounting.conventions.tinytl import TinyTLMemory
from pocketune.accounting.walk import Walk, walk
from pocketune.errors import PocketuneError


class MemoryConvention(Protocol):
    """A way to count memory: a frozen dataclass of its knobs."""

    def measure(self, walk: Walk, batch: int) -> PublishedMemory:
        """Memory of a step of `batch` samples."""


MEMORY: dict[str, MemoryConvention] = {
    convention.name: convention for convention in (TinyTLMemory(),)
}
"""Each convention as its paper has it."""


def published_memory(
    network: nn.Module,
    convention: str | MemoryConvention = "tinytl",
    *,
    batch: int = 8,
    size: int = 224,
) -> PublishedMemory:
    """Memory of a fine-tuning step as a paper counts it, to compare with its tables.

    For what a step really takes, see `pocketune.account`.

    Args:
        network: adapted; `requires_grad` tells what is trained.
        convention: one of `MEMORY`, or a convention with knobs of your own.
        batch: samples of a step.
        size: side of the images in pixels.

    Raises:
        PocketuneError: for an unknown convention, a batch or size below 1, a network that cannot
            take such images, and a layer that the convention has no rule for.

    Example:
        >>> import pocketune
        >>> from pocketune.accounting import published_memory
        >>> network = pocketune.create_network("mobilenet_v2", width=1.4, classes=102)
        >>> adapted = pocketune.adapt(network, pocketune.FullFineTune())
        >>> round(published_memory(adapted).total_bytes / 1e6, 1)  # TinyTL, table 3: 644 MB
        644.2
    """
    if isinstance(convention, str):
        if convention not in MEMORY:
            known = ", ".join(MEMORY)
            raise PocketuneError(f"no paper's memory is called {convention!r}; choose from {known}")
        convention = MEMORY[convention]
    return convention.measure(follow(network, batch=batch, size=size), batch)


def follow(network: nn.Module, *, batch: int, size: int) -> Walk:
    """Walk over a network of square images, after a look at the numbers."""
    for name, value in {"batch": batch, "size": size}.items():
        if value < 1:
            raise PocketuneError(f"{name}={value} makes no step; give a whole number from 1 on")
    return walk(network, (3, size, size))
