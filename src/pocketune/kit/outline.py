"""The structure of an ONNX file, read strictly and without its weights.

A graph may come from a stranger, so this is read before the runtime sees the file: a reader of the
protobuf format that knows the fields that Pocketune writes, and refuses all others. It needs no
library and copies no constant.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

# Fields of onnx.proto3 (github.com/onnx/onnx) by number.
_MODEL = {"ir_version": 1, "graph": 7, "opset_import": 8}
_MODEL_TEXTS = (2, 3, 4, 5, 6, 14)  # producer, domain, version, doc_string, metadata_props
_OPSET = {"domain": 1, "version": 2}
_GRAPH = {"node": 1, "name": 2, "initializer": 5, "input": 11, "output": 12}
_GRAPH_TEXTS = (10, 13)  # doc_string, value_info
_NODE = {"input": 1, "output": 2, "name": 3, "op_type": 4, "attribute": 5, "domain": 7}
_NODE_TEXTS = (6, 9)  # doc_string, metadata_props, such as the note of how many a node selects
_ATTRIBUTE = {"name": 1, "t": 5}
_ATTRIBUTE_VALUES = (2, 3, 4, 7, 8, 9, 20)  # numbers, texts, lists of these, and the type
_TENSOR = {
    "dims": 1,
    "data_type": 2,
    "floats": 4,
    "int32s": 5,
    "int64s": 7,
    "raw_data": 9,
    "data_location": 14,
}
_TENSOR_TEXTS = (8, 12)  # name, doc_string
_VALUE = {"name": 1, "type": 2}
_TYPE = {"tensor_type": 1}
_TENSOR_TYPE = {"elem_type": 1, "shape": 2}
_SHAPE = {"dim": 1}
_DIMENSION = {"dim_value": 1, "dim_param": 2}
_DOC_STRING = {"ATTRIBUTE": 13, "VALUE": 3}

ITEM_BYTES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 10: 2}
"""Bytes of an element by ONNX's number of its type: float32, uint8, int8, int32, int64, bool and
float16."""

Field = int | memoryview


@dataclass(frozen=True)
class Value:
    """An input or output of a graph.

    Attributes:
        name: Its name.
        type: ONNX's number of its elements' type.
        shape: Its sizes, None where one is a name; None if it is not declared.
    """

    name: str
    type: int
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class Node:
    """An operator, of a domain."""

    operator: str
    domain: str


@dataclass
class Outline:
    """What an ONNX file declares.

    Attributes:
        ir_version: Version of the file format.
        opsets: Version of the operators by domain.
        nodes: All operators, in order.
        constants: Bytes of each constant.
        inputs: The graph's inputs.
        outputs: Its outputs.
    """

    ir_version: int = 0
    opsets: dict[str, int] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    constants: list[int] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)


def read_outline(data: memoryview) -> Outline:
    """The structure of an ONNX file.

    Args:
        data: All bytes of the file.

    Raises:
        ValueError: The file is damaged, or has a part that no graph of a kit has: subgraphs,
            functions, sparse or external tensors, constants with fewer or more values than their
            shape.
    """
    model = _Message(data, _MODEL, _MODEL_TEXTS)
    outline = Outline(ir_version=model.number("ir_version"))
    for part in model.parts("opset_import", _OPSET):
        outline.opsets[part.text("domain")] = part.number("version")
    for graph in model.parts("graph", _GRAPH, _GRAPH_TEXTS):
        _read_graph(graph, outline)
    return outline


def _read_graph(graph: _Message, outline: Outline) -> None:
    for node in graph.parts("node", _NODE, _NODE_TEXTS):
        outline.nodes.append(Node(node.text("op_type"), node.text("domain")))
        others = (*_ATTRIBUTE_VALUES, _DOC_STRING["ATTRIBUTE"])
        for attribute in node.parts("attribute", _ATTRIBUTE, others):
            outline.constants += map(_tensor_bytes, _tensors(attribute, "t"))
    outline.constants += map(_tensor_bytes, _tensors(graph, "initializer"))
    outline.inputs += map(_value, graph.parts("input", _VALUE, (_DOC_STRING["VALUE"],)))
    outline.outputs += map(_value, graph.parts("output", _VALUE, (_DOC_STRING["VALUE"],)))


def _tensors(message: _Message, name: str) -> Iterator[_Message]:
    return message.parts(name, _TENSOR, _TENSOR_TEXTS)


def _tensor_bytes(tensor: _Message) -> int:
    kind, dims = tensor.number("data_type"), tensor.numbers("dims")
    if kind not in ITEM_BYTES:
        raise ValueError(f"a constant has elements of type {kind}")
    if tensor.number("data_location"):
        raise ValueError("a constant has its values in another file")
    count = math.prod(dims)
    held = tensor.size("raw_data") / ITEM_BYTES[kind]
    held += tensor.count("floats") + tensor.count("int32s") + tensor.count("int64s")
    if min(dims, default=0) < 0 or held != count:
        raise ValueError(f"a constant of shape {dims} has {held:g} values")
    return count * ITEM_BYTES[kind]


def _value(value: _Message) -> Value:
    kind, shape = 0, None
    for type_ in value.parts("type", _TYPE):
        for tensor in type_.parts("tensor_type", _TENSOR_TYPE):
            kind = tensor.number("elem_type")
            for declared in tensor.parts("shape", _SHAPE):
                shape = tuple(map(_size, declared.parts("dim", _DIMENSION)))
    return Value(value.text("name"), kind, shape)


def _size(dim: _Message) -> int | None:
    return dim.number("dim_value") if dim.has("dim_value") else None


class _Message:
    """The fields of a protobuf message by name.

    Args:
        data: The message's bytes.
        known: Number of each field that can be asked for.
        others: Numbers of fields that may be there and do not matter.

    Raises:
        ValueError: The bytes are damaged, or there is another field.
    """

    def __init__(
        self, data: memoryview, known: dict[str, int], others: Collection[int] = ()
    ) -> None:
        self._numbers, self._fields = known, dict[int, list[Field]]()
        for number, value in _fields(data):
            if number in known.values():
                self._fields.setdefault(number, []).append(value)
            elif number not in others:
                raise ValueError(f"it has the unexpected field {number}")

    def has(self, name: str) -> bool:
        """Whether the field is there."""
        return self._numbers[name] in self._fields

    def parts(
        self, name: str, known: dict[str, int], others: Collection[int] = ()
    ) -> Iterator[_Message]:
        """The messages of a repeated field."""
        for value in self._values(name):
            yield _Message(_view(value), known, others)

    def number(self, name: str) -> int:
        """A whole number; 0 if it is missing."""
        value = self._one(name, 0)
        if not isinstance(value, int):
            raise ValueError(f"its {name} is not a number")
        return value

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers, packed or not."""
        found: list[int] = []
        for value in self._values(name):
            found += [value] if isinstance(value, int) else _varints(value)
        return tuple(found)

    def count(self, name: str) -> int:
        """How many numbers a list has, packed or not; floats have 4 bytes each."""
        found = 0
        for value in self._values(name):
            if isinstance(value, int):
                found += 1
            elif name == "floats":
                found += len(value) // 4
            else:
                found += sum(1 for _ in _varints(value))
        return found

    def text(self, name: str) -> str:
        """A text; empty if it is missing."""
        return bytes(_view(self._one(name, memoryview(b"")))).decode()

    def size(self, name: str) -> int:
        """The number of bytes of a field; 0 if it is missing."""
        return len(_view(self._one(name, memoryview(b""))))

    def _values(self, name: str) -> list[Field]:
        return self._fields.get(self._numbers[name], [])

    def _one(self, name: str, default: Field) -> Field:
        values = self._values(name)
        if len(values) > 1:  # readers may differ in which one counts
            raise ValueError(f"it has more than one {name}")
        return values[0] if values else default


def _view(value: Field) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number is where a message should be")
    return value


def _fields(data: memoryview) -> Iterator[tuple[int, Field]]:
    """Number and value of each field of a message, in the protobuf wire format."""
    place, end = 0, len(data)
    while place < end:
        tag, place = _varint(data, place)
        wire = tag & 7
        if wire == 0:
            value, place = _varint(data, place)
            yield tag >> 3, value - (1 << 64) if value >> 63 else value
            continue
        if wire == 2:
            size, place = _varint(data, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"it has a field of the unknown kind {wire}")
        if place + size > end:
            raise ValueError("it ends in the middle of a field")
        yield tag >> 3, data[place : place + size]
        place += size


def _varints(data: memoryview) -> Iterator[int]:
    place = 0
    while place < len(data):
        value, place = _varint(data, place)
        yield value


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    """A number of up to 64 bits, 7 in each byte, and the place behind it."""
    if place < len(data) and data[place] < 128:  # most have one byte
        return data[place], place + 1
    value = shift = 0
    while shift < 64 and place < len(data):
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, place
        shift += 7
    raise ValueError("it ends in the middle of a number")
