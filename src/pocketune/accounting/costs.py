"""What a training step costs: memory and FLOPs, as a whole, by layer and by block."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from pocketune.accounting.timeline import Moment


@dataclass(frozen=True, kw_only=True)
class Work:
    """Floating-point operations of a step (see `accounting.flops` for how they are counted).

    Attributes:
        forward: FLOPs of the forward pass and the loss.
        backward: FLOPs of the backward pass.
        optimizer: FLOPs of the optimizer.
        forward_macs: multiply-accumulates among those of the forward pass.
        backward_macs: multiply-accumulates among those of the backward pass.
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

    def __add__(self, other: Work) -> Work:
        names = (field.name for field in fields(self))
        return Work(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A layer's or a block's share.

    Attributes:
        name: module path; `loss`, or "" for what the network itself computes.
        kind: class of the module.
        parameter_bytes: its parameters and buffers.
        trained_bytes: those of its parameters that are trained.
        kept_bytes: what it keeps for the backward pass. A tensor that several layers keep counts
            for the first of them.
        cumulative_kept_bytes: the same with all that ran before it.
        temporary_bytes: most temporaries, residuals and workspace while it runs, in either pass.
        peak_bytes: most memory of the whole step while it runs, in either pass.
        work: its FLOPs, the optimizer's for its parameters among them.
    """

    name: str
    kind: str
    parameter_bytes: int
    trained_bytes: int
    kept_bytes: int
    cumulative_kept_bytes: int
    temporary_bytes: int
    peak_bytes: int
    work: Work


@dataclass(frozen=True, kw_only=True)
class Account:
    """Memory and FLOPs of one training step of a PyTorch module; `print` it to see a table.

    Attributes:
        network: its name, or its class where it is none of ours.
        batch: images of the step.
        size: side of the images in pixels.
        optimizer: name of the optimizer.
        timeline: the memory at each operator, in order; the optimizer is the last one.
        layers: costs by layer, in the order in which they run first.
        blocks: costs by block, likewise.
    """

    network: str
    batch: int
    size: int
    optimizer: str
    timeline: tuple[Moment, ...]
    layers: tuple[Cost, ...]
    blocks: tuple[Cost, ...]

    @property
    def work(self) -> Work:
        """FLOPs of the whole step."""
        return sum((layer.work for layer in self.layers), Work())

    @property
    def peak(self) -> Moment:
        """The moment at which the step needs most memory: the first of them."""
        return max(self.timeline, key=lambda moment: moment.memory.total)

    @property
    def total_bytes(self) -> int:
        """Bytes at the peak."""
        return self.peak.memory.total

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept for the backward pass, when the forward pass is over."""
        return sum(layer.kept_bytes for layer in self.layers)

    @property
    def worst_block(self) -> Cost:
        """The block in which the peak is; where it is in none, the one that comes closest."""
        return max(self.blocks, key=lambda block: block.peak_bytes)

    def largest(self) -> dict[str, int]:
        """Most bytes of each category at any moment: their sum is more than the peak."""
        by_moment = [moment.memory.by_category() for moment in self.timeline]
        return {name: max(memory[name] for memory in by_moment) for name in by_moment[0]}

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
            "flops": {**asdict(self.work), "total": self.work.total},
            "layers": [asdict(layer) for layer in self.layers],
            "blocks": [asdict(block) for block in self.blocks],
        }

    def __str__(self) -> str:
        from pocketune.accounting.report import render

        return render(self)
