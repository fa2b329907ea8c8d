"""The structure of a graph: chains, and branches that meet again.

A network is a chain of segments: between two of them, a single tensor is all that later operators
read. A segment of several operators begins with one tensor and ends with the operator in which its
branches meet.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pocketune.onnx_import.file import Node


@dataclass(frozen=True)
class Segment:
    """Operators between two tensors.

    Attributes:
        input: The tensor that the first operators read.
        nodes: The operators in order; the last one gives the output.
    """

    input: str
    nodes: tuple[Node, ...]

    @property
    def output(self) -> str:
        """The tensor that the last operator gives."""
        return self.nodes[-1].output


def segments(given: str, nodes: Sequence[Node]) -> list[Segment]:
    """The chain of shortest segments from a tensor to the output of the last node."""
    last = {name: place for place, node in enumerate(nodes) for name in node.data}
    found: list[Segment] = []
    begin = 0
    for place, node in enumerate(nodes):
        inside = [given, *(each.output for each in nodes[begin:place])]
        if all(last.get(name, -1) <= place for name in inside):
            found.append(Segment(given, tuple(nodes[begin : place + 1])))
            begin, given = place + 1, node.output
    return found


def branches(segment: Segment) -> list[tuple[Node, ...]] | None:
    """The branches that meet in the last operator; None if they share operators.

    A branch without operators is the segment's input itself.
    """
    made = {node.output: node for node in segment.nodes}
    found: list[tuple[Node, ...]] = []
    taken: set[str] = set()
    for name in segment.nodes[-1].data:
        reached: set[str] = set()
        stack = [name]
        while stack:
            if (each := stack.pop()) != segment.input and each not in reached:
                reached.add(each)
                stack.extend(made[each].data)
        if reached & taken:
            return None
        taken |= reached
        found.append(tuple(node for node in segment.nodes if node.output in reached))
    return found
