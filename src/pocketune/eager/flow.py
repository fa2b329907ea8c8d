"""Which layers read exactly what another one returns, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pocketune.networks.probe import probing
from pocketune.networks.shapes import tensors

_ATTRIBUTES = ("shape", "ndim", "dtype", "device", "layout", "requires_grad", "is_quantized")
_METHODS = ("size", "dim", "numel", "nelement", "stride", "is_floating_point", "__len__")
_VALUELESS: tuple[Any, ...] = (
    *(getattr(Tensor, name).__get__ for name in _ATTRIBUTES),
    *(getattr(Tensor, name) for name in _METHODS),
)
"""Functions that read no values."""


@dataclass(eq=False)
class _Map:
    """What a layer returned.

    Attributes:
        tensor: It, which stays alive so that no other has its id.
        version: How often it had been changed in place.
        path: Of the layer.
        source: What the layer read, if another layer returned that.
        readers: How many layers and operators have read it.
    """

    tensor: Tensor
    version: int
    path: str
    source: _Map | None
    readers: int = 0

    def row(self) -> Iterator[str]:
        """Paths of the layers up to this one, along maps that only the next layer reads."""
        if self.source is not None and self.source.readers == 1:
            yield from self.source.row()
        yield self.path


@dataclass(frozen=True)
class Flow:
    """What a run has shown.

    Attributes:
        frozen: Paths of the layers into which no gradient flowed in any call.
        rows: Paths of layers of which each but the last is a layer whose output only the next one
            reads, unchanged; for each call of a layer, the longest row that ends with it.
    """

    frozen: frozenset[str]
    rows: tuple[tuple[str, ...], ...]

    def calls(self, path: str) -> int:
        """How often a layer was called."""
        return sum(row[-1] == path for row in self.rows)

    def has_row(self, *paths: str) -> bool:
        """Whether the others follow so in every call of the first of these layers."""
        fitting = sum(row[-len(paths) :] == paths for row in self.rows)
        return 0 < fitting == self.calls(paths[0])


def follow(network: nn.Module, paths: Iterable[str], images: Tensor) -> Flow:
    """Run a network in evaluation mode, with gradients, and see what some of its layers read.

    Args:
        network: Not changed.
        paths: The layers.
        images: (N, 3, H, W).
    """
    seen = _Seen()
    with probing(network, paths=paths, enter=seen.enter, leave=seen.leave, gradients=True), seen:
        returned = network(images)
        for tensor in tensors(returned):
            seen.read(tensor)
    rows = tuple(tuple(made.row()) for made in seen.maps)
    return Flow(frozenset({made.path for made in seen.maps} - seen.trained), rows)


class _Seen(TorchFunctionMode):
    """What layers return, and who reads it: the layers, and operators outside of them."""

    def __init__(self) -> None:
        super().__init__()
        self.trained: set[str] = set()
        self.maps: list[_Map] = []
        self._latest: dict[int, _Map] = {}
        self._sources: list[_Map | None] = []  # of the layers that are running

    def enter(self, path: str, _: nn.Module, given: list[Tensor]) -> None:
        self._sources.append(None)  # first, since a tensor's own attributes are functions, too
        self._sources[-1] = self.read(given[0])
        if given[0].requires_grad:
            self.trained.add(path)

    def leave(self, path: str, _: nn.Module, returned: list[Tensor]) -> None:
        tensor = returned[0]
        made = _Map(tensor, tensor._version, path, self._sources.pop())
        self.maps.append(made)
        self._latest[id(tensor)] = made

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if not self._sources and func not in _VALUELESS:
            for tensor in tensors((args, kwargs)):
                self.read(tensor)
        return func(*args, **(kwargs or {}))

    def read(self, tensor: Tensor) -> _Map | None:
        """Note a reader of what a layer has returned; None if none has, or it was changed since."""
        made = self._latest.get(id(tensor))
        if made is None:
            return None
        made.readers += 1
        return made if made.version == tensor._version else None
