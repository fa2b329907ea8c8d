"""A convolution of another class with the numbers of a given one."""

from typing import Any, TypeVar

from torch import nn

from pocketune.errors import PocketuneError

Conv = TypeVar("Conv", bound=nn.Conv2d)


def same_shape(cls: type[Conv], conv: nn.Conv2d, **options: Any) -> Conv:
    """A `cls` with the channels, kernel size, stride and so on of `conv`.

    It is in the same mode and has its bias, the same object. Its kernel is on the meta device,
    for the caller to put one there.

    Args:
        cls: the class of the convolution to make.
        conv: the convolution that it is to be like.
        options: further arguments of `cls`.

    Raises:
        PocketuneError: if its kernel is computed anew in every step.
    """
    require_kernel(conv)
    made = cls(
        conv.in_channels,
        conv.out_channels,
        conv.kernel_size,  # type: ignore[arg-type]
        conv.stride,  # type: ignore[arg-type]
        conv.padding,  # type: ignore[arg-type]
        conv.dilation,  # type: ignore[arg-type]
        conv.groups,
        bias=conv.bias is not None,
        padding_mode=conv.padding_mode,
        device="meta",
        **options,
    )
    made.bias = conv.bias
    return made.train(conv.training)


def computes_kernel(conv: nn.Module) -> bool:
    """Whether a hook makes the kernel of other parameters, as `nn.utils.spectral_norm`'s does."""
    return "weight" not in conv._parameters


def require_kernel(conv: nn.Module) -> None:
    """Refuse a convolution whose kernel cannot be taken over.

    Raises:
        PocketuneError: if it is computed anew in every step.
    """
    if computes_kernel(conv):
        raise PocketuneError(
            f"{conv} computes its kernel anew in every step, and a layer in its place would not: "
            "remove that first, as torch.nn.utils.remove_spectral_norm and remove_weight_norm do"
        )
