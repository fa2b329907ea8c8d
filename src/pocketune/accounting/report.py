"""What a training step of a PyTorch module really costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import RenderableType
from torch import Tensor, nn

from pocketune.accounting.costs import Flops, LayerCost, block_costs, layer_costs
from pocketune.accounting.render import as_text, draw_step
from pocketune.accounting.step import Loss, Step, record_step
from pocketune.accounting.timeline import Memory, Role, Snapshot, largest_bytes, peak, timeline
from pocketune.errors import PocketuneError, check_positive
from pocketune.networks import name_of
from pocketune.networks.checks import require_network
from pocketune.networks.copies import gradients_on
from pocketune.tasks import Task

OPTIMIZERS = {
    "adam": (2, 10),
    "adam8": (2 / 4 + 2 / 256, 30),
    "adamw": (2, 11),
    "sgd": (1, 4),
}
"""Tensors that an optimizer keeps for each parameter, and its FLOPs for each element: those of
algorithm 1 of Kingma and Ba with the bias corrections merged; `sgd` has momentum, and `adam8` reads
and writes codes."""

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True, kw_only=True)
class Report:
    """Memory and FLOPs of one training step of a PyTorch module; `print` it to see a table.

    Attributes:
        network: Its name; its class if it is not one of ours.
        batch: Images of the step.
        size: Side of the images in pixels.
        optimizer: Name of the optimizer.
        timeline: The memory at each operator, in order; the optimizer is the last one.
        layers: Costs by layer, in the order in which they first run.
        blocks: Costs by block, likewise.
    """

    network: str
    batch: int
    size: int
    optimizer: str
    timeline: tuple[Snapshot, ...]
    layers: tuple[LayerCost, ...]
    blocks: tuple[LayerCost, ...]

    @property
    def flops(self) -> Flops:
        """FLOPs of the whole step."""
        return sum((layer.flops for layer in self.layers), Flops())

    @property
    def peak(self) -> Snapshot:
        """The first moment at which the step needs the most memory."""
        return peak(self.timeline)

    @property
    def total_bytes(self) -> int:
        """Bytes at the peak."""
        return self.peak.memory.total

    @property
    def kept_bytes(self) -> int:
        """Bytes kept for the backward pass at the end of the forward pass."""
        return sum(layer.kept_bytes for layer in self.layers)

    @property
    def worst_block(self) -> LayerCost:
        """The block with the peak, or the one that comes closest."""
        return max(self.blocks, key=lambda block: block.peak_bytes)

    def largest(self) -> dict[str, int]:
        """Most bytes of each category at any moment; their sum may exceed the peak."""
        return largest_bytes(self.timeline)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: all but the timeline, which has thousands of moments."""
        peak = self.peak
        return {
            "network": self.network,
            "batch": self.batch,
            "size": self.size,
            "optimizer": self.optimizer,
            "total_bytes": self.total_bytes,
            "peak": {
                "phase": peak.phase,
                "layer": peak.layer,
                "operator": peak.operator,
                "bytes": peak.memory.by_category(),
            },
            "largest_bytes": self.largest(),
            "kept_bytes": self.kept_bytes,
            "worst_block": self.worst_block.name,
            "flops": {**asdict(self.flops), "total": self.flops.total},
            "layers": [asdict(layer) for layer in self.layers],
            "blocks": [asdict(block) for block in self.blocks],
        }

    def draw(self, *, by: str = "block") -> RenderableType:
        """Tables for a terminal: the categories, the course of the step, and costs by `by`.

        Args:
            by: `block` or `layer`.
        """
        return draw_step(
            f"{self.network}: a step of {self.batch} at {self.size} px",
            self.timeline,
            self.layers if by == "layer" else self.blocks,
            by=by,
            worst_block=self.worst_block.name,
        )

    def __str__(self) -> str:
        return as_text(self.draw())


@gradients_on()
def account(
    network: nn.Module,
    *,
    batch: int = 8,
    size: int = 224,
    optimizer: str = "adam",
    channels: int = 3,
    task: Task | None = None,
    loss: Loss | None = None,
) -> Report:
    """Predict every byte and FLOP of a training step: forward, loss, backward, optimizer.

    The step runs on tensors that have shapes and no values, so it takes neither memory nor
    arithmetic. The prediction is for PyTorch's own step in training mode on a CPU: allocations are
    those that PyTorch makes, freed when PyTorch frees them, with the workspace of convolutions
    modeled (`accounting.workspace`). The optimizer works in place, without temporaries. The
    memory of the process itself (Python, PyTorch) is not included;
    `pocketune.device.memory.estimate` predicts that of a kit.

    Args:
        network: Any module that takes images (N, `channels`, `size`, `size`), as
            `pocketune.adapt` returns it or any other; it stays unchanged.
        batch: Images of a step.
        size: Side of the images in pixels.
        optimizer: One of `OPTIMIZERS`.
        channels: Channels of the images.
        task: The task whose loss the step computes; by default classification, for a network that
            returns class scores (N, classes), and segmentation for one of `create_network` that
            classifies pixels.
        loss: A loss instead of the task's: a function of the network's output that returns a
            scalar.

    Raises:
        PocketuneError: An argument is out of range; nothing is trained; the network returns no
            class scores and there is neither a task nor a loss; it cannot take such images, is
            lazy, decides by the values of a tensor, or has an operator without rules, which is
            named with its layer.

    Example:
        >>> import pocketune
        >>> network = pocketune.create_network("mobilenet_v2", classes=10)
        >>> adapted = pocketune.adapt(network, pocketune.LastLayer())
        >>> result = pocketune.account(adapted, batch=8, size=224)
        >>> result.worst_block.name, result.kept_bytes
        ('features.2', 41348)
    """
    _check(network, batch, size, channels, optimizer)
    slots, flops_an_element = OPTIMIZERS[optimizer]
    step = record_step(network, batch=batch, size=size, channels=channels, task=task, loss=loss)
    snapshots = timeline(step.events, step.roles, _resident(network, slots), step.given)
    snapshots.append(_in_optimizer(snapshots[-1], step))
    layers = layer_costs(step, snapshots, network, flops_an_element)
    return Report(
        network=name_of(network),
        batch=batch,
        size=size,
        optimizer=optimizer,
        timeline=tuple(snapshots),
        layers=layers,
        blocks=block_costs(layers, network),
    )


def _check(network: nn.Module, batch: int, size: int, channels: int, optimizer: str) -> None:
    require_network(network)
    check_positive(batch=batch, size=size, channels=channels)
    if optimizer not in OPTIMIZERS:
        raise PocketuneError(
            f"unknown optimizer {optimizer!r}: choose one of {', '.join(OPTIMIZERS)}"
        )
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise PocketuneError("nothing in this network is trained; adapt it with a method first")


def _resident(network: nn.Module, slots: float) -> Memory:
    """The memory held before and after a step; tensors that share a storage count once."""
    trained: dict[object, Tensor] = {}
    frozen: dict[object, Tensor] = {}
    statistics: dict[object, Tensor] = {}
    for parameter in network.parameters():
        (trained if parameter.requires_grad else frozen)[_storage(parameter)] = parameter
    for name, buffer in network.named_buffers():
        is_statistic = name.rpartition(".")[2] in _STATISTICS
        (statistics if is_statistic else frozen)[_storage(buffer)] = buffer
    return Memory(
        trained_parameters=_bytes(trained.values()),
        frozen_parameters=_bytes(frozen.values()),
        statistics=_bytes(statistics.values()),
        optimizer=round(slots * _bytes(trained.values())),
    )


def _storage(tensor: Tensor) -> object:
    """An identity of the storage; on the meta device all have the address 0."""
    return id(tensor) if tensor.is_meta else tensor.untyped_storage().data_ptr() or id(tensor)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _in_optimizer(last: Snapshot, step: Step) -> Snapshot:
    """The memory during the optimizer: of the step, only gradients, images and labels are left."""
    kept = sum(size for number, size in step.given.items() if step.roles[number] is Role.KEPT)
    memory = replace(last.memory, kept=kept, residual=0, temporaries=0, workspace=0)
    return Snapshot("optimizer", "", "optimizer", memory)
