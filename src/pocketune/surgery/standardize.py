"""Give convolutions filters that are standardized in every step."""

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import StandardizedConv2d
from pocketune.layers.same_shape import same_shape
from pocketune.networks.architectures.parts import SameConv2d


class StandardizedSameConv2d(SameConv2d, StandardizedConv2d):
    """`SameConv2d` with standardized filters."""


_KINDS: dict[type[nn.Module], type[StandardizedConv2d]] = {
    nn.Conv2d: StandardizedConv2d,
    SameConv2d: StandardizedSameConv2d,
}


def standardize_convolution(conv: nn.Module) -> StandardizedConv2d:
    """`conv` with standardized filters and the same parameters; see `StandardizedConv2d`.

    Raises:
        PocketuneError: if it has a forward pass of its own.
    """
    if type(conv) not in _KINDS:
        raise PocketuneError(
            f"the filters of a {type(conv).__name__} cannot be standardized while they are "
            "trained: it is a convolution with a forward pass of its own"
        )
    assert isinstance(conv, nn.Conv2d)
    made = same_shape(_KINDS[type(conv)], conv)
    made.weight = conv.weight
    return made
