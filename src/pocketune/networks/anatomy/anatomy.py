"""Any network seen as stem, blocks, feature fusion and classifier, with every layer's role.

Nothing here knows a network by name. Blocks are recognized by the convolutions in them, so the
networks of timm and torchvision are understood as well as our own:

* inverted residual: 1x1 expand (may be missing), depthwise k x k, 1x1 project; or a dense k x k
  expand in place of the first two; or, in a universal inverted bottleneck, with a depthwise
  convolution before the expansion, or without one
* basic: two k x k convolutions
* bottleneck: 1x1, k x k, 1x1

The stem is everything before the first block. After the last block, a convolution with a norm is
the feature fusion, and every other layer with weights belongs to the classifier. A network that
classifies pixels has its decode head between the two, as a module of its own named `decode_head`.

A network with other blocks, such as a transformer, is run without values instead, and the modules
that it repeats are its blocks (`find_units`).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.networks.anatomy.blocks import Block, Layer, make_layer, read_block
from pocketune.networks.anatomy.kinds import follow_layers, read_unit
from pocketune.networks.anatomy.modules import (
    conv_layers,
    is_convolution,
    is_within,
    main_modules,
    weighs,
)
from pocketune.networks.anatomy.trunk import Run, output_layers, run
from pocketune.networks.anatomy.units import CONTAINERS, find_units
from pocketune.networks.checks import require_network

BLOCKLESS = (
    "LastLayer, NormAndLast, BiasAndLast, LoRA, FullFineTune and GradientFilter(layers=[names]) "
    "need no blocks"
)
"""The methods for networks without blocks."""

DECODE_HEAD = "decode_head"
"""Name of the module between backbone and classifier."""


@dataclass(frozen=True)
class Anatomy:
    """A whole network; every string is a module path as in `named_modules()`.

    `classifier` holds all layers that are trained as "the classifier", including norms between
    them. Its last layer gives the logits. `decode_head` is empty if the network classifies images.
    `neck` holds what else has parameters behind the last block, such as the last norm of a
    transformer.
    """

    stem: tuple[Layer, ...]
    blocks: tuple[Block, ...]
    feature_fusion: tuple[Layer, ...]
    classifier: tuple[str, ...]
    decode_head: tuple[Layer, ...] = ()
    neck: tuple[str, ...] = ()

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Every convolution with its role, stem to decode head, without the classifier's."""
        inside = tuple(layer for block in self.blocks for layer in block.layers)
        return self.stem + inside + self.feature_fusion + self.decode_head

    @property
    def main(self) -> tuple[Layer, ...]:
        """Every convolution except those in shortcuts, stem to decode head."""
        return tuple(layer for layer in self.layers if not layer.in_shortcut)

    def __str__(self) -> str:
        """A line for each block, and one for each other part."""
        parts = [
            ("stem", [layer.conv for layer in self.stem]),
            *((block.kind, [block.name]) for block in self.blocks),
            ("feature_fusion", [layer.conv for layer in self.feature_fusion]),
            ("decode_head", [layer.conv for layer in self.decode_head]),
            ("neck", self.neck),
            ("classifier", self.classifier),
        ]
        there = [(part, ", ".join(paths)) for part, paths in parts if paths]
        width = max(len(part) for part, _ in there)
        return "\n".join(f"{part:<{width}}  {paths}" for part, paths in there)


def anatomy(network: nn.Module) -> Anatomy:
    """Find stem, blocks, feature fusion, decode head and classifier of a network.

    Modules must be registered in the order in which they run, as they are in all our networks
    and in timm's and torchvision's; in a network that is run to find its blocks, in any order.

    Example:
        >>> from pocketune import anatomy, create_network
        >>> body = anatomy(create_network("mobilenet_v2"))
        >>> len(body.blocks), body.blocks[-1].layer("depthwise").conv, body.classifier
        (17, 'features.17.conv.1.0', ('classifier.1',))
        >>> print(body)  # doctest: +ELLIPSIS
        stem               features.0.0
        inverted_residual  features.1
        ...
        inverted_residual  features.17
        feature_fusion     features.18.0
        classifier         classifier.1

    Raises:
        PocketuneError: `network` is not a PyTorch module, has no blocks or no classifier, or
            cannot be run to find them; the message names the module that fails.
    """
    require_network(network)
    blocks = _blocks(network)
    if not blocks or _has_other_layers(network, blocks):
        return _anatomy_of(network, run(network))
    before, behind = _around(network, blocks)
    head = [(path, module) for path, module in behind if in_decode_head(path)]
    after = [(path, module) for path, module in behind if not in_decode_head(path)]
    fusion = [layer for layer in conv_layers(after) if layer.norm is not None]
    classifier = _classifier(after, {path for layer in fusion for path in (layer.path, layer.norm)})
    if not classifier:
        raise PocketuneError(f"{type(network).__name__} has no classifier after its last block")
    return Anatomy(
        stem=tuple(make_layer("stem", layer) for layer in conv_layers(before)),
        blocks=blocks,
        feature_fusion=tuple(make_layer("feature_fusion", layer) for layer in fusion),
        classifier=classifier,
        decode_head=tuple(make_layer("decode_head", layer) for layer in conv_layers(head)),
    )


def known_anatomy(network: nn.Module) -> Anatomy | None:
    """The anatomy of a network, or None if it has no known blocks or no classifier."""
    try:
        return anatomy(network)
    except PocketuneError:
        return None


def _anatomy_of(network: nn.Module, seen: Run) -> Anatomy:
    """The anatomy of a network of any blocks, from a run."""
    modules = dict(main_modules(network))
    units = find_units(modules, seen)
    if not units:
        raise PocketuneError(
            f"{type(network).__name__} has no blocks, modules that map features to features; "
            f"{BLOCKLESS}"
        )
    classifier = output_layers(modules, seen)
    if not classifier:
        raise PocketuneError(f"{type(network).__name__} has no classifier after its last block")
    read = [read_unit(path, modules, seen) for path in units]
    owned = [path for block in read for path in block.modules]
    inside = tuple(f"{path}." for path in (*owned, *classifier))
    rest = [path for path in seen.calls if path in modules and not f"{path}.".startswith(inside)]
    starts = [seen.calls[path].order for path in units]
    between = [
        [path for path in rest if low < seen.calls[path].order < high]
        for low, high in pairwise((-1, *starts, len(seen.calls)))
    ]
    stem, *entries, behind = between
    blocks = [
        replace(block, entry=_with_parameters(modules, entry))
        for block, entry in zip(read, [[], *entries], strict=True)
    ]
    behind = [path for path in behind if seen.reaches_output(path)]
    after = follow_layers("feature_fusion", {path: modules[path] for path in behind}, seen)
    fusion = tuple(layer for layer in after if layer.norm is not None)
    fused = {path for layer in fusion for path in (layer.conv, layer.norm)}
    return Anatomy(
        stem=tuple(follow_layers("stem", {path: modules[path] for path in stem}, seen)),
        blocks=tuple(blocks),
        feature_fusion=fusion,
        classifier=classifier,
        neck=_with_parameters(modules, [path for path in behind if path not in fused]),
    )


def _with_parameters(modules: dict[str, nn.Module], paths: list[str]) -> tuple[str, ...]:
    """Those of these modules that have parameters of their own."""
    return tuple(path for path in paths if path and _has_own(modules[path]))


def _blocks(network: nn.Module) -> tuple[Block, ...]:
    """Outermost modules built like a block; containers and stages hold blocks and are none.

    A class of which a module holds two blocks is a stage; others of it may hold only one, and then
    look like that block.
    """
    found = tuple(_outermost_blocks(network))
    modules = dict(main_modules(network))
    parents = Counter(block.name.rpartition(".")[0] for block in found)
    stages = {type(modules[path]) for path, blocks in parents.items() if blocks > 1}
    if any(type(modules[block.name]) in stages for block in found):
        found = tuple(_outermost_blocks(network, tuple(stages)))
    return found


def _outermost_blocks(
    network: nn.Module, stages: tuple[type[nn.Module], ...] = ()
) -> Iterator[Block]:
    inside: Block | None = None
    for path, module in main_modules(network):
        is_holder = isinstance(module, CONTAINERS) or type(module) in stages
        if module is network or is_holder or _within(path, inside) or in_decode_head(path):
            continue
        if block := read_block(path, module):
            inside = block
            yield block


def _around(
    network: nn.Module, blocks: tuple[Block, ...]
) -> tuple[list[tuple[str, nn.Module]], list[tuple[str, nn.Module]]]:
    """Modules registered before the first block, and after the last one."""
    modules = list(main_modules(network))
    paths = [path for path, _ in modules]
    first = paths.index(blocks[0].name)
    last = max(place for place, path in enumerate(paths) if _within(path, blocks[-1]))
    return modules[:first], modules[last + 1 :]


def _has_other_layers(network: nn.Module, blocks: tuple[Block, ...]) -> bool:
    """Whether a layer is not in a block, before the first block or after the last.

    A module with several convolutions is an unknown block wherever it is, and so are several of one
    class with linear layers, as in a transformer behind convolutions.
    """
    known = {block.name for block in blocks}
    kinds: set[type[nn.Module]] = set()
    before, after = _around(network, blocks)
    outside = {path for path, _ in before + after}
    for path, module in main_modules(network):
        if in_decode_head(path) or any(_within(path, block) for block in blocks):
            continue
        if weighs(module) and path not in outside:
            return True
        holds_blocks = any(name.startswith(f"{path}.") for name in known) or path == ""
        if holds_blocks or isinstance(module, CONTAINERS):
            continue
        layers = [part for _, part in main_modules(module) if weighs(part)]
        if (len(layers) > 1 and type(module) in kinds) or sum(map(is_convolution, layers)) > 1:
            return True
        kinds.add(type(module))
    return False


def in_decode_head(path: str) -> bool:
    """Whether a module or parameter is part of the decode head, by its path."""
    return is_within(path, DECODE_HEAD)


def _within(path: str, block: Block | None) -> bool:
    return block is not None and is_within(path, block.name)


def _classifier(after: list[tuple[str, nn.Module]], fused: set[str | None]) -> tuple[str, ...]:
    """Paths of modules with parameters, from the first to the last layer with weights."""
    rest = [(path, module) for path, module in after if path not in fused]
    places = [place for place, (_, module) in enumerate(rest) if weighs(module)]
    between = rest[min(places, default=0) : max(places, default=-1) + 1]
    return tuple(path for path, module in between if weighs(module) or _has_own(module))


def _has_own(module: nn.Module) -> bool:
    return next(module.parameters(recurse=False), None) is not None
