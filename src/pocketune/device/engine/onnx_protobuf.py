"""Reading and writing ONNX files at the level of protobuf's wire format.

A device that only joins two graphs and adds constants needs neither the onnx package nor a
schema: a message is a sequence of numbered fields, and what is not looked into is carried over
byte by byte. Field numbers are those of onnx.proto3 (github.com/onnx/onnx), the encoding is at
protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

FLOAT32, UINT8 = 1, 2
"""Element types of a tensor."""

Buffer = bytes | memoryview


class ProtobufError(ValueError):
    """The bytes are not a protobuf message."""


@dataclass(frozen=True)
class Field:
    """One field of a message: an integer for a varint, else its bytes."""

    number: int
    wire: int
    value: int | Buffer

    @property
    def text(self) -> str:
        """The value of a string."""
        return bytes(self.buffer).decode()

    @property
    def buffer(self) -> Buffer:
        """The value of a string, a message or a fixed-width number."""
        if isinstance(self.value, int):
            raise ProtobufError(f"field {self.number} is a number, not bytes")
        return self.value


def parse(message: Buffer) -> Iterator[Field]:
    """The fields of a message in their order; values are views into it.

    Raises:
        ProtobufError: The message is cut off or malformed.
    """
    data = memoryview(message)
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, position = _varint(data, position)
            yield Field(number, wire, value)
            continue
        if wire == BYTES:
            length, position = _varint(data, position)
        elif wire in (FIXED32, FIXED64):
            length = 4 if wire == FIXED32 else 8
        else:
            raise ProtobufError(f"unknown wire type {wire}")
        if position + length > len(data):
            raise ProtobufError("cut off in the middle of a field")
        yield Field(number, wire, data[position : position + length])
        position += length


_GRAPH, _NODE, _INITIALIZER = 7, 1, 5


class GraphSize(NamedTuple):
    """Bytes of a model's initializers, of the largest of them, and the number of its nodes."""

    weights: int
    largest: int
    nodes: int


def graph_size(source: Path | bytes) -> GraphSize:
    """How large a model is; a file is not read whole.

    Raises:
        ProtobufError: It is not a model.
    """
    model = parse(opened(source))
    fields = [field for part in model if part.number == _GRAPH for field in parse(part.buffer)]
    weights = [len(field.buffer) for field in fields if field.number == _INITIALIZER]
    nodes = sum(field.number == _NODE for field in fields)
    return GraphSize(sum(weights), max(weights, default=0), nodes)


def opened(source: Path | bytes) -> Buffer:
    """The bytes of a message; those of a file take memory only while they are read."""
    if isinstance(source, bytes):
        return source
    with source.open("rb") as file:
        return memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))


def serialize(fields: Iterable[Field]) -> bytes:
    """The message made of these fields."""
    return b"".join(pieces(fields))


def pieces(fields: Iterable[Field]) -> list[Buffer]:
    """The same in pieces: large values are not copied."""
    parts: list[Buffer] = []
    for field in fields:
        parts.append(_encode(field.number << 3 | field.wire))
        if isinstance(field.value, int):
            parts.append(_encode(field.value))
            continue
        if field.wire == BYTES:
            parts.append(_encode(len(field.value)))
        parts.append(field.value)
    return parts


def number(field: int, value: int) -> Field:
    """An integer field, not negative."""
    return Field(field, VARINT, value)


def text(field: int, value: str) -> Field:
    """A string field."""
    return Field(field, BYTES, value.encode())


def message(field: int, *fields: Field) -> Field:
    """A field that is itself a message."""
    return Field(field, BYTES, serialize(fields))


def in_pieces(field: int, fields: Iterable[Field]) -> list[Buffer]:
    """A field that is itself a message, in pieces."""
    inside = pieces(fields)
    return [_encode(field << 3 | BYTES), _encode(sum(map(len, inside))), *inside]


def tensor(field: int, name: str, values: NDArray[np.float32]) -> Field:
    """A TensorProto of float32 values."""
    raw = np.asarray(values, dtype="<f4").tobytes()
    dims = (number(1, size) for size in values.shape)
    return message(field, *dims, number(2, FLOAT32), text(8, name), Field(9, BYTES, raw))


def value_info(field: int, name: str, element: int, shape: Iterable[int | str]) -> Field:
    """A ValueInfoProto: name, element type and shape of a graph's input or output.

    Sizes that are texts are symbols for what is only known when the graph runs.
    """
    dims = (message(1, number(1, n) if isinstance(n, int) else text(2, n)) for n in shape)
    tensor_type = message(1, number(1, element), message(2, *dims))
    return message(field, text(1, name), message(2, tensor_type))


def metadata(field: int, entries: Mapping[str, str]) -> Iterator[Field]:
    """A map of strings, as one StringStringEntryProto for each of them."""
    for key, value in entries.items():
        yield message(field, text(1, key), text(2, value))


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ProtobufError("cut off in the middle of a number")
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7


def _encode(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
