"""Smooth activations that keep a few bits an element for the backward pass.

Few-bit Backward: Quantized Gradients of Activation Functions for Memory Footprint Reduction
(Novikov et al., ICML 2023). The forward pass is exact. The derivative has 2, 4, 16 or 256 levels,
and the number of the level is kept in place of the input; see `pocketune.layers.slopes`.
"""

from torch import Tensor, nn
from torch.nn import functional

from pocketune.layers.packed_derivative import Derivative, with_derivative
from pocketune.layers.slopes import check_bits, pack_slopes, scale_by_slopes


class FewBitActivation(nn.Module):
    """Base class of the activations here.

    Kept for the backward pass: `bits` bits an element. PyTorch's keep their input.

    Args:
        bits: 1, 2, 4 or 8.

    Raises:
        PocketuneError: It is another number.
    """

    derivative = ""
    """Name of the table of the derivative."""

    def __init__(self, bits: int = 4) -> None:
        super().__init__()
        check_bits(bits)
        self.bits = bits

    def exact(self, x: Tensor) -> Tensor:
        """The activation itself."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape and memory format."""
        table = self.derivative, self.bits
        levels = Derivative(
            lambda x, last: pack_slopes(x, *table, last),
            lambda g, packed, last: scale_by_slopes(g, packed, *table, last),
        )
        return with_derivative(x, self.exact, levels)

    def extra_repr(self) -> str:
        """The bits, for `repr`."""
        return f"bits={self.bits}"


class FewBitGELU(FewBitActivation):
    """`x * Phi(x)`, as `nn.GELU`; kept for the backward pass: `bits` bits an element.

    Args:
        bits: 1, 2, 4 or 8. With 1 the gradient passes from x = -1/64 on, nearly unscaled.
        approximate: As of `nn.GELU`. Both forms have the same table.
    """

    derivative = "gelu"

    def __init__(self, bits: int = 4, approximate: str = "none") -> None:
        super().__init__(bits)
        self.approximate = approximate

    def exact(self, x: Tensor) -> Tensor:
        """As `nn.GELU`."""
        return functional.gelu(x, approximate=self.approximate)


class FewBitSiLU(FewBitActivation):
    """`x * sigmoid(x)`, as `nn.SiLU`; kept for the backward pass: `bits` bits an element."""

    derivative = "silu"

    def exact(self, x: Tensor) -> Tensor:
        """As `nn.SiLU`."""
        return functional.silu(x)


class FewBitHardswish(FewBitActivation):
    """`x * relu6(x + 3) / 6`; kept for the backward pass: `bits` bits an element."""

    derivative = "hardswish"

    def exact(self, x: Tensor) -> Tensor:
        """As `nn.Hardswish`."""
        return functional.hardswish(x)


FEW_BIT: dict[type[nn.Module], type[FewBitActivation]] = {
    nn.GELU: FewBitGELU,
    nn.SiLU: FewBitSiLU,
    nn.Hardswish: FewBitHardswish,
}
"""Classes that keep a few bits, by the class of the exact activation."""


def few_bit(activation: nn.Module, bits: int) -> FewBitActivation:
    """The variant of an activation of `FEW_BIT` that keeps so many bits."""
    if isinstance(activation, nn.GELU):
        return FewBitGELU(bits, activation.approximate)
    return FEW_BIT[type(activation)](bits)
