"""Dropout whose mask is an input, so that a graph without random numbers can train with it."""

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
        shape: of the mask, the batch included: that of the input, or (N, C, 1, 1) for whole maps.
        maps: whether whole maps are dropped, as `nn.Dropout2d` does.
    """

    mask: Tensor

    def __init__(self, keep: float, shape: tuple[int, ...], *, maps: bool = False) -> None:
        super().__init__()
        self.keep = keep
        self.maps = maps
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
        maps = isinstance(dropout, nn.Dropout2d) or getattr(dropout, "maps", False)
        if maps:
            shapes[name] = (*shapes[name][:2], 1, 1)
        supplied = SuppliedDropout(keep[name], shapes[name], maps=maps)
        supplied.train(dropout.training)
        network.set_submodule(name, supplied, strict=True)
    return tuple(MaskSpec(f"{name}.mask", shapes[name], keep[name]) for name in used)


def _keep(module: nn.Module) -> float:
    if isinstance(module, (nn.Dropout, nn.Dropout2d)):
        return 1 - module.p
    return module.keep if isinstance(module, SuppliedDropout) else 1
