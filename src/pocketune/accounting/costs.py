"""Costs of a training step by layer, and by block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from torch import Tensor, nn

from pocketune.accounting.record import LOSS, Operation
from pocketune.accounting.step import Step
from pocketune.accounting.timeline import Snapshot
from pocketune.networks.anatomy.modules import is_within
from pocketune.networks.anatomy.units import CONTAINERS


@dataclass(frozen=True, kw_only=True)
class Flops:
    """Floating-point operations of a step; see `accounting.flops` for how they are counted.

    Attributes:
        forward: FLOPs of the forward pass and the loss.
        backward: FLOPs of the backward pass.
        optimizer: FLOPs of the optimizer.
        forward_macs: Multiply-accumulates among those of the forward pass.
        backward_macs: Multiply-accumulates among those of the backward pass.
    """

    forward: int = 0
    backward: int = 0
    optimizer: int = 0
    forward_macs: int = 0
    backward_macs: int = 0

    @property
    def total(self) -> int:
        """FLOPs of the whole step."""
        return self.forward + self.backward + self.optimizer

    def __add__(self, other: Flops) -> Flops:
        names = (field.name for field in fields(self))
        return Flops(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """The cost of a layer, or of several together, such as a block.

    `account` counts a whole batch. The papers count memory for one sample, and only some of the
    attributes.

    Attributes:
        name: Module path; `loss`, or "" for what the network itself computes.
        kind: Class of the module.
        block: Path of its block, or of the layer itself outside blocks; None if a paper leaves it
            out of its blocks.
        parameter_bytes: Bytes of its parameters and buffers.
        trained_bytes: Bytes of its trained parameters.
        kept_bytes: Bytes that it keeps for the backward pass. A tensor that several layers keep
            counts for the first of them.
        cumulative_kept_bytes: The same, including all layers that ran before it.
        temporary_bytes: Most temporaries, residuals and workspace while it runs, in either pass.
        peak_bytes: Most memory of the whole step while it runs, in either pass.
        flops: Its FLOPs, those of the optimizer for its parameters included.
    """

    name: str
    kind: str
    block: str | None
    parameter_bytes: int = 0
    trained_bytes: int = 0
    kept_bytes: int = 0
    cumulative_kept_bytes: int = 0
    temporary_bytes: int = 0
    peak_bytes: int = 0
    flops: Flops = Flops()


def combine(
    costs: Sequence[LayerCost], *, name: str, kind: str, cumulative_kept_bytes: int
) -> LayerCost:
    """Costs of several layers as one: sums, except the largest of temporaries and peaks."""
    return LayerCost(
        name=name,
        kind=kind,
        block=costs[0].block,
        parameter_bytes=sum(cost.parameter_bytes for cost in costs),
        trained_bytes=sum(cost.trained_bytes for cost in costs),
        kept_bytes=sum(cost.kept_bytes for cost in costs),
        cumulative_kept_bytes=cumulative_kept_bytes,
        temporary_bytes=max(cost.temporary_bytes for cost in costs),
        peak_bytes=max(cost.peak_bytes for cost in costs),
        flops=sum((cost.flops for cost in costs), Flops()),
    )


def layer_costs(
    step: Step, snapshots: Iterable[Snapshot], network: nn.Module, flops_an_element: int
) -> tuple[LayerCost, ...]:
    """Costs of each layer, in the order in which they first run.

    Layers that do not run and hold parameters for others come last.

    Args:
        step: The recorded step.
        snapshots: Its timeline.
        network: The network that made it.
        flops_an_element: FLOPs of the optimizer for each trained element.
    """
    modules = dict(network.named_modules())
    paths = block_paths(network)
    owned = _owned(modules)
    operations: dict[str, list[Operation]] = {}
    for event in step.events:
        if isinstance(event, Operation):
            operations.setdefault(event.module, []).append(event)
    memory: dict[str, list[Snapshot]] = {}
    for snapshot in snapshots:
        memory.setdefault(snapshot.layer, []).append(snapshot)
    costs, cumulative = [], 0
    for name in dict.fromkeys((*operations, *(path for path in owned if owned[path]))):
        kept = step.kept.get(name, 0)
        cumulative += kept
        during = [snapshot.memory for snapshot in memory.get(name, ())]
        trained = [tensor for tensor in owned.get(name, ()) if tensor.requires_grad]
        updated = sum(tensor.numel() for tensor in trained)
        costs.append(
            LayerCost(
                name=name,
                kind=_kind(name, modules),
                block=block_of(name, paths),
                parameter_bytes=sum(tensor.nbytes for tensor in owned.get(name, ())),
                trained_bytes=sum(tensor.nbytes for tensor in trained),
                kept_bytes=kept,
                cumulative_kept_bytes=cumulative,
                temporary_bytes=max(
                    (m.residual + m.temporaries + m.workspace for m in during), default=0
                ),
                peak_bytes=max((m.total for m in during), default=0),
                flops=_flops(operations.get(name, ()), flops_an_element * updated),
            )
        )
    return tuple(costs)


def block_costs(layers: Iterable[LayerCost], network: nn.Module) -> tuple[LayerCost, ...]:
    """The layers' costs by block, in the order in which the blocks first run."""
    modules = dict(network.named_modules())
    members: dict[str, list[LayerCost]] = {}
    for layer in layers:
        members.setdefault(layer.block or "", []).append(layer)
    costs, cumulative = [], 0
    for name, inside in members.items():
        cumulative += sum(cost.kept_bytes for cost in inside)
        kind = _kind(name, modules)
        costs.append(combine(inside, name=name, kind=kind, cumulative_kept_bytes=cumulative))
    return tuple(costs)


def block_paths(network: nn.Module) -> list[str]:
    """Paths of the outermost modules that are not containers.

    In a MobileNetV2 these are `features.0`, `features.1`, ...; in a ResNet `conv1`, `bn1`, ...,
    `layer1.0`, `layer1.1`, ..., `fc`.
    """
    found: list[str] = []

    def descend(path: str, module: nn.Module) -> None:
        for name, child in module.named_children():
            place = f"{path}.{name}" if path else name
            if type(child) in CONTAINERS:
                descend(place, child)
            else:
                found.append(place)

    descend("", network)
    return found


def block_of(layer: str, blocks: list[str]) -> str:
    """The block that holds the layer at this path; the layer itself if none does."""
    return next((block for block in blocks if is_within(layer, block)), layer)


def _kind(name: str, modules: dict[str, nn.Module]) -> str:
    return type(modules[name]).__name__ if name in modules else LOSS


def _owned(modules: dict[str, nn.Module]) -> dict[str, list[Tensor]]:
    """Parameters and buffers of each module itself; a shared one belongs to its first holder."""
    seen: set[int] = set()
    owned: dict[str, list[Tensor]] = {}
    for path, module in modules.items():
        tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        owned[path] = [tensor for tensor in tensors if id(tensor) not in seen]
        seen.update(map(id, tensors))
    return owned


def _flops(operations: Sequence[Operation], optimizer: int) -> Flops:
    forward = [operation for operation in operations if operation.phase == "forward"]
    backward = [operation for operation in operations if operation.phase == "backward"]
    return Flops(
        forward=sum(operation.flops for operation in forward),
        backward=sum(operation.flops for operation in backward),
        optimizer=optimizer,
        forward_macs=sum(operation.macs for operation in forward),
        backward_macs=sum(operation.macs for operation in backward),
    )
