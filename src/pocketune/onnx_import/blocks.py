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
    weighs,
)
from pocketune.onnx_import.operators.attention import Attention
from pocketune.onnx_import.parts import Chain, Residual, Transformer


def with_blocks(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """The same row, in which modules that are a block together are one module.

    A residual is a block, with an activation behind it. Without a residual, a block ends where a
    1x1 convolution projects the channels of a depthwise one, or of a dense one linearly. Attention
    and the MLP behind it are a block together.
    """
    found: list[nn.Module] = []
    run: list[nn.Module] = []
    rest = list(modules)
    while rest:
        module = rest.pop(0)
        if isinstance(module, Residual):
            found += run
            run = []
            _add_residual(found, module, rest)
            continue
        run.append(module)
        if is_convolution(module) and is_pointwise(module):
            behind = list(_behind(rest))
            is_last = _is_projection(run, behind)
            if is_last and not _is_expansion(run, behind, rest[len(behind) :]):
                found += _last_block([*run, *behind])
                run = []
                del rest[: len(behind)]
    return found + run


def _add_residual(found: list[nn.Module], residual: Residual, rest: list[nn.Module]) -> None:
    """Add a residual to the row; an activation behind it and attention before it are part of it."""
    if rest and is_activation(rest[0]):
        residual = Residual([*residual.main], [*(residual.downsample or ())], rest.pop(0))
    joined = _transformer(found, residual, rest)
    if joined is None:
        found.append(residual)
        return
    del found[-1 if joined.norm is None else -2 :]
    found.append(joined)
    if joined.last is not None:
        del rest[0]


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
    expanded = len(before) > 1 and is_depthwise(before[-2])  # see _is_expansion
    return is_depthwise(before[-1]) or (linear and (is_spatial(before[-1]) or expanded))


def _is_expansion(
    run: Sequence[nn.Module], behind: Sequence[nn.Module], rest: Sequence[nn.Module]
) -> bool:
    """Whether a universal inverted bottleneck goes on, of which a depthwise layer is the first.

    That layer ends linearly, the 1x1 convolution behind it does not, and the next one does, perhaps
    after another depthwise one.
    """
    depthwise = max(place for place, module in enumerate(run[:-1]) if is_convolution(module))
    if any(map(is_activation, run[depthwise:])) or not any(map(is_activation, behind)):
        return False
    for place, module in enumerate(rest):
        if isinstance(module, Residual) or (is_convolution(module) and is_spatial(module)):
            return False
        if is_convolution(module) and is_pointwise(module):
            return not any(map(is_activation, _behind(rest[place + 1 :])))
    return False


def _transformer(
    found: Sequence[nn.Module], mlp: Residual, rest: Sequence[nn.Module]
) -> Transformer | None:
    """The block of attention, found before, and the MLP behind it, with norms after both sums."""
    norm = found[-1] if found and isinstance(found[-1], nn.LayerNorm) else None
    before = found[-1:] if norm is None else found[-2:-1]
    if not before or not isinstance(before[0], Residual):
        return None
    if not _attends(before[0]) or _attends(mlp) or not any(map(weighs, mlp.modules())):
        return None
    last = rest[0] if norm is not None and rest and isinstance(rest[0], nn.LayerNorm) else None
    return Transformer(before[0], norm, mlp, last)


def _attends(residual: Residual) -> bool:
    return any(isinstance(module, (Attention, nn.Softmax)) for module in residual.modules())


def _last_block(run: Sequence[nn.Module]) -> list[nn.Module]:
    """The row with its longest end that is a block as one module."""
    for begin in (place for place, module in enumerate(run) if is_convolution(module)):
        chain = Chain(run[begin:])
        if read_block("block", chain) is not None:
            return [*run[:begin], chain]
    return list(run)
