"""A step's costs by layer, and layers drawn together into blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from pocketune.accounting.blocks import block_of, block_paths
from pocketune.accounting.costs import Cost, Work
from pocketune.accounting.record import LOSS, Operation
from pocketune.accounting.step import Step
from pocketune.accounting.timeline import Moment


def layer_costs(
    step: Step, moments: Iterable[Moment], network: nn.Module, flops_an_element: int
) -> tuple[Cost, ...]:
    """Costs of each layer, in the order in which they run first; those that only hold parameters
    for others come last.

    Args:
        step: what the step did.
        moments: its timeline.
        network: the network that made it.
        flops_an_element: FLOPs of the optimizer for each trained element.
    """
    modules = dict(network.named_modules())
    owned = _owned(modules)
    operations: dict[str, list[Operation]] = {}
    for event in step.events:
        if isinstance(event, Operation):
            operations.setdefault(event.module, []).append(event)
    memory: dict[str, list[Moment]] = {}
    for moment in moments:
        memory.setdefault(moment.layer, []).append(moment)
    costs, cumulative = [], 0
    for name in dict.fromkeys((*operations, *(path for path in owned if owned[path]))):
        kept = step.kept.get(name, 0)
        cumulative += kept
        during = [moment.memory for moment in memory.get(name, ())]
        trained = [tensor for tensor in owned.get(name, ()) if tensor.requires_grad]
        updated = sum(tensor.numel() for tensor in trained)
        costs.append(
            Cost(
                name=name,
                kind=type(modules[name]).__name__ if name in modules else LOSS,
                parameter_bytes=sum(tensor.nbytes for tensor in owned.get(name, ())),
                trained_bytes=sum(tensor.nbytes for tensor in trained),
                kept_bytes=kept,
                cumulative_kept_bytes=cumulative,
                temporary_bytes=max(
                    (m.residual + m.temporaries + m.workspace for m in during), default=0
                ),
                peak_bytes=max((m.total for m in during), default=0),
                work=_work(operations.get(name, ()), flops_an_element * updated),
            )
        )
    return tuple(costs)


def block_costs(layers: Iterable[Cost], network: nn.Module) -> tuple[Cost, ...]:
    """The layers' costs by block: sums, but of temporaries and peaks the largest."""
    paths = block_paths(network)
    modules = dict(network.named_modules())
    members: dict[str, list[Cost]] = {}
    for layer in layers:
        members.setdefault(block_of(layer.name, paths), []).append(layer)
    costs, cumulative = [], 0
    for name, costs_inside in members.items():
        kept = sum(cost.kept_bytes for cost in costs_inside)
        cumulative += kept
        costs.append(
            Cost(
                name=name,
                kind=type(modules[name]).__name__ if name in modules else LOSS,
                parameter_bytes=sum(cost.parameter_bytes for cost in costs_inside),
                trained_bytes=sum(cost.trained_bytes for cost in costs_inside),
                kept_bytes=kept,
                cumulative_kept_bytes=cumulative,
                temporary_bytes=max(cost.temporary_bytes for cost in costs_inside),
                peak_bytes=max(cost.peak_bytes for cost in costs_inside),
                work=sum((cost.work for cost in costs_inside), Work()),
            )
        )
    return tuple(costs)


def _owned(modules: dict[str, nn.Module]) -> dict[str, list[Tensor]]:
    """Parameters and buffers of each module itself; a shared one is its first holder's."""
    seen: set[int] = set()
    owned: dict[str, list[Tensor]] = {}
    for path, module in modules.items():
        tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        owned[path] = [tensor for tensor in tensors if id(tensor) not in seen]
        seen.update(map(id, tensors))
    return owned


def _work(operations: Sequence[Operation], optimizer: int) -> Work:
    forward = [operation for operation in operations if operation.phase == "forward"]
    backward = [operation for operation in operations if operation.phase == "backward"]
    return Work(
        forward=sum(operation.flops for operation in forward),
        backward=sum(operation.flops for operation in backward),
        optimizer=optimizer,
        forward_macs=sum(operation.macs for operation in forward),
        backward_macs=sum(operation.macs for operation in backward),
    )
