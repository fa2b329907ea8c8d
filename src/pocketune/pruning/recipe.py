"""How a network is retrained: each option once, for Python and for the command line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pocketune.options import check_options, documented, option

LEARNING_RATES = {"predictions": 0.01, "blocks": 0.05}
"""Defaults by `Recipe.follow`."""

_option = partial(option, panel="Training")


@documented
@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a network is retrained: SGD with Nesterov momentum, and one cosine to 0.

    Raises:
        PocketuneError: For a value out of range; the message names it.
    """

    follow: str = _option(
        "What to distill from the teacher: its predictions, or the outputs of its blocks that "
        "pruning or other norms have changed, for which a few hundred photos of any kind are "
        "enough.",
        default="predictions",
        choices=tuple(LEARNING_RATES),
    )
    epochs: int = _option("Number of epochs.", default=10, metavar="N", at_least=1)
    lr: float | None = _option(
        "Peak learning rate.",
        default=None,
        metavar="RATE",
        unset="0.01; 0.05 to follow blocks",
        above=0,
    )
    batch: int = _option(  # a batch of one image has no statistics for norms
        "Batch size per device.", default=32, metavar="N", at_least=2
    )
    size: int = _option("Image height and width.", default=160, metavar="PIXELS", at_least=1)
    weight_decay: float = _option(
        "Weight decay; not applied to biases and norms.", default=4e-5, metavar="RATE", at_least=0
    )
    label_smoothing: float = _option(
        "Amount of label smoothing.", default=0.0, metavar="FRACTION", at_least=0, below=1
    )
    class_weights: str = _option(
        "Weights of the classes in the loss of masks; balanced ones are larger for classes of few "
        "pixels.",
        default="none",
        choices=("none", "balanced"),
    )
    distillation: float = _option(
        "Share of the loss that follows the teacher's predictions; the labels have the rest.",
        default=0.5,
        metavar="FRACTION",
        at_least=0,
        at_most=1,
    )
    temperature: float = _option(
        "Divides the logits of the teacher and of the network.",
        default=2.0,
        metavar="FACTOR",
        above=0,
    )
    seed: int = _option("Random seed.", default=0, metavar="N", at_least=0)

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def peak_lr(self) -> float:
        """`lr`, or the default for what is followed."""
        return LEARNING_RATES[self.follow] if self.lr is None else self.lr
