"""The figures of TinyTL's feature extractor adaptation, section 4.1 and appendix A.

The table also has the exact counts of both extremes of the space, parameters and MACs by part, as
an independent walk over the public code of Once for All and the paper's rules gives them.

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

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
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
from pocketune.surgery import BRANCH

FIGURE = "figure"
SPACE = Space(width=1.3, classes=102, first="reduced", module_groups=(2, 4), module_kernels=(3, 5))
"""The published space, with the classes of Flowers."""

COUNTS = {
    "main convolutions": (2_046_448, 6_233_632),
    "main norms": (20_416, 63_728),
    "convolutions of modules": (1_594_208, 3_117_472),
    "norms of modules": (5_424, 9_968),
    "classifier": (169_830, 169_830),
    "all": (3_836_326, 9_594_630),
}
"""Parameters of the smallest and the largest sub-network."""
MACS = {
    "stem": (13_547_520, 13_547_520),
    "first block": (16_558_080, 16_558_080),
    "reduced block": (55_996_416, 111_992_832),
    "rest of stage 0": (21_977_088, 204_115_968),
    "stage 1": (30_463_104, 162_306_816),
    "stage 2": (24_366_720, 119_124_096),
    "stage 3": (34_682_592, 172_100_544),
    "stage 4": (32_879_784, 149_655_408),
    "last block": (24_534_888, 51_986_256),
    "feature fusion": (33_918_976, 33_918_976),
    "classifier": (169_728, 169_728),
    "modules": (65_967_456, 146_313_696),
}
"""MACs of a forward pass at 224 px, of both."""
PREDICTOR = {126: 370_800, 127: 371_200, 128: 371_600}
"""MACs of a prediction, by the entries of the encoding: the paper's 0.37M does not tell which."""

IMAGES = 2040
"""Training images of Flowers."""
SEARCHED = 2_190_000_000
"""Training MACs of the sub-network that the paper's search has found, as printed."""


def search_macs(trace: ModuleTrace) -> Macs:
    """MACs of a network that ran on one image, by the paper's rules."""
    inference = sum(map(call_macs, trace.calls))
    modules = sum(call_macs(call) for call in trace.calls if call.in_branch)
    return Macs(inference, training=2 * inference + modules)


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


def macs_of(space: Space, config: SubnetConfig, size: int = 224) -> Macs:
    """MACs of a sub-network for an image of `size` pixels."""
    return search_macs(trace_modules(meta_subnet(space, config), (3, size, size)))


def parameters_by_part(network: nn.Module) -> dict[str, int]:
    """Parameters of a sub-network, in the order of `COUNTS`."""
    counts = dict.fromkeys(COUNTS, 0)
    for path, module in network.named_modules():
        own = sum(p.numel() for p in module.parameters(recurse=False))
        if isinstance(module, nn.Linear):
            counts["classifier"] += own
        elif own:
            kind = "convolutions" if isinstance(module, nn.Conv2d) else "norms"
            counts[f"{kind} of modules" if f".{BRANCH}." in path else f"main {kind}"] += own
        counts["all"] += own
    return counts


def macs_by_part(config: SubnetConfig, trace: ModuleTrace) -> dict[str, int]:
    """MACs of a sub-network's parts, in the order of `MACS`."""
    first, *others = config.depths
    # of the features: the stem, two blocks, the stages, the last block and the feature fusion
    lengths = (1, 1, 1, first - 1, *others, 1, 1)
    ends = list(accumulate(lengths))
    counts, names = dict.fromkeys(MACS, 0), list(MACS)
    for call in trace.calls:
        if not (macs := call_macs(call)):
            continue
        kind, _, rest = call.path.partition(".")
        if call.in_branch:
            counts["modules"] += macs
        elif kind == "features":
            counts[names[bisect_right(ends, int(rest.partition(".")[0]))]] += macs
        else:
            counts["classifier"] += macs
    return counts


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
            "Parameters and MACs by part, and those of the predictor, are not printed: they are "
            "exact counts by the paper's rules and the public code of Once for All, and the "
            "printed sums follow from them.",
            "The network that the search found, of 2190M MACs, is not published: the last phase is "
            "computed from that figure.",
        ),
    )
)
def search() -> Iterator[Row]:
    """Every printed figure of the three phases, and the exact counts behind them."""
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
    phases = phase_macs(small, large, Macs(0, SEARCHED), photos=IMAGES)
    yield _row("MACs (T) of training the supernet", 134, phases.adaptation / 1e12)
    yield _row("MACs (T) of measuring pairs", 157, phases.measurement / 1e12)
    yield _row("MACs (T) of training the result", 223, phases.fine_tuning / 1e12)
    yield from _counts()


def _counts() -> Iterator[Row]:
    """The exact counts of both extremes, and of the predictor."""
    for place, (which, config) in enumerate(
        zip(("smallest", "largest"), extremes(SPACE), strict=True)
    ):
        network = meta_subnet(SPACE, config)
        parameters = parameters_by_part(network)
        for name, known in COUNTS.items():
            yield _row(f"parameters, {which}, {name}", known[place], parameters[name])
        macs = macs_by_part(config, trace_modules(network, (3, 224, 224)))
        for name, known in MACS.items():
            yield _row(f"inference MACs, {which}, {name}", known[place], macs[name])
    for inputs, counted in PREDICTOR.items():
        yield _row(f"predictor, MACs with {inputs} inputs", counted, predictor_macs(inputs))


def _row(label: str, paper: float, ours: float) -> Row:
    return Row(label, {FIGURE: Cell(paper, ours)})
