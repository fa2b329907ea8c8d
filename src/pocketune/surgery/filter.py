"""Give convolutions filtered gradients."""

from torch import nn

from pocketune.filtering import FilteredConv2d
from pocketune.layers import StandardizedConv2d
from pocketune.networks.architectures.parts import SameConv2d


class FilteredSameConv2d(SameConv2d, FilteredConv2d):
    """`SameConv2d` with filtered gradients; the zeros it pads with are part of its patches."""


class FilteredStandardizedConv2d(StandardizedConv2d, FilteredConv2d):
    """`StandardizedConv2d` with filtered gradients: of its filters as they are standardized."""


# Convolutions with a forward pass of their own, and what they become.
_KINDS: dict[type[nn.Module], type[FilteredConv2d]] = {
    SameConv2d: FilteredSameConv2d,
    StandardizedConv2d: FilteredStandardizedConv2d,
}


def filter_convolution(
    conv: nn.Module, *, patch: int = 2, alignment: str = "natural", bits: int = 32
) -> FilteredConv2d:
    """`conv` with filtered gradients and the same parameters; see `FilteredConv2d`.

    Raises:
        PocketuneError: if it is no two-dimensional convolution of a kind that is known.
    """
    return _KINDS.get(type(conv), FilteredConv2d).from_convolution(conv, patch, alignment, bits)
