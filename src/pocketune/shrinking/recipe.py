"""How a supernet is pretrained: each option once, for Python and for the command line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pocketune.options import check_options, documented, option

BATCH = 64
"""The batch that `ShrinkingRecipe.lr` is for."""

_option = partial(option, panel="Training")


@documented
@dataclass(frozen=True, kw_only=True)
class ShrinkingRecipe:
    """Progressive shrinking: SGD with Nesterov momentum, and one cosine to 0 in each phase.

    The defaults are those of Once for All (Cai et al., ICLR 2020) and its public code.

    Raises:
        PocketuneError: For a value out of range; the message names it.
    """

    epochs: int = _option(
        "Epochs of each long phase; the others take 1.5 and 0.2 times as many. With 0 nothing is "
        "trained, and the supernet is written with its channels sorted.",
        default=120,
        metavar="N",
        at_least=0,
    )
    start: str | None = _option(
        "First phase.",
        default=None,
        choices=("largest", "kernel", "depth", "width"),
        unset="largest; kernel with pretrained weights",
    )
    lr: float = _option(
        "Peak learning rate of the kernel phase for a batch of 64. It is scaled to the batches of "
        "all devices together, and the other phases have their published shares of it.",
        default=0.03,
        metavar="RATE",
        above=0,
    )
    batch: int = _option("Batch size per device.", default=64, metavar="N", at_least=2)
    weight_decay: float = _option(
        "Weight decay; not applied to biases and norms.", default=3e-5, metavar="RATE", at_least=0
    )
    label_smoothing: float = _option(
        "Amount of label smoothing.", default=0.1, metavar="FRACTION", at_least=0, below=1
    )
    distillation: float = _option(
        "Weight of the teacher's soft labels; the labels have 1.",
        default=1.0,
        metavar="FACTOR",
        above=0,
    )
    seed: int = _option("Random seed.", default=0, metavar="N", at_least=0)

    def __post_init__(self) -> None:
        check_options(self)
