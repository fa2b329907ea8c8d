"""Depthwise convolutions of the step graph in the runtime's own blocked layout.

A kit says `Conv`, which runs everywhere. Of a convolution whose kernel is a constant the runtime
itself makes one over blocks of channels, which for depthwise kernels is five to twenty times as
fast; here kernels are inputs, as they are trained, and the same is done when the graph is opened.
The compiler gives the convolutions for which it pays a name that begins with `DEPTHWISE`.
"""

from collections.abc import Iterator
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

LARGEST_BLOCK = 16
"""Channels of a block, at most; it depends on the processor."""

_DOMAIN = "com.microsoft.nchwc"

# Field numbers of onnx.proto3.
_MODEL_GRAPH, _MODEL_OPSET, _GRAPH_NODE = 7, 8, 1
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
    parts, found = pieces([domain]), 0
    for part in parse(opened(model)):
        if part.number == _MODEL_GRAPH:
            given = list(parse(part.buffer))
            fields = [made for field in given for made in _blocked(field)]
            found += len(fields) - len(given)
            parts += in_pieces(_MODEL_GRAPH, fields)
        else:
            parts += pieces([part])
    return b"".join(parts) if found else None


def _blocked(field: Field) -> Iterator[Field]:
    """A field of the graph, or the nodes that take its place."""
    node = list(parse(field.buffer)) if field.number == _GRAPH_NODE else []
    name = next((part.text for part in node if part.number == _NAME), "")
    if not name.startswith(DEPTHWISE):
        yield field
        return
    x, kernel, *bias = (part.text for part in node if part.number == _INPUT)
    (output,) = (part.text for part in node if part.number == _OUTPUT)
    attributes = [part for part in node if part.number == _ATTRIBUTE]
    x_blocked, kernel_blocked = f"{name}.x", f"{name}.kernel"
    # (channels, 1, kh, kw), of which the first is what is cut into blocks: it is moved to where
    # the runtime looks for channels, and back
    swap = _integers("perm", [1, 0, 2, 3])
    yield _node("ReorderInput", [x], x_blocked, domain=_DOMAIN)
    yield _node("Transpose", [kernel], f"{kernel_blocked}.1", swap)
    yield _node("ReorderInput", [f"{kernel_blocked}.1"], f"{kernel_blocked}.2", domain=_DOMAIN)
    yield _node("Transpose", [f"{kernel_blocked}.2"], kernel_blocked, swap)
    inputs = [x_blocked, kernel_blocked, *bias]
    yield _node("Conv", inputs, f"{name}.y", *attributes, domain=_DOMAIN)
    channels = _integer("channels", _groups(attributes))
    yield _node("ReorderOutput", [f"{name}.y"], output, channels, domain=_DOMAIN)


def _groups(attributes: list[Field]) -> int:
    for attribute in attributes:
        parts = {part.number: part for part in parse(attribute.buffer)}
        if parts[_ATTRIBUTE_NAME].text == "group":
            groups = parts[_ATTRIBUTE_INT].value
            assert isinstance(groups, int)
            return groups
    return 1


def _node(
    operator: str, inputs: list[str], output: str, *attributes: Field, domain: str = ""
) -> Field:
    named = [*(text(_INPUT, name) for name in inputs), text(_OUTPUT, output), text(_NAME, output)]
    return message(
        _GRAPH_NODE, *named, text(_OPERATOR, operator), *attributes, text(_NODE_DOMAIN, domain)
    )


def _integer(name: str, value: int) -> Field:
    kind = number(_ATTRIBUTE_TYPE, _TYPE_INT)
    return message(_ATTRIBUTE, text(_ATTRIBUTE_NAME, name), number(_ATTRIBUTE_INT, value), kind)


def _integers(name: str, values: list[int]) -> Field:
    listed = (number(_ATTRIBUTE_INTS, value) for value in values)
    kind = number(_ATTRIBUTE_TYPE, _TYPE_INTS)
    return message(_ATTRIBUTE, text(_ATTRIBUTE_NAME, name), *listed, kind)
