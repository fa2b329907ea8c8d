"""Rep-Net (Yang et al., CVPR 2022) with pruned channels (Yang et al., AAAI 2023)."""

from collections.abc import Iterator

from torch import nn

from pocketune.methods import RepNet, adapt
from pocketune.papers.conventions.repnet import RepNetMemory, by_block
from pocketune.papers.tables.table import About, Cell, Row, register_table
from pocketune.papers.trace import walk
from pocketune.surgery import prune
from pocketune.weights import create_network

MEMORY = "memory (MB)"
PRUNED = {"features.1": 0.30, "features.2": 0.78, "features.3": 0.46, "features.4": 0.46}
"""Share of the hidden channels that the paper removes from its sensitive blocks."""


@register_table(
    About(
        "repnet",
        "Channel-pruned Rep-Net: MobileNetV2, 10 classes, batch 8, 224 px",
        (MEMORY,),
        (
            "By block for one sample, in total for the batch with parameters.",
            "Totals have the side module that reads the image ahead of the network, as the "
            "public code runs it; figures by block have it beside its block.",
            "What is kept in the end (1.9 in the paper) needs more tensors than the public "
            "layout has.",
        ),
    )
)
def repnet() -> Iterator[Row]:
    """Before and after pruning."""
    network = create_network("mobilenet_v2", classes=10)
    seen = walk(adapt(network, RepNet()))
    memory = RepNetMemory().measure(seen, 8)
    block = by_block(memory)[1]
    yield _row("block 2, temporary", 5.6, block.temporary_bytes)
    yield _row("block 2, peak", 5.72, block.peak_bytes)
    yield _row("kept in the end", 1.9, memory.saved_bytes)
    yield _row("total", 51, _total(network))
    pruned = prune(network, PRUNED, importance="weight")
    after = RepNetMemory().measure(walk(adapt(pruned, RepNet())), 8)
    yield _row("pruned, peak", 2.02, max(block.peak_bytes for block in by_block(after)))
    yield _row("pruned, total", 21, _total(pruned))


def _total(network: nn.Module) -> int:
    convention = RepNetMemory(image_module_first=True)
    return convention.measure(walk(adapt(network, RepNet())), 8).total_bytes


def _row(label: str, paper: float, ours: int) -> Row:
    return Row(label, {MEMORY: Cell(paper, ours / 1e6)})
