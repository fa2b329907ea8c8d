"""The parts of a network that methods train, and what a method requires of a network."""

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import NamedTuple

import torch
from torch import nn

from pocketune.errors import PocketuneError, counted, whole_number
from pocketune.methods.plan import Pass, Plan
from pocketune.networks import Anatomy, Factory, about, anatomy
from pocketune.networks.anatomy.blocks import Block
from pocketune.networks.anatomy.modules import is_convolution, is_norm, main_modules
from pocketune.networks.anatomy.output import classifier_layers
from pocketune.networks.anatomy.trunk import calls_of
from pocketune.surgery import BRANCH, mask_activations, parameters_under

MASKS = Pass(mask_activations)
"""Exact activations that keep one bit, except where a method has replaced them."""


def top_blocks(body: Anatomy, count: int, *, least: int = 1) -> tuple[Block, ...]:
    """The last `count` blocks.

    Raises:
        PocketuneError: The network has fewer blocks, or `count` is below `least`; the message
            gives the numbers that fit.
    """
    blocks = body.blocks
    whole = whole_number(count)
    if whole is None or not least <= whole <= len(blocks):
        raise PocketuneError(
            f"blocks={count!r} does not fit a network of {counted(len(blocks), 'block')}; give "
            + (f"a whole number from {least} to {len(blocks)}" if least < len(blocks) else "1")
        )
    return blocks[len(blocks) - whole :]


def convolution(network: nn.Module, name: str) -> nn.Conv2d:
    """The convolution of that name.

    Raises:
        PocketuneError: The network has no such layer, or it is not a convolution.
    """
    layer = dict(network.named_modules()).get(name)
    if layer is None:
        raise PocketuneError(
            f"the network has no layer {name}; see anatomy(network).layers for its convolutions"
        )
    if not is_convolution(layer):
        raise PocketuneError(
            f"layer {name} is a {type(layer).__name__}, not a two-dimensional convolution"
        )
    return layer


def needed_anatomy(network: nn.Module, method: object) -> Anatomy:
    """The anatomy of a network, for a method that is added to others and may be left out.

    Raises:
        PocketuneError: There is none; the message names the method.
    """
    try:
        return anatomy(network)
    except PocketuneError as error:
        reason = error.message.partition("; ")[0]  # the rest is about methods without blocks
        raise PocketuneError(
            f"{method} needs the blocks of a network: {reason}; leave it out"
        ) from error


def refuse_adapted(network: nn.Module) -> None:
    """Check that a network is not adapted yet.

    Raises:
        PocketuneError: It is.
    """
    if (earlier := about(network).method) is not None:
        raise PocketuneError(
            f"the network is adapted to {earlier} already; measure the original network"
        )


def called_modules(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules that a forward pass calls, by path, those of side branches left out.

    A layer may have its weight read instead, as the linear ones in PyTorch's attention and in
    torchvision's Swin: nothing that stands beside it or takes its place would run. Of a network
    that cannot run without values, every module counts as called.
    """
    calls = calls_of(network)
    return (item for item in main_modules(network) if not calls or item[0] in calls)


def blocks_and_entries(network: nn.Module, blocks: Iterable[Block]) -> frozenset[str]:
    """Names of the parameters of blocks, and of what leads to each from the block before."""
    paths = [path for block in blocks for path in (*block.modules, *block.entry)]
    return parameters_under(network, paths)


Names = tuple[str | None, ...]
"""Names of the modules of a part; None stands for one that is missing."""


def split_at_first_trained(plan: Plan, body: Anatomy) -> tuple[list[Names], list[Names]]:
    """The layers of the stem and the blocks below the first trained one, and the others.

    The gradient passes through the others. A block has the names of its modules and activations.
    """
    stem = [layer.paths for layer in body.stem]
    blocks = [
        (*block.modules, *(layer.activation for layer in block.layers)) for block in body.blocks
    ]
    parts: list[Names] = [*stem, *blocks]
    first = next((i for i, names in enumerate(parts) if _is_trained(plan, names)), len(parts))
    return parts[:first], parts[first:]


def _is_trained(plan: Plan, modules: Names) -> bool:
    prefixes = tuple(f"{name}." for name in modules if name)
    return any(name.startswith(prefixes) for name in plan.trained)


def fusion_and_classifier(network: nn.Module, body: Anatomy) -> frozenset[str]:
    """Names of the parameters after the last block, those of a decode head included."""
    layers = body.feature_fusion + body.decode_head
    between = (name for layer in layers for name in (layer.conv, layer.norm) if name)
    return parameters_under(network, (*between, *body.neck, *body.classifier))


class Maps(NamedTuple):
    """The feature maps of a block.

    Attributes:
        inputs: Channels that it reads.
        outputs: Channels that it returns.
        stride: How many times smaller the output is than the input, along one side.
    """

    inputs: int
    outputs: int
    stride: int


def block_maps(network: nn.Module, block: Block) -> Maps:
    """The maps of a block, which a branch beside it reads and returns too.

    Raises:
        PocketuneError: The block reads or returns tokens, or several tensors; or its maps have
            their channels last.
    """
    if block.features is not None:
        given, made = block.features
        if len(given) == len(made) == 3 and _channels_first(given) and _channels_first(made):
            return Maps(given[0], made[0], max(1, round(given[1] / made[1])))
    elif block.is_row:
        layers = (network.get_submodule(layer.conv) for layer in block.main)
        convs = [layer for layer in layers if is_convolution(layer)]
        stride = prod(int(conv.stride[0]) for conv in convs)
        return Maps(convs[0].in_channels, convs[-1].out_channels, stride)
    raise _no_maps(block)


def require_channels_first(network: nn.Module, blocks: Iterable[Block]) -> None:
    """Check that blocks do not read maps (N, H, W, C), as in files of TensorFlow's networks.

    A row of convolutions does not show the order in which its block has them. Our own networks all
    have the channels first, and of one that cannot run without values nothing is known.

    Raises:
        PocketuneError: One of them does.
    """
    calls = {} if about(network).config is not None else calls_of(network)
    for block in blocks:
        call = calls.get(block.name)
        if call is not None and call.given[0].shape[1] != block_maps(network, block).inputs:
            raise _no_maps(block)


def _no_maps(block: Block) -> PocketuneError:
    return PocketuneError(
        f"block {block.name}, {block.kind}, does not map one tensor (N, C, H, W) to another, so no "
        "branch of convolutions can stand beside it; use LoRA() or TopBlocks()"
    )


def _channels_first(shape: tuple[int, ...]) -> bool:
    """Whether a shape is (C, H, W): images are square, so that H and W are equal."""
    return shape[1] == shape[2]


def biases(network: nn.Module) -> frozenset[str]:
    """Names of every bias, including those of norms.

    Attention may name its biases `in_proj_bias`, or `q_bias` and `v_bias`. A table of two or more
    dimensions, as of relative positions, is none.
    """
    return frozenset(
        name
        for name, parameter in network.named_parameters()
        if (last := name.split(".")[-1]) == "bias"
        or (last.endswith("_bias") and parameter.ndim == 1)
    )


def planned_branches(network: nn.Module, branches: Mapping[str, Factory]) -> dict[str, nn.Module]:
    """The side branches that these factories make, on the meta device, by their later paths."""
    with torch.device("meta"):
        return {
            f"{block}.{BRANCH}": make(network.get_submodule(block))
            for block, make in branches.items()
        }


def parameters_of_branches(branches: Mapping[str, nn.Module]) -> frozenset[str]:
    """Names of the parameters of branches, given by their paths."""
    return frozenset(
        f"{path}.{name}"
        for path, branch in branches.items()
        for name, _ in branch.named_parameters()
    )


def norms(network: nn.Module) -> frozenset[str]:
    """Names of the weights and biases of all norms."""
    return parameters_under(network, (n for n, m in network.named_modules() if _normalizes(m)))


def _normalizes(module: nn.Module) -> bool:
    """Whether a module is a norm; other packages have their own classes for layer norms."""
    if is_norm(module) or isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
        return True
    named = "norm" in type(module).__name__.lower() and next(module.children(), None) is None
    return named and all(parameter.ndim == 1 for parameter in module.parameters())


def classifier(network: nn.Module) -> frozenset[str]:
    """Names of the classifier's parameters, also in a network without known blocks."""
    return parameters_under(network, classifier_layers(network))
