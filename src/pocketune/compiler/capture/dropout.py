"""Dropout whose mask is an input, so that a graph without random numbers can train with it.

Stochastic depth (Huang et al., 2016) is a dropout of whole images in a residual branch. timm's
module for it is called DropPath, torchvision's StochasticDepth.
"""

from typing import Any

import torch
from torch import Tensor, nn

from pocketune.kit.manifest import MaskSpec
from pocketune.networks.probe import input_shapes


class SuppliedDropout(nn.Module):
    """Multiplies by `mask` in training, and does nothing in evaluation.

    `mask` is a buffer that state dicts leave out. It holds ones until it is filled: with 0 for an
    element that is dropped, and 1 / `keep` for one that is kept.

    Args:
        keep: probability that an element is kept, in (0, 1).
        shape: of the mask, the batch included: that of the input, or 1 in the dimensions that are
            dropped together.
        together: the first dimension that is dropped together with all behind it: 2 for whole
            maps, as `nn.Dropout2d` does, 1 for whole images; None if each element is by itself.
    """

    mask: Tensor

    def __init__(self, keep: float, shape: tuple[int, ...], *, together: int | None = None) -> None:
        super().__init__()
        self.keep = keep
        self.together = together
        self.register_buffer("mask", torch.ones(shape), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, ...) -> the same shape; in training, the batch is that of the mask."""
        return x * self.mask if self.training else x

    def extra_repr(self) -> str:
        """Keep and shape, for `repr`."""
        return f"keep={self.keep}, shape={tuple(self.mask.shape)}"


def supply_masks(network: nn.Module, batch: int, size: int) -> tuple[MaskSpec, ...]:
    """Replace each dropout that drops something by a `SuppliedDropout`, in place.

    Args:
        network: takes (batch, 3, size, size). A `SuppliedDropout` in it gets a new mask of the
            right shape, so calling this twice is safe.
        batch: images of a training step.
        size: height and width of the images, in pixels.

    Returns:
        The masks, by the names of their buffers, in the order of `network.named_modules()`.
    """
    keep = {name: k for name, m in network.named_modules() if (k := _keep(m)) < 1}
    shapes = input_shapes(network, keep, (batch, 3, size, size)) if keep else {}
    used = [name for name in keep if name in shapes]
    for name in used:
        dropout = network.get_submodule(name)
        together = _together(dropout)
        if together is not None:
            shape = shapes[name]
            shapes[name] = (*shape[:together], *(1,) * (len(shape) - together))
        supplied = SuppliedDropout(keep[name], shapes[name], together=together)
        supplied.train(dropout.training)
        network.set_submodule(name, supplied, strict=True)
    return tuple(MaskSpec(f"{name}.mask", shapes[name], keep[name]) for name in used)


def _keep(module: nn.Module) -> float:
    if isinstance(module, (nn.Dropout, nn.Dropout2d)):
        return 1 - module.p
    if _is_stochastic_depth(module):
        rate: Any = module.drop_prob if hasattr(module, "drop_prob") else module.p
        return 1 - float(rate or 0)
    return module.keep if isinstance(module, SuppliedDropout) else 1


def _together(module: nn.Module) -> int | None:
    if isinstance(module, SuppliedDropout):
        return module.together
    if _is_stochastic_depth(module):
        return 1
    return 2 if isinstance(module, nn.Dropout2d) else None


def _is_stochastic_depth(module: nn.Module) -> bool:
    """Of each image by itself, and scaled so that the mean stays."""
    kind = type(module).__name__
    timms = kind == "DropPath" and getattr(module, "scale_by_keep", True) is True
    return timms or (kind == "StochasticDepth" and getattr(module, "mode", "") == "row")
