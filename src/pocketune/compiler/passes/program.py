"""A traced graph as the passes before lowering read and change it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, fx

Constant = Tensor | tuple[Any, ...]


class Program:
    """A private copy of the part of a traced graph that leads from given nodes to wanted ones.

    A pass replaces nodes by others of the same value. Nothing is erased: nodes that no wanted node
    depends on are not lowered.

    Attributes:
        constants: Nodes whose values are known when compiling.
        given: Nodes that are inputs; the nodes before them are ignored.
        wanted: Nodes whose values are the results, in order.
        images: Number of images in the trace, if the graph is of images.
    """

    def __init__(
        self,
        wanted: Iterable[fx.Node],
        given: Iterable[fx.Node],
        constants: Mapping[fx.Node, Tensor],
        images: int | None = None,
    ) -> None:
        self.images = images
        originals = list(wanted)
        self.graph = fx.Graph()
        self.copies: dict[fx.Node, fx.Node] = {}
        """Nodes of the traced graph to those of this one."""
        self.graph.graph_copy(originals[0].graph, self.copies)
        self.wanted = [self.copies[node] for node in originals]
        self.given = {self.copies[node] for node in given}
        self.constants: dict[fx.Node, Constant] = {
            self.copies[node]: tensor for node, tensor in constants.items()
        }

    def needed(self) -> list[fx.Node]:
        """The nodes between given and wanted ones that are not constant, in traced order."""
        needed, stack = set[fx.Node](), list(self.wanted)
        while stack:
            node = stack.pop()
            if node in needed or node in self.given or node in self.constants:
                continue
            needed.add(node)
            stack.extend(node.all_input_nodes)
        return [node for node in self.graph.nodes if node in needed]

    def replace(self, node: fx.Node, other: fx.Node) -> None:
        """Let all readers of `node` read `other`."""
        node.replace_all_uses_with(other)
        self.wanted = [other if wanted is node else wanted for wanted in self.wanted]

    def constant(self, node: fx.Node, value: Tensor) -> fx.Node:
        """A new constant, in front of `node`."""
        with self.graph.inserting_before(node):
            made = self.graph.placeholder("constant")
        made.meta["val"] = value
        self.constants[made] = value
        return made

    def call(self, node: fx.Node, target: Any, args: tuple[Any, ...]) -> fx.Node:
        """A new call in front of `node`, with a result of the same shape and type."""
        with self.graph.inserting_before(node):
            made = self.graph.call_function(target, args)
        made.meta["val"] = node.meta["val"]
        return made

    def tensor(self, node: Any) -> Tensor | None:
        """The value of a constant; None for any other node or argument."""
        value = self.constants.get(node) if isinstance(node, fx.Node) else None
        return value if isinstance(value, Tensor) else None


def shape_of(node: fx.Node) -> tuple[int, ...]:
    """Shape of a node's tensor."""
    return tuple(int(size) for size in node.meta["val"].shape)
