"""In how many bits the kernels of frozen convolutions are stored."""

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.surgery import quantized


def resolve_frozen_bits(network: nn.Module, asked: int | None, usual: int) -> int:
    """Bits for a network that is to be adapted.

    Args:
        network: not adapted yet.
        asked: what the user wants, if anything.
        usual: the method's own; a network that was loaded in 8 bits stays in them nevertheless.

    Raises:
        PocketuneError: as `check_frozen_bits`.
    """
    bits = (8 if quantized(network) else usual) if asked is None else asked
    check_frozen_bits(bits)
    return bits


def check_frozen_bits(bits: object) -> None:
    """Refuse what frozen kernels cannot be stored in.

    Raises:
        PocketuneError: if it is neither 8 nor 32.
    """
    if bits not in (8, 32):
        raise PocketuneError(
            f"frozen_bits={bits!r} is not possible; frozen weights are stored in 8 or 32 bits"
        )
