"""The figures of TinyTL's feature extractor adaptation, section 4.1 and appendix A.

The convention for its MACs, which the paper does not give and its figures imply:

* inference: all convolutions, those of lite residual modules included, and the classifier; no
  norm, pooling or resizing;
* training: twice the inference, for the forward pass and the gradients of all inputs, and the
  weight gradients of the lite residual modules' convolutions, as many MACs as these take; the
  classifier's weight gradient does not count;
* the average over sub-networks is the middle of the smallest and the largest.

Its space has a width of 1.3, a reduced first block, and modules of 2 groups and kernel 5 in both
of these.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from statistics import mean

from torch import nn

from pocketune.methods import TinyTL, adapt
from pocketune.papers.published import published_memory
from pocketune.papers.search_cost import HIDDEN, Macs, phase_macs, predictor_macs
from pocketune.papers.tables import About, Cell, Row, register_table
from pocketune.papers.trace import ModuleCall, ModuleTrace, trace_modules
from pocketune.supernet import Space, SubnetConfig
from pocketune.supernet.supernet import meta_subnet

FIGURE = "figure"
SPACE = Space(width=1.3, classes=102, first="reduced", module_groups=(2, 4), module_kernels=(3, 5))
"""The published space, with the classes of Flowers."""

IMAGES = 2040
"""Training images of Flowers."""
SEARCHED = 2_190_000_000
"""Training MACs of the sub-network that the paper's search has found, as printed."""


@dataclass(frozen=True)
class SearchMacs:
    """MACs of one image.

    Attributes:
        inference: Of the forward pass.
        modules: The part of it in lite residual modules.
    """

    inference: int
    modules: int

    @property
    def training(self) -> int:
        """MACs of a step for one image."""
        return 2 * self.inference + self.modules

    @classmethod
    def of(cls, trace: ModuleTrace) -> "SearchMacs":
        """Those of a network that ran on one image."""
        counted = [(call_macs(call), call.in_branch) for call in trace.calls]
        return cls(
            sum(macs for macs, _ in counted), sum(macs for macs, inside in counted if inside)
        )


def call_macs(call: ModuleCall) -> int:
    """MACs of a convolution or linear layer; 0 for everything else."""
    if isinstance(call.module, nn.Conv2d):
        return prod(call.output[-2:]) * call.module.weight.numel()
    return call.module.weight.numel() if isinstance(call.module, nn.Linear) else 0


def extremes(space: Space) -> tuple[SubnetConfig, SubnetConfig]:
    """The smallest and the largest sub-network, both with the largest modules, as in the paper."""
    largest = space.largest
    modules = {name: getattr(largest, name) for name in ("module_groups", "module_kernels")}
    return replace(space.smallest, **modules), largest


def macs_of(space: Space, config: SubnetConfig, size: int = 224) -> SearchMacs:
    """MACs of a sub-network for an image of `size` pixels."""
    return SearchMacs.of(trace_modules(meta_subnet(space, config), (3, size, size)))


def predictor_inputs(space: Space) -> int:
    """Entries of the one-hot encoding: kernels and expansions of each block, and the sizes."""
    return space.blocks * (len(space.kernels) + len(space.expansions)) + len(space.sizes)


@register_table(
    About(
        "tinytl-search",
        "TinyTL, section 4.1 and appendix A: adapting the feature extractor, 102 classes, 224 px",
        (FIGURE,),
        (
            "Memory is the peak of the first phase, at the largest sub-network and batch 8, by the "
            "rules of tinytl-2. With an ordinary first block it is 88.0 MB.",
            "Both extremes have lite residual modules of 2 groups and kernel 5; the average is "
            "their middle, as printed, although most sub-networks are smaller.",
            "The network that the search found, of 2190M MACs, is not published: the last phase is "
            "computed from that figure.",
        ),
    )
)
def search() -> Iterator[Row]:
    """Every printed figure of the three phases."""
    small, large = (macs_of(SPACE, config) for config in extremes(SPACE))
    inference = mean((small.inference, large.inference))
    training = mean((small.training, large.training))
    adapted = adapt(meta_subnet(SPACE, SPACE.largest), TinyTL())
    inputs = predictor_inputs(SPACE)
    yield _row("inference MACs (M), smallest", 355, small.inference / 1e6)
    yield _row("inference MACs (M), largest", 1182, large.inference / 1e6)
    yield _row("inference MACs (M), average", 768.5, inference / 1e6)
    yield _row("training MACs (M), smallest", 776, small.training / 1e6)
    yield _row("training MACs (M), largest", 2510, large.training / 1e6)
    yield _row("training MACs (M), average", 1643, training / 1e6)
    yield _row("memory (MB)", 61, published_memory(adapted, "tinytl").total_bytes / 1e6)
    yield _row("predictor, MACs (M)", 0.37, predictor_macs(inputs) / 1e6)
    yield _row("predictor, activations (KB)", 5, 4 * (inputs + 3 * HIDDEN + 1) / 1e3)
    least, most = (Macs(each.inference, each.training) for each in (small, large))
    phases = phase_macs(least, most, Macs(0, SEARCHED), photos=IMAGES)
    yield _row("MACs (T) of training the supernet", 134, phases.adaptation / 1e12)
    yield _row("MACs (T) of measuring pairs", 157, phases.measurement / 1e12)
    yield _row("MACs (T) of training the result", 223, phases.fine_tuning / 1e12)


def _row(label: str, paper: float, ours: float) -> Row:
    return Row(label, {FIGURE: Cell(paper, ours)})
