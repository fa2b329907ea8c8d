"""Blocks in a row of modules, as anatomy knows them."""

from collections.abc import Iterator, Sequence

from torch import nn

from pocketune.networks.anatomy.blocks import read_block
from pocketune.networks.anatomy.modules import (
    is_activation,
    is_convolution,
    is_depthwise,
    is_norm,
    is_pointwise,
    is_spatial,
)
from pocketune.onnx_import.parts import Chain, Residual


def with_blocks(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """The same row, in which modules that are a block together are one module.

    A residual is a block, with an activation behind it. Without a residual, a block ends where a
    1x1 convolution projects the channels of a depthwise one, or of a dense one linearly.
    """
    found: list[nn.Module] = []
    run: list[nn.Module] = []
    place = 0
    while place < len(modules):
        module = modules[place]
        place += 1
        if isinstance(module, Residual):
            found += run
            run = []
            if place < len(modules) and is_activation(modules[place]):
                module = Residual([*module.main], [*(module.downsample or ())], modules[place])
                place += 1
            found.append(module)
            continue
        run.append(module)
        if is_convolution(module) and is_pointwise(module):
            behind = list(_behind(modules[place:]))
            if _is_projection(run, behind):
                run += behind
                place += len(behind)
                found += _last_block(run)
                run = []
    return found + run


def _behind(modules: Sequence[nn.Module]) -> Iterator[nn.Module]:
    """The norm and the activation that follow a convolution."""
    rest = list(modules[:2])
    if rest and is_norm(rest[0]):
        yield rest.pop(0)
    if rest and is_activation(rest[0]):
        yield rest[0]


def _is_projection(run: Sequence[nn.Module], behind: Sequence[nn.Module]) -> bool:
    """Whether the last of these modules is the last convolution of a block."""
    before = [module for module in run[:-1] if is_convolution(module)]
    if not before:
        return False
    linear = not any(is_activation(module) for module in behind)
    return is_depthwise(before[-1]) or (linear and is_spatial(before[-1]))


def _last_block(run: Sequence[nn.Module]) -> list[nn.Module]:
    """The row with its longest end that is a block as one module."""
    for begin in (place for place, module in enumerate(run) if is_convolution(module)):
        chain = Chain(run[begin:])
        if read_block("block", chain) is not None:
            return [*run[:begin], chain]
    return list(run)
