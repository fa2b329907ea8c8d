"""Rep-Net (Yang, Rakin and Fan, CVPR 2022) and Rep-Net with a pruned backbone: memory and table.

The second is called here "the paper on Rep-Net with a pruned backbone": it names no authors.

The rules are those of TinyTL, including masks of frozen activations. In the paper's figures by
block, each side module belongs to the block that it is attached to. In its totals, the first
module, which reads the image, runs before the network, as in the public code: what that module
keeps is then held at the peak.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import compress
from operator import not_
from typing import ClassVar

from torch import nn

from pocketune.methods import RepNet, adapt
from pocketune.papers.counts import PublishedMemory, by_block
from pocketune.papers.tables import About, Cell, Row, register_table
from pocketune.papers.tinytl import TinyTLMemory
from pocketune.papers.trace import ModuleCall, ModuleTrace, trace_modules
from pocketune.surgery import prune
from pocketune.surgery.branch import reads_image
from pocketune.weights import create_network

MEMORY = "memory (MB)"
PRUNED = {"features.1": 0.30, "features.2": 0.78, "features.3": 0.46, "features.4": 0.46}
"""Share of the hidden channels that the paper removes from its sensitive blocks."""


@dataclass(frozen=True)
class RepNetMemory:
    """Rep-Net's convention for the memory of a step.

    Attributes:
        image_module_first: Count the side module that reads the image before the network.
    """

    name: ClassVar[str] = "repnet"
    image_module_first: bool = False

    def measure(self, trace: ModuleTrace, batch: int = 8) -> PublishedMemory:
        """Memory of a step of `batch` samples; see `by_block`."""
        if self.image_module_first:
            trace = replace(trace, calls=_image_module_first(trace))
        return replace(TinyTLMemory().measure(trace, batch), convention=self.name)


def _image_module_first(trace: ModuleTrace) -> tuple[ModuleCall, ...]:
    """The calls of side branches that read the image, then all others."""
    modules = trace.network.named_modules()
    readers = tuple(f"{path}." for path, module in modules if reads_image(module))
    reading = [f"{call.path}.".startswith(readers) for call in trace.calls]
    return (*compress(trace.calls, reading), *compress(trace.calls, map(not_, reading)))


@register_table(
    About(
        "repnet",
        "Channel-pruned Rep-Net: MobileNetV2, 10 classes, batch 8, 224 px",
        (MEMORY,),
        (
            "By block for one sample, in total for the batch with parameters.",
            "In totals, the side module that reads the image runs before the network, as in the "
            "public code; in figures by block it belongs to its block.",
            "The figure kept in the end (1.9) needs more tensors than the public layout has.",
        ),
    )
)
def repnet() -> Iterator[Row]:
    """Before and after pruning."""
    network = create_network("mobilenet_v2", classes=10)
    seen = trace_modules(adapt(network, RepNet()))
    memory = RepNetMemory().measure(seen, 8)
    block = by_block(memory)[1]
    yield _row("block 2, temporary", 5.6, block.temporary_bytes)
    yield _row("block 2, peak", 5.72, block.peak_bytes)
    yield _row("kept in the end", 1.9, memory.kept_bytes)
    yield _row("total", 51, _total(network))
    pruned = prune(network, PRUNED, importance="weight")
    after = RepNetMemory().measure(trace_modules(adapt(pruned, RepNet())), 8)
    yield _row("pruned, peak", 2.02, max(block.peak_bytes for block in by_block(after)))
    yield _row("pruned, total", 21, _total(pruned))


def _total(network: nn.Module) -> int:
    convention = RepNetMemory(image_module_first=True)
    return convention.measure(trace_modules(adapt(network, RepNet())), 8).total_bytes


def _row(label: str, paper: float, ours: int) -> Row:
    return Row(label, {MEMORY: Cell(paper, ours / 1e6)})
