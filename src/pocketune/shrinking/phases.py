"""The phases of progressive shrinking."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from pocketune.supernet import Space

LARGEST = "largest"
STARTS = (LARGEST, "kernel", "depth", "width")
EPOCHS = 120
"""Published epochs of the long phases; `ShrinkingRecipe.epochs` scales all phases with them."""


@dataclass(frozen=True)
class Stage:
    """One published phase.

    Attributes:
        name: What shrinks: one of `STARTS`.
        kernels: How many of the largest choices are drawn from; 0 for all of them.
        depths: The same for depths.
        expansions: The same for expansions.
        subnets: Sub-networks whose gradients are added in a step.
        epochs: Epochs, of 120 for the long phases.
        lr: Peak learning rate over that of the kernel phase.
        warmup: Share of the steps with a rising rate.
    """

    name: str
    kernels: int
    depths: int
    expansions: int
    subnets: int
    epochs: int
    lr: float
    warmup: float


STAGES = (
    Stage(LARGEST, 1, 1, 1, subnets=1, epochs=180, lr=8 / 3, warmup=0.04),
    Stage("kernel", 0, 1, 1, subnets=1, epochs=125, lr=1, warmup=0.04),
    Stage("depth", 0, 2, 1, subnets=2, epochs=25, lr=1 / 12, warmup=0),
    Stage("depth", 0, 0, 1, subnets=2, epochs=125, lr=1 / 4, warmup=0.04),
    Stage("width", 0, 0, 2, subnets=4, epochs=25, lr=1 / 12, warmup=0),
    Stage("width", 0, 0, 0, subnets=4, epochs=125, lr=1 / 4, warmup=0.04),
)
"""Once for All's public script. The rate of the largest network is that of its paper, 2.6 at a
batch of 2048, so 0.08 at one of 64; the others are 0.03, 0.0025 and 0.0075 at a batch of 64."""


@dataclass(frozen=True)
class Phase:
    """A phase in the space of a supernet.

    Attributes:
        stage: The published phase.
        space: What is drawn from.
        epochs: Number of epochs.
        sorts: Whether hidden channels are sorted before.
        keep: The expansion whose channels stay in front when they are sorted; None sorts all.
    """

    stage: Stage
    space: Space
    epochs: int
    sorts: bool
    keep: int | None


def phases(space: Space, epochs: int = EPOCHS, start: str = LARGEST) -> list[Phase]:
    """The phases that the choices of a space need, from `start` on.

    Of phases that would draw from the same choices only the longest is left.

    Args:
        space: Of the supernet.
        epochs: Of the long phases; the others have their share of the published numbers.
        start: The first phase, one of `STARTS`.

    Example:
        >>> [phase.stage.name for phase in phases(Space(expansions=(6,)))]
        ['largest', 'kernel', 'depth', 'depth']
    """
    before: Space | None = None
    found = []
    for stage, part in _different(space):
        sorts = before is not None and part.expansions != before.expansions
        keep = before.expansions[0] if sorts and before and len(before.expansions) > 1 else None
        count = max(1, round(stage.epochs * epochs / EPOCHS))
        found.append(Phase(stage, part, count, sorts, keep))
        before = part
    return [phase for phase in found if STARTS.index(phase.stage.name) >= STARTS.index(start)]


def _different(space: Space) -> Iterator[tuple[Stage, Space]]:
    """The stages with their choices; of those with the same choices the longest."""
    stages = [(stage, _part(space, stage)) for stage in STAGES]
    for _, alike in groupby(stages, key=lambda each: each[1]):
        yield max(alike, key=lambda each: each[0].epochs)


def _part(space: Space, stage: Stage) -> Space:
    """The largest choices of the space; those of the modules all shrink with the kernels."""
    choices = {
        name: getattr(space, name)[-count:]
        for name, count in (
            ("kernels", stage.kernels),
            ("depths", stage.depths),
            ("expansions", stage.expansions),
        )
    }
    if stage.name == LARGEST:
        choices["module_groups"] = space.module_groups[:1]
        choices["module_kernels"] = space.module_kernels[-1:]
    return replace(space, **choices)
