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
from pathlib import Path

from pocketune.device.engine.onnx_protobuf import (
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

    It opens where ONNX Runtime has blocked kernels for the processor, and nowhere else. Nodes are
    read twice, one at a time, for all of them at once would take megabytes.

    Raises:
        ProtobufError: It is not a model.
    """
    data = opened(model)
    graphs = [part.buffer for part in parse(data) if part.number == _MODEL_GRAPH]
    moves = _Moves(field for graph in graphs for field in parse(graph))
    if not moves.convolutions:
        return None
    domain = message(_MODEL_OPSET, text(_OPSET_DOMAIN, _DOMAIN), number(_OPSET_VERSION, 1))
    parts = pieces([domain])
    for part in parse(data):
        if part.number == _MODEL_GRAPH:
            parts += in_pieces(_MODEL_GRAPH, [f for g in parse(part.buffer) for f in moves.made(g)])
        else:
            parts += pieces([part])
    return b"".join(parts)


@dataclass(frozen=True)
class _Node:
    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[Field, ...]

    @classmethod
    def read(cls, field: Field) -> _Node:
        texts: dict[int, list[str]] = {n: [] for n in (_NAME, _OPERATOR, _INPUT, _OUTPUT)}
        attributes = []
        for part in parse(field.buffer):
            if part.number in texts:
                texts[part.number].append(part.text)
            elif part.number == _ATTRIBUTE:
                attributes.append(part)
        (operator,), inputs, outputs = texts[_OPERATOR], texts[_INPUT], texts[_OUTPUT]
        name = "".join(texts[_NAME])
        return cls(name, operator, tuple(inputs), tuple(outputs), tuple(attributes))

    @property
    def is_depthwise(self) -> bool:
        """Not so a kernel in 8 bits, which is brought to float under the name of its reader."""
        return self.operator == "Conv" and self.name.startswith(DEPTHWISE)

    def numbers(self, attribute: str) -> tuple[int, ...]:
        """The value or values of an attribute of integers; none where it is not there."""
        for field in self.attributes:
            parts = list(parse(field.buffer))
            if any(part.number == _ATTRIBUTE_NAME and part.text == attribute for part in parts):
                values = (p.value for p in parts if p.number in (_ATTRIBUTE_INT, _ATTRIBUTE_INTS))
                return tuple(value for value in values if isinstance(value, int))
        return ()

    def transposes(self, order: tuple[int, ...]) -> bool:
        return self.operator == "Transpose" and self.numbers("perm") == order


class _Moves:
    """The depthwise convolutions of a graph, and the nodes that move elements around them."""

    def __init__(self, fields: Iterable[Field]) -> None:
        self._first: dict[str, str] = {}  # (N, C, H, W), made of (N, H, W, C)
        self._last: dict[str, str] = {}  # the other way round
        self._reshaped: dict[str, tuple[str, ...]] = {}  # made of a tensor and a shape
        self._reads: Counter[str] = Counter()  # of those and of convolutions
        self.convolutions: dict[str, list[Field]] = {}
        """What takes the place of each, by its output."""
        found: list[_Node] = []
        for field in fields:
            if field.number == _GRAPH_OUTPUT:
                self._count(p.text for p in parse(field.buffer) if p.number == _VALUE_NAME)
            elif field.number == _GRAPH_NODE:
                node = _Node.read(field)
                self._note(node)
                if node.is_depthwise:
                    found.append(node)
        self._turned: set[str] = set()  # made by what takes a convolution's place
        for node in found:
            self.convolutions[node.outputs[0]] = list(self._in_blocks(node))

    def _note(self, node: _Node) -> None:
        self._count(node.inputs)
        output = node.outputs[0]
        self._reads[output] = 0
        if node.transposes(_TO_CHANNELS_FIRST):
            self._first[output] = node.inputs[0]
        elif node.transposes(_TO_CHANNELS_LAST):
            self._last[node.inputs[0]] = output
        elif node.operator == "Reshape":
            self._reshaped[output] = node.inputs
        elif not node.is_depthwise:
            del self._reads[output]

    def _count(self, names: Iterable[str]) -> None:
        self._reads.update(name for name in names if name in self._reads)

    def made(self, field: Field) -> list[Field]:
        """What becomes of a field of the graph: of a move that nothing reads any more, nothing."""
        if field.number != _GRAPH_NODE:
            return [field]
        output = _Node.read(field).outputs[0]
        if output in self.convolutions:
            return self.convolutions[output]
        moved = output in self._first or output in self._reshaped
        unread = moved and not self._reads[output]
        return [] if unread or output in self._turned else [field]

    def _in_blocks(self, node: _Node) -> Iterator[Field]:
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

    def _blocks(self, name: str, blocked: str) -> Field:
        """A map (N, C, H, W) in blocks, straight from (N, H, W, C) where it was made of that."""
        if name not in self._first:
            return _node("ReorderInput", [name], blocked, domain=_DOMAIN)
        self._reads[name] -= 1
        last = _integer("channels_last", 1)
        return _node("ReorderInput", [self._first[name]], blocked, last, domain=_DOMAIN)

    def _reshaped_blocks(self, name: str, blocked: str) -> Iterator[Field]:
        """Of what is a map in another shape: the blocks of both lie in the same order."""
        source, shape = self._reshaped[name]
        self._reads[name] -= 1
        if self._reads[name]:  # it stays, and goes on reading the map
            self._reads[source] += 1
        yield self._blocks(source, f"{blocked}.map")
        yield _node("Reshape", [f"{blocked}.map", shape], blocked)

    def _plain(self, y: str, conv: _Node) -> Field:
        """The convolution's output, as (N, H, W, C) where nothing reads it but a `Transpose`."""
        (output,), (channels,) = conv.outputs, conv.numbers("group")
        attributes = [_integer("channels", channels)]
        if self._reads[output] == 1 and output in self._last:
            output = self._last[output]
            self._turned.add(output)
            attributes.append(_integer("channels_last", 1))
        return _node("ReorderOutput", [y], output, *attributes, domain=_DOMAIN)


def _kernel_blocks(kernel: str, blocked: str) -> Iterator[Field]:
    """(channels, 1, kh, kw), of which the first is what is cut into blocks.

    It is moved to where the runtime looks for channels, and back.
    """
    swap = _attribute("perm", _TYPE_INTS, *(number(_ATTRIBUTE_INTS, axis) for axis in (1, 0, 2, 3)))
    yield _node("Transpose", [kernel], f"{blocked}.1", swap)
    yield _node("ReorderInput", [f"{blocked}.1"], f"{blocked}.2", domain=_DOMAIN)
    yield _node("Transpose", [f"{blocked}.2"], blocked, swap)


def _node(
    operator: str, inputs: Sequence[str], output: str, *attributes: Field, domain: str = ""
) -> Field:
    named = [*(text(_INPUT, name) for name in inputs), text(_OUTPUT, output), text(_NAME, output)]
    return message(
        _GRAPH_NODE, *named, text(_OPERATOR, operator), *attributes, text(_NODE_DOMAIN, domain)
    )


def _integer(name: str, value: int) -> Field:
    return _attribute(name, _TYPE_INT, number(_ATTRIBUTE_INT, value))


def _attribute(name: str, kind: int, *values: Field) -> Field:
    return message(_ATTRIBUTE, text(_ATTRIBUTE_NAME, name), *values, number(_ATTRIBUTE_TYPE, kind))
