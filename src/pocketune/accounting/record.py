"""Recording the operators of a training step, and the storages that they allocate and free."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor, nn

from pocketune.accounting.flops import OperatorFlops, operator_flops
from pocketune.accounting.workspace import workspace_bytes
from pocketune.errors import PocketuneError
from pocketune.networks.probe import probing
from pocketune.networks.shapes import tensors
from pocketune.torch_private import (
    TorchDispatchMode,
    backward_sequence_number,
    next_sequence_number,
    storage_address,
)

LOSS = "loss"
"""The path that stands for the loss."""


@dataclass(frozen=True)
class Operation:
    """One operator that ran.

    Attributes:
        phase: `forward` or `backward`.
        module: Path of the innermost module that ran it, or whose gradient it computes.
        operator: Its name in PyTorch, for example `aten.convolution.default`.
        touched: Storages that it read or wrote.
        made: Storages that it allocated, with their bytes.
        workspace: Bytes that its kernel allocates for itself while it runs.
        flops: Floating-point operations.
        macs: Multiply-accumulates of convolutions and matrix products.
    """

    phase: str
    module: str
    operator: str
    touched: frozenset[int]
    made: dict[int, int]
    workspace: int
    flops: int
    macs: int


@dataclass(frozen=True)
class Freed:
    """A storage that nothing holds any longer."""

    storage: int


Event: TypeAlias = "Operation | Freed"


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records what runs while it is active, fake or real.

    Storages are numbered in the order in which they appear. Forward operators belong to the module
    whose `forward` is running (see `watching`). Backward operators belong to the module in which
    the forward operator ran, found by the sequence numbers of the autograd nodes.

    Attributes:
        events: Operators and freed storages, in order.
        phase: The phase of the operators that run now.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.events: list[Event] = []
        self.phase = "forward"
        self._numbers: dict[int, int] = {}  # live storages by address
        self._watchers: dict[int, Any] = {}
        self._count = 0
        self._modules: dict[str, nn.Module] = {}
        self._stack = [""]
        self._switches: list[tuple[int, str]] = [(0, "")]  # from this sequence number on, the path

    def number(self, tensor: Tensor) -> int:
        """The number of a tensor's storage."""
        return self._number(tensor)[0]

    def numbers(self, tensors: Iterable[Tensor]) -> frozenset[int]:
        """The numbers of several tensors' storages."""
        return frozenset(self.number(tensor) for tensor in tensors)

    @property
    def path(self) -> str:
        """Path of the module that is running."""
        return self._stack[-1]

    @contextmanager
    def watching(self, network: nn.Module) -> Iterator[None]:
        """Follow which module of `network` is running."""
        self._modules = dict(network.named_modules())
        with probing(network, enter=self._enter, leave=self._leave, evaluate=False, gradients=None):
            yield

    @contextmanager
    def inside(self, path: str) -> Iterator[None]:
        """Assign the operators that run in this context to `path`."""
        self._enter(path)
        yield
        self._leave()

    def live(self) -> frozenset[int]:
        """Numbers of all storages that are alive."""
        return frozenset(self._numbers.values())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operator and record it."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func.namespace != "prim":  # questions about a tensor
            self._write(func, args, kwargs, result)
        return result

    def _write(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        module = self._module()
        touched, made = set(), {}
        for tensor in tensors((args, kwargs, result)):
            number, new = self._number(tensor)
            touched.add(number)
            if new:
                made[number] = tensor.untyped_storage().nbytes()
        flops, macs = self._flops(func, args, result, module)
        self.events.append(
            Operation(
                self.phase,
                module,
                str(func),
                frozenset(touched),
                made,
                workspace_bytes(func, args, result),
                flops,
                macs,
            )
        )

    def _flops(self, func: Any, args: tuple[Any, ...], result: Any, path: str) -> OperatorFlops:
        try:
            return operator_flops(func, args, result)
        except PocketuneError as error:
            kind = type(self._modules[path]).__name__ if path in self._modules else "function"
            raise PocketuneError(f"{path or 'the network'} ({kind}): {error}") from error

    def _number(self, tensor: Tensor) -> tuple[int, bool]:
        """The number of the storage, and whether it is new."""
        storage = tensor.untyped_storage()
        address = storage_address(storage)
        if address in self._numbers:
            return self._numbers[address], False
        number = self._numbers[address] = self._count
        self._count += 1

        def freed(_: object) -> None:
            del self._numbers[address], self._watchers[address]
            self.events.append(Freed(number))

        self._watchers[address] = weakref.ref(storage, freed)
        return number, True

    def _module(self) -> str:
        sequence = backward_sequence_number()
        if sequence is None or len(self._stack) > 1:
            return self._stack[-1]
        if sequence >= 1 << 63:  # accumulating a parameter's gradient: goes with what came before
            last = next((e for e in reversed(self.events) if isinstance(e, Operation)), None)
            return last.module if last else ""
        place = bisect_right(self._switches, sequence, key=lambda switch: switch[0])
        return self._switches[place - 1][1]

    def _enter(self, path: str, *_: Any) -> None:
        self._stack.append(path)
        self._switches.append((next_sequence_number(), path))

    def _leave(self, *_: Any) -> None:
        self._stack.pop()
        self._switches.append((next_sequence_number(), self._stack[-1]))
