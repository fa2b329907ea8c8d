"""Convolution whose backward pass works on patch averages: gradient filtering.

Yang, Li, Marculescu: Efficient On-device Training via Gradient Filtering, CVPR 2023.

The gradient of the output is replaced by its average over patches of r x r pixels. A convolution
then needs only a sum for each patch of its input, and only the sum over the taps of its kernel:
its backward pass is that of a 1x1 convolution on feature maps r * r times smaller.
"""

from __future__ import annotations

from typing import Any, TypeVar

from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError, check_choice, check_positive
from pocketune.filtering.backward import Call, FilteredConvolution
from pocketune.filtering.geometry import ALIGNMENTS, convolution_geometry
from pocketune.filtering.patches import Pair
from pocketune.filtering.pooled import PooledMap
from pocketune.layers.autograd import is_recorded
from pocketune.layers.conv import Conv2d, pads_in_numbers
from pocketune.layers.weight_standardization import StandardizedConv2d

Filtered = TypeVar("Filtered", bound="FilteredConv2d")


class FilteredConv2d(Conv2d):
    """`Conv2d` with filtered gradients; the output and the gradient of the bias are exact.

    With the gradient of the output g averaged over patches of `patch` x `patch` pixels (2), the
    input x summed over the patches below them, and the kernel W summed over its taps:

    * gradient of the kernel, in every tap: `sum over images and patches of g[o] * x[i]`
    * gradient of the input, everywhere in a patch: `sum over o of W[o, i] * g[o]`

    If dilation puts the taps a patch or more apart, the second is a dilated convolution of the
    patches with the whole kernel. The zeros of `same_padding` are part of the patches.

    Kept for the backward pass: 32 bits for each patch and input channel if the kernel is trained
    (patches are `ceil(H / patch) * ceil(W / patch)` of the output's height and width), and
    32 bits for each pair of input and output channels in a group if the input needs a gradient
    and the kernel is larger than 1x1. With `bits=8` a patch takes 8 bits, and the averages of the
    output's gradient are rounded to 8 bits before both products; see
    `pocketune.filtering.gradients`.

    If another such layer with the same patches comes next, the gradient between the two can stay
    in patches (`passes_pooled`, set by `pocketune.surgery.chain_filters`). The first layer then
    returns a `PooledMap`, and the second also keeps its slopes.

    The state dict is that of `nn.Conv2d`. Second derivatives are refused.

    Attributes:
        passes_pooled: Whether it returns a `PooledMap` while gradients are recorded.

    Args:
        patch: Rows and columns of a patch of the output.
        alignment: Where patches begin and what averages divide by: `"natural"`, `"paper"` or
            `"reference"`; the rules are in `pocketune.filtering.geometry`.
        bits: 8 or 32, of the patch sums and of the averages.
        options: All other arguments of `Conv2d`.

    Raises:
        PocketuneError: If `patch` is not a whole number of at least 1, or `alignment` or `bits` is
            unknown.
    """

    def __init__(
        self,
        *arguments: Any,
        patch: int = 2,
        alignment: str = "natural",
        bits: int = 32,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        check_filter(patch, alignment, bits)
        self.patch = patch
        self.alignment = alignment
        self.bits = bits
        self.passes_pooled = False

    @classmethod
    def from_convolution(
        cls: type[Filtered],
        conv: nn.Module,
        patch: int = 2,
        alignment: str = "natural",
        bits: int = 32,
    ) -> Filtered:
        """Take over the parameters of a convolution (the same objects, not copies).

        Raises:
            PocketuneError: If `conv` is not a two-dimensional convolution, or has its own forward
                pass.
        """
        _refuse_other_layers(cls, conv)
        assert isinstance(conv, nn.Conv2d)
        filtered = cls.like(conv, patch=patch, alignment=alignment, bits=bits)
        filtered.weight = conv.weight
        return filtered

    def extra_repr(self) -> str:
        """As `Conv2d`, then patch, alignment, and bits if they are 8, for `repr`."""
        rounded = ", bits=8" if self.bits == 8 else ""
        return f"{super().extra_repr()}, patch={self.patch}, alignment={self.alignment!r}{rounded}"

    def forward(self, input: Tensor | PooledMap) -> Tensor | PooledMap:  # type: ignore[override]
        """(N, in, H, W), (in, H, W) or a `PooledMap` -> the output.

        It is a `PooledMap` if `passes_pooled` is set, gradients are recorded and there is a batch.

        Raises:
            PocketuneError: For a `PooledMap` that would have to be padded first.
        """
        kernel = self.kernel()
        if isinstance(input, PooledMap):
            self._refuse_padding()
            return self._filter(input, kernel, self.passes_pooled)
        x = self.pad(input)
        if not is_recorded(x, kernel, self.bias):
            y: Tensor = self._conv_forward(x, kernel, self.bias)
            return y
        if not pads_in_numbers(self):
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            x = functional.pad(x, self._reversed_padding_repeated_twice, mode)
        if x.dim() == 3:
            single = self._filter(x.unsqueeze(0), kernel, False)
            assert isinstance(single, Tensor)
            return single.squeeze(0)
        return self._filter(x, kernel, self.passes_pooled)

    def _filter(self, x: Tensor | PooledMap, kernel: Tensor, pooled: bool) -> Tensor | PooledMap:
        carrier = slopes = patches = None
        if isinstance(x, PooledMap):
            carrier, slopes, patches = x.carrier, x.slopes, x.patches
            x = x.value
        geometry = convolution_geometry(
            _size(kernel),
            _pair(self.stride),
            _pair(self.padding) if pads_in_numbers(self) else (0, 0),
            _pair(self.dilation),
            _size(x),
        )
        filter = ALIGNMENTS[self.alignment](geometry, self.patch)
        call = Call(geometry, self.groups, filter, patches, pooled, self.bits == 8)
        result: Any = FilteredConvolution.apply(  # type: ignore[no-untyped-call]
            x, carrier, slopes, kernel, self.bias, call
        )
        if not pooled:
            y: Tensor = result
            return y
        y, carrier = result
        return PooledMap(y, carrier, filter.output)

    def _refuse_padding(self) -> None:
        if self.same_padding or not pads_in_numbers(self):
            raise PocketuneError(
                f"{self} cannot pad a pooled map; set passes_pooled=False on the layer before it"
            )


class FilteredStandardizedConv2d(StandardizedConv2d, FilteredConv2d):
    """`StandardizedConv2d` with filtered gradients of its standardized filters."""


def filter_convolution(
    conv: nn.Module, *, patch: int = 2, alignment: str = "natural", bits: int = 32
) -> FilteredConv2d:
    """`conv` with filtered gradients and the same parameters; see `FilteredConv2d`.

    Raises:
        PocketuneError: If `conv` is not a two-dimensional convolution of a known class.
    """
    standardizes = type(conv) is StandardizedConv2d
    cls = FilteredStandardizedConv2d if standardizes else FilteredConv2d
    return cls.from_convolution(conv, patch, alignment, bits)


def check_filter(patch: object, alignment: object, bits: object) -> None:
    """Check the size of patches, their alignment and the number of bits.

    Raises:
        PocketuneError: Naming the argument that is wrong.
    """
    check_positive(patch=patch)
    check_choice(ALIGNMENTS, alignment=alignment)
    if bits not in (8, 32):
        raise PocketuneError(f"bits={bits!r} must be 8 or 32")


def _refuse_other_layers(cls: type[FilteredConv2d], conv: nn.Module) -> None:
    kind = type(conv).__name__
    if not isinstance(conv, nn.Conv2d):
        raise PocketuneError(
            f"{kind} cannot have filtered gradients: only two-dimensional convolutions that are "
            "not transposed can"
        )
    if not issubclass(cls, type(conv)):
        raise PocketuneError(
            f"{kind} cannot have filtered gradients: the convolution has its own forward pass"
        )


def _pair(numbers: Any) -> Pair:
    down, across = numbers
    return down, across


def _size(tensor: Tensor) -> Pair:
    return tensor.shape[2], tensor.shape[3]
