"""Depthwise convolutions of the step graph in the runtime's own blocked layout.

A kit says `Conv`, which runs everywhere. Of a convolution whose kernel is a constant the runtime
itself makes one over blocks of channels, which for depthwise kernels is five to twenty times as
fast; here kernels are inputs, as they are trained, and the same is done when the graph is opened.
The compiler gives the convolutions for which it pays a name that begins with `DEPTHWISE`.

Maps with the channels last are brought into blocks as they are, and back: where the graph has a
`Transpose` in between, the other layout is never made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pocketune.device.onnx_protobuf import (
    Field,
    in_pieces,
    message,
    number,
    opened,
    parse,
    pieces,
    text,
)

DEPTHWISE = "depthwise"
"""How the name of a node begins whose channels are as many as its groups, and fill whole blocks."""

KERNEL_GRADIENT = f"{DEPTHWISE}_gradient"
"""How it begins where input and kernel are what `Reshape` has made of maps (N, C, H, W), and C is
whole blocks."""

LARGEST_BLOCK = 16
"""Channels of a block, at most; it depends on the processor."""

_DOMAIN = "com.microsoft.nchwc"
_TO_CHANNELS_FIRST, _TO_CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)

# Field numbers of onnx.proto3.
_MODEL_GRAPH, _MODEL_OPSET, _GRAPH_NODE, _GRAPH_OUTPUT, _VALUE_NAME = 7, 8, 1, 12, 1
_INPUT, _OUTPUT, _NAME, _OPERATOR, _ATTRIBUTE, _NODE_DOMAIN = 1, 2, 3, 4, 5, 7
_ATTRIBUTE_NAME, _ATTRIBUTE_INT, _ATTRIBUTE_INTS, _ATTRIBUTE_TYPE = 1, 3, 8, 20
_TYPE_INT, _TYPE_INTS = 2, 7
_OPSET_DOMAIN, _OPSET_VERSION = 1, 2


def block_depthwise(model: Path | bytes) -> bytes | None:
    """The same graph, the convolutions so named in the blocked layout; None if there are none.

    It opens where ONNX Runtime has blocked kernels for the processor, and nowhere else.

    Raises:
        ProtobufError: It is not a model.
    """
    domain = message(_MODEL_OPSET, text(_OPSET_DOMAIN, _DOMAIN), number(_OPSET_VERSION, 1))
    parts, found = pieces([domain]), False
    for part in parse(opened(model)):
        if part.number == _MODEL_GRAPH:
            given = list(parse(part.buffer))
            graph = _Graph([_Node(field) for field in given if field.number == _GRAPH_NODE], given)
            found = any(node.is_depthwise for node in graph.nodes)
            others = (field for field in given if field.number != _GRAPH_NODE)
            parts += in_pieces(_MODEL_GRAPH, [*graph.blocked(), *others])
        else:
            parts += pieces([part])
    return b"".join(parts) if found else None


@dataclass(frozen=True)
class _Node:
    field: Field

    @cached_property
    def _parts(self) -> list[Field]:
        return list(parse(self.field.buffer))

    @cached_property
    def inputs(self) -> list[str]:
        return [part.text for part in self._parts if part.number == _INPUT]

    @cached_property
    def outputs(self) -> list[str]:
        return [part.text for part in self._parts if part.number == _OUTPUT]

    @cached_property
    def name(self) -> str:
        return next((part.text for part in self._parts if part.number == _NAME), "")

    @property
    def operator(self) -> str:
        return next(part.text for part in self._parts if part.number == _OPERATOR)

    @property
    def is_depthwise(self) -> bool:
        """Not so a kernel in 8 bits, which is brought to float under the name of its reader."""
        return self.name.startswith(DEPTHWISE) and self.operator == "Conv"

    @property
    def attributes(self) -> list[Field]:
        return [part for part in self._parts if part.number == _ATTRIBUTE]

    def numbers(self, attribute: str) -> tuple[int, ...]:
        """The value or values of an attribute of integers; none where it is not there."""
        for field in self.attributes:
            parts = list(parse(field.buffer))
            if any(part.number == _ATTRIBUTE_NAME and part.text == attribute for part in parts):
                values = (p.value for p in parts if p.number in (_ATTRIBUTE_INT, _ATTRIBUTE_INTS))
                return tuple(value for value in values if isinstance(value, int))
        return ()

    def transposes(self, order: Sequence[int]) -> bool:
        return self.operator == "Transpose" and self.numbers("perm") == order


class _Graph:
    """The nodes of a graph, and who makes and reads what."""

    def __init__(self, nodes: Sequence[_Node], fields: Iterable[Field]) -> None:
        self.nodes = nodes
        self._makers = {name: node for node in nodes for name in node.outputs}
        self._reads = Counter(name for node in nodes for name in node.inputs)
        self._readers = {name: node for node in nodes for name in node.inputs}
        values = (parse(field.buffer) for field in fields if field.number == _GRAPH_OUTPUT)
        self._wanted = {p.text for value in values for p in value if p.number == _VALUE_NAME}
        self._made: set[str] = set()  # by others than the nodes that made them

    def blocked(self) -> list[Field]:
        """All nodes, without the moves that nothing reads any more."""
        made = [node for given in self.nodes for node in self._in_blocks(given)]
        wanted, kept = set(self._wanted), []
        for node in reversed(made):
            if wanted.intersection(node.outputs):
                wanted.update(node.inputs)
                kept.append(node.field)
        return kept[::-1]

    def _in_blocks(self, node: _Node) -> Iterator[_Node]:
        """A node, or those that take its place."""
        if self._made.intersection(node.outputs):
            return
        if not node.is_depthwise:
            yield node
            return
        x, kernel, *bias = node.inputs
        x_blocked, kernel_blocked = f"{node.name}.x", f"{node.name}.kernel"
        if node.name.startswith(KERNEL_GRADIENT):
            yield from self._reshaped_blocks(x, x_blocked)
            yield from self._reshaped_blocks(kernel, kernel_blocked)
        else:
            yield self._blocks(x, x_blocked)
            yield from _kernel_blocks(kernel, kernel_blocked)
        inputs = [x_blocked, kernel_blocked, *bias]
        y = f"{node.name}.y"
        yield _node("Conv", inputs, y, *node.attributes, domain=_DOMAIN)
        yield self._plain(y, node)

    def _blocks(self, name: str, blocked: str) -> _Node:
        """A map (N, C, H, W) in blocks, straight from (N, H, W, C) where it was made of that."""
        maker = self._makers.get(name)
        if maker is not None and maker.transposes(_TO_CHANNELS_FIRST):
            last = _integer("channels_last", 1)
            return _node("ReorderInput", maker.inputs, blocked, last, domain=_DOMAIN)
        return _node("ReorderInput", [name], blocked, domain=_DOMAIN)

    def _reshaped_blocks(self, name: str, blocked: str) -> Iterator[_Node]:
        """Of what is a map in another shape: the blocks of both lie in the same order."""
        source, shape = self._makers[name].inputs
        yield self._blocks(source, f"{blocked}.map")
        yield _node("Reshape", [f"{blocked}.map", shape], blocked)

    def _plain(self, y: str, conv: _Node) -> _Node:
        """The convolution's output, as (N, H, W, C) where nothing reads it but a `Transpose`."""
        (output,) = conv.outputs
        (channels,) = conv.numbers("group")
        attributes = [_integer("channels", channels)]
        reader = self._readers.get(output)
        alone = self._reads[output] == 1 and output not in self._wanted
        if reader is not None and alone and reader.transposes(_TO_CHANNELS_LAST):
            (output,) = reader.outputs
            self._made.add(output)
            attributes.append(_integer("channels_last", 1))
        return _node("ReorderOutput", [y], output, *attributes, domain=_DOMAIN)


def _kernel_blocks(kernel: str, blocked: str) -> Iterator[_Node]:
    """(channels, 1, kh, kw), of which the first is what is cut into blocks.

    It is moved to where the runtime looks for channels, and back.
    """
    swap = _attribute("perm", _TYPE_INTS, *(number(_ATTRIBUTE_INTS, axis) for axis in (1, 0, 2, 3)))
    yield _node("Transpose", [kernel], f"{blocked}.1", swap)
    yield _node("ReorderInput", [f"{blocked}.1"], f"{blocked}.2", domain=_DOMAIN)
    yield _node("Transpose", [f"{blocked}.2"], blocked, swap)


def _node(
    operator: str, inputs: Sequence[str], output: str, *attributes: Field, domain: str = ""
) -> _Node:
    named = [*(text(_INPUT, name) for name in inputs), text(_OUTPUT, output), text(_NAME, output)]
    return _Node(
        message(
            _GRAPH_NODE,
            *named,
            text(_OPERATOR, operator),
            *attributes,
            text(_NODE_DOMAIN, domain),
        )
    )


def _integer(name: str, value: int) -> Field:
    return _attribute(name, _TYPE_INT, number(_ATTRIBUTE_INT, value))


def _attribute(name: str, kind: int, *values: Field) -> Field:
    return message(_ATTRIBUTE, text(_ATTRIBUTE_NAME, name), *values, number(_ATTRIBUTE_TYPE, kind))
