"""Stochastic depth (Huang et al., 2016): a dropout of whole images in a residual branch.

timm's module for it is called DropPath, that of Hugging Face SwinDropPath, BeitDropPath and so on,
and torchvision's StochasticDepth.
"""

import copy

import torch
from torch import nn

_DRAWN = 4096
"""Images that stochastic depth is tried on."""


def is_stochastic_depth(module: nn.Module) -> bool:
    """Whether names say so: of each image by itself, and scaled so that the mean stays."""
    kind = type(module).__name__
    if kind.endswith("DropPath"):
        return hasattr(module, "drop_prob") and getattr(module, "scale_by_keep", True) is True
    return kind == "StochasticDepth" and getattr(module, "mode", "") == "row"


def drops_images(module: nn.Module, keep: float, dimensions: int) -> bool:
    """Whether stochastic depth computes what its name says, whatever a class of that name does.

    In training, it returns 0 for an image or the image / `keep`, as often as `keep` says; in
    evaluation, the images.
    """
    module = copy.deepcopy(module)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x = torch.rand(_DRAWN, *(2,) * (dimensions - 1)) + 1
        try:
            same = torch.equal(module.eval()(x.clone()), x)
            dropped = module.train()(x.clone())
            share = dropped / x * keep  # 0 or 1
        except (RuntimeError, TypeError, ValueError):
            return False
    kept = (share.flatten(1).mean(1) > 0.5).float()
    whole = torch.allclose(share, kept.view(-1, *(1,) * (dimensions - 1)).expand_as(x))
    often = abs(kept.mean().item() - keep) <= 5 * (keep * (1 - keep) / _DRAWN) ** 0.5
    return same and whole and often
