"""The memory that a step holds, operator by operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum

from pocketune.accounting.record import Event, Freed, Operation


class Role(Enum):
    """What a storage that is allocated during a step is for."""

    IMAGES = "images"
    KEPT = "kept"
    GRADIENT = "gradients"


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes by purpose. Every byte is counted once.

    Attributes:
        trained_parameters: Parameters that are trained.
        frozen_parameters: All others, and buffers other than statistics, such as int8 weights.
        statistics: Running statistics of norms, and their counters.
        optimizer: State of the optimizer for the trained parameters.
        images: The batch of images and its labels.
        kept: Tensors that layers keep for the backward pass; images that are kept count here.
        residual: Outputs of earlier layers that wait while others run in the forward pass: for a
            residual connection, or because the code that called the layer still holds them.
        temporaries: Other activations, and their gradients in the backward pass.
        workspace: What kernels allocate for themselves.
        gradients: Gradients of parameters.
    """

    trained_parameters: int = 0
    frozen_parameters: int = 0
    statistics: int = 0
    optimizer: int = 0
    images: int = 0
    kept: int = 0
    residual: int = 0
    temporaries: int = 0
    workspace: int = 0
    gradients: int = 0

    @property
    def total(self) -> int:
        """Bytes of all categories."""
        return sum(self.by_category().values())

    def by_category(self) -> dict[str, int]:
        """Bytes by name of the attribute."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class Snapshot:
    """The memory while one operator runs, its outputs and its kernel's workspace included.

    Attributes:
        phase: `forward`, `backward` or `optimizer`.
        layer: Path of the innermost module that runs it, `loss`, or "" for the network itself.
        operator: Its name in PyTorch.
        memory: The storages that are alive.
    """

    phase: str
    layer: str
    operator: str
    memory: Memory


def peak(snapshots: Iterable[Snapshot]) -> Snapshot:
    """The first snapshot with most memory."""
    return max(snapshots, key=lambda snapshot: snapshot.memory.total)


def largest_bytes(snapshots: Sequence[Snapshot]) -> dict[str, int]:
    """Most bytes of each category in any snapshot."""
    each = [snapshot.memory.by_category() for snapshot in snapshots]
    return {name: max(memory[name] for memory in each) for name in each[0]}


def timeline(
    events: Iterable[Event], roles: Mapping[int, Role], resident: Memory, given: Mapping[int, int]
) -> list[Snapshot]:
    """The memory at each operator.

    Args:
        events: What the step did, in order.
        roles: By storage; a storage without a role is a temporary.
        resident: Memory that is held all the time.
        given: Bytes of storages that exist before the first event.
    """
    sizes = dict(given)
    live = {role.value: 0 for role in Role}
    loose: dict[int, int] = {}  # temporaries
    for storage, size in given.items():
        live[roles[storage].value] += size
    snapshots = []
    for event in events:
        if isinstance(event, Freed):
            size = sizes.pop(event.storage, 0)
            if event.storage in roles:
                live[roles[event.storage].value] -= size
            loose.pop(event.storage, None)
            continue
        for storage, size in event.made.items():
            sizes[storage] = size
            if storage in roles:
                live[roles[storage].value] += size
            else:
                loose[storage] = size
        waiting = _waiting(event, loose)
        memory = replace(
            resident,
            residual=waiting,
            temporaries=sum(loose.values()) - waiting,
            workspace=event.workspace,
            **live,
        )
        snapshots.append(Snapshot(event.phase, event.module, event.operator, memory))
    return snapshots


def _waiting(event: Operation, loose: Mapping[int, int]) -> int:
    if event.phase != "forward":
        return 0
    return sum(size for storage, size in loose.items() if storage not in event.touched)
