"""Find where the frozen part of a network ends."""

from collections.abc import Iterable
from math import prod

from torch import fx

from pocketune.compiler.trace import Traced


def features_node(traced: Traced, size: int) -> fx.Node | None:
    """The one tensor that carries everything from the frozen part into the trained part.

    None where there is no such tensor, and where it has no fewer elements than the image it is
    made from: then nothing is gained by running the frozen part by itself.
    """
    images = traced.placeholders["images"]
    frozen = _frozen_nodes(traced, images)
    needed = _ancestors(node for _, node in traced.outputs)
    frontier = {
        source
        for node in needed - frozen
        for source in node.all_input_nodes
        if source in frozen and source is not images
    }
    reads_images = any(images in node.all_input_nodes for node in needed - frozen)
    if len(frontier) != 1 or reads_images:
        return None
    (node,) = frontier
    return node if prod(node.meta["val"].shape[1:]) < 3 * size * size else None


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
