"""Find where the frozen part of a network ends."""

from collections.abc import Iterable
from math import prod

from torch import fx

from pocketune.compiler.trace import Traced


def features_node(traced: Traced, size: int) -> fx.Node | None:
    """The one tensor that carries everything from the frozen part into the trained part.

    It is the last one through which all of the trained part depends on the images. What the
    trained part needs of it beside it, such as sums that a layer keeps for its backward pass, is
    computed from it in every step.

    None where there is no such tensor but the images, and where it has no fewer elements than the
    image it is made from: then nothing is gained by running the frozen part by itself.
    """
    images = traced.placeholders["images"]
    frozen = _frozen_nodes(traced, images)
    needed = _ancestors(node for _, node in traced.outputs)
    frontier = {
        source for node in needed - frozen for source in node.all_input_nodes if source in frozen
    }
    place = {node: i for i, node in enumerate(traced.graph.nodes)}
    while len(frontier) > 1:
        last = max(frontier, key=place.__getitem__)
        frontier.remove(last)
        frontier.update(source for source in last.all_input_nodes if source in frozen)
    node = next(iter(frontier), images)
    if node is images:
        return None
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
