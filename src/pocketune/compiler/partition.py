"""Find where the frozen part of a network ends."""

from collections.abc import Iterable
from math import prod

from torch import fx

from pocketune.compiler.trace import Traced


def features_nodes(traced: Traced, size: int) -> tuple[fx.Node, ...]:
    """The tensors that carry everything from the frozen part into the trained part, in order.

    Most methods have one. With a side branch that reads the image there is the pooled image
    besides. Empty where the trained part reads the images themselves, and where the tensors have
    no fewer elements than the image they are made from: then nothing is gained by running the
    frozen part by itself.
    """
    images = traced.placeholders["images"]
    frozen = _frozen_nodes(traced, images)
    needed = _ancestors(node for _, node in traced.outputs)
    frontier = {source for node in needed - frozen for source in node.all_input_nodes} & frozen
    shapes = [tensor_shape(node) for node in frontier]
    if images in frontier or sum(map(prod, shapes)) >= 3 * size * size:
        return ()
    return tuple(node for node in traced.graph.nodes if node in frontier)


def tensor_shape(node: fx.Node) -> tuple[int, ...]:
    """Shape of a node's tensor for one image."""
    return tuple(node.meta["val"].shape[1:])


def _frozen_nodes(traced: Traced, images: fx.Node) -> set[fx.Node]:
    """Nodes computed from the images and from constants alone, with the images themselves."""
    constant = {traced.placeholders[name] for name in traced.constants}
    frozen = {images}
    for node in traced.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        inputs = set(node.all_input_nodes)
        if inputs <= constant:
            constant.add(node)
        elif inputs <= frozen | constant:
            frozen.add(node)
    return frozen


def _ancestors(outputs: Iterable[fx.Node]) -> set[fx.Node]:
    seen: set[fx.Node] = set()
    stack = list(outputs)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(node.all_input_nodes)
    return seen
