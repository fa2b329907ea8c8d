"""What adapting the feature extractor costs, by TinyTL's formulas (section 3.3, appendix B)."""

from typing import NamedTuple

SHARE = 0.8
"""Share of the photos that the supernet is adapted on; on the others, sub-networks are measured."""
EPOCHS, PAIRS = 50, 500
HIDDEN = 400


class Macs(NamedTuple):
    """Multiplications of a sub-network for one image: of a forward pass, of a training step."""

    inference: int
    training: int


class PhaseMacs(NamedTuple):
    """Multiplications of each phase.

    Attributes:
        adaptation: Training the supernet, a sub-network a step.
        measurement: The forward passes of the measured sub-networks.
        prediction: The predictions of a search.
        fine_tuning: Training the chosen sub-network on all photos.
    """

    adaptation: float
    measurement: float
    prediction: float
    fine_tuning: float


def phase_macs(
    smallest: Macs,
    largest: Macs,
    chosen: Macs,
    *,
    photos: int,
    epochs: float = EPOCHS,
    pairs: int = PAIRS,
    predictions: int = 0,
    inputs: int = 127,
) -> PhaseMacs:
    """The paper's formulas, where a random sub-network costs the mean of smallest and largest.

    That is 15 % more than the mean of uniformly drawn ones, so it is not an estimate of time.

    Args:
        smallest: Of the smallest sub-network.
        largest: Of the largest one.
        chosen: Of the one that the search has chosen.
        photos: Training photos.
        epochs: Of the first and of the third phase.
        pairs: Measured sub-networks.
        predictions: Of the search.
        inputs: Entries of an architecture's encoding.

    Example:
        >>> flowers = phase_macs(
        ...     Macs(355_062_000, 776_092_000),
        ...     Macs(1_181_790_000, 2_509_894_000),
        ...     Macs(0, 2_190_000_000),
        ...     photos=2040,
        ... )
        >>> [round(macs / 1e12) for macs in flowers]
        [134, 157, 0, 223]
    """
    trained = (smallest.training + largest.training) / 2
    measured = (smallest.inference + largest.inference) / 2
    return PhaseMacs(
        adaptation=trained * photos * SHARE * epochs,
        measurement=measured * photos * (1 - SHARE) * pairs,
        prediction=float(predictions * predictor_macs(inputs)),
        fine_tuning=float(chosen.training * photos * epochs),
    )


def predictor_macs(inputs: int) -> int:
    """Multiplications of a prediction: three hidden layers of 400, and one output without bias.

    >>> predictor_macs(127)
    371200
    """
    return inputs * HIDDEN + 2 * HIDDEN * HIDDEN + HIDDEN
