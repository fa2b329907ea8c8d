"""Find where the frozen part of a network ends."""

from collections.abc import Iterable
from itertools import takewhile
from math import prod

import torch
from torch import Tensor, fx

import pocketune.layers.survivors  # noqa: F401 - registers its operators
from pocketune.compiler.capture.supplied_dropout import in_evaluation
from pocketune.compiler.capture.trace import Traced

_SHARE_OF_LARGEST = 0.75

_TRAINED: set[object] = {
    torch.ops.aten.topk.default,
    torch.ops.pocketune.magnitude_threshold.default,
    in_evaluation,
}
"""Operators of the trained part: its first layer may prune the features that the frozen part gives,
and a dropout before it drops some of them in training."""


def features_nodes(traced: Traced, size: int, like: Traced | None = None) -> tuple[fx.Node, ...]:
    """The tensors that carry everything from the frozen part into the trained part, in order.

    Most methods have one; a side branch that reads the image adds the pooled image. A tensor that
    can be computed from the others without a convolution, such as a sum that a layer keeps for
    its backward pass, is left out: every step computes it. So is one whose first dimension is not
    that of the images. The result is empty if the trained
    part reads the images themselves, or if the tensors are `_too_large`: a separate frozen part
    would save nothing.

    A step has as many images as its batch, which may be a number of channels or tokens, too. So
    the first dimensions of its tensors are told by another trace `like` it, with a number of images
    that nothing else has.
    """
    images = traced.placeholders["images"]
    frozen = frozen_nodes(traced)
    twins = {} if like is None else _twins(traced, like)
    needed = ancestors(node for _, node in traced.outputs)
    frontier = {source for node in needed - frozen for source in node.all_input_nodes} & frozen
    for node in reversed(traced.graph.nodes):
        if node in frontier and not _of_images(*twins.get(node, (node, images))):
            frontier = (frontier - {node}) | (frozen & {*node.all_input_nodes})
    constants = {traced.placeholders[name] for name in traced.constants}
    for node in reversed(traced.graph.nodes):
        if node in frontier and _follows_cheaply(node, constants | frontier - {node}):
            frontier.remove(node)
    if images in frontier or _too_large(frontier, frozen - {images}, size):
        return ()
    return tuple(node for node in traced.graph.nodes if node in frontier)


def _twins(traced: Traced, like: Traced) -> dict[fx.Node, tuple[fx.Node, fx.Node]]:
    """The node of another trace for each of the frozen part, and the images there.

    Both compute the same forward pass, up to where an operator differs.
    """
    images = like.placeholders["images"]
    pairs = zip(_in_order(traced), _in_order(like), strict=False)
    same = takewhile(lambda pair: pair[0].target == pair[1].target, pairs)
    return {node: (twin, images) for node, twin in same}


def _in_order(traced: Traced) -> list[fx.Node]:
    """The nodes of the frozen part, in the order of the trace."""
    frozen = frozen_nodes(traced) - {traced.placeholders["images"]}
    return [node for node in traced.graph.nodes if node in frozen]


def _of_images(node: fx.Node, images: fx.Node) -> bool:
    """Whether a tensor's first dimension is that of the images.

    A linear layer merges it with those of tokens. An operator with several results is no tensor.
    """
    value = node.meta["val"]
    return isinstance(value, Tensor) and value.shape[:1] == images.meta["val"].shape[:1]


def _too_large(frontier: set[fx.Node], frozen: set[fx.Node], size: int) -> bool:
    """Whether the tensors of a frontier have as many elements as images of this size.

    Maps of high resolution have, as for an output for each pixel. They are not too large if the
    frozen part makes much larger ones on the way, which a separate graph makes image by image.
    """
    elements = sum(_elements(node) for node in frontier)
    largest = max(map(_elements, frozen), default=0)
    return elements >= max(3 * size * size, _SHARE_OF_LARGEST * largest)


def _elements(node: fx.Node) -> int:
    value = node.meta.get("val")
    return prod(value.shape[1:]) if isinstance(value, Tensor) else 0


def tensor_shape(node: fx.Node) -> tuple[int, ...]:
    """Shape of a node's tensor for one image."""
    return tuple(node.meta["val"].shape[1:])


def _follows_cheaply(node: fx.Node, given: set[fx.Node]) -> bool:
    """Whether a node can be computed from given ones without a convolution."""
    known = set(given)
    for other in node.graph.nodes:
        if other.op == "placeholder" or other.target is torch.ops.aten.convolution.default:
            continue
        if known.issuperset(other.all_input_nodes):
            known.add(other)
        if other is node:
            break
    return node in known


def frozen_nodes(traced: Traced) -> set[fx.Node]:
    """The images, and the nodes computed from them and from constants only."""
    images = traced.placeholders["images"]
    constant = {traced.placeholders[name] for name in traced.constants}
    frozen = {images}
    for node in traced.graph.nodes:
        if node.op in ("placeholder", "output") or node.target in _TRAINED:
            continue
        inputs = set(node.all_input_nodes)
        if inputs <= constant:
            constant.add(node)
        elif inputs <= frozen | constant:
            frozen.add(node)
    return frozen


def ancestors(outputs: Iterable[fx.Node]) -> set[fx.Node]:
    """These nodes and all nodes that they are computed from."""
    seen: set[fx.Node] = set()
    stack = list(outputs)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.all_input_nodes)
    return seen
