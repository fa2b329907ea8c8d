"""Joining the two graphs of an inference into one, with the trained values as constants."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pocketune.device.engine.onnx_protobuf import (
    BYTES,
    FLOAT32,
    UINT8,
    Buffer,
    Field,
    ProtobufError,
    message,
    metadata,
    number,
    parse,
    serialize,
    tensor,
    text,
    value_info,
)

# Field numbers of onnx.proto3.
_MODEL_IR_VERSION, _MODEL_PRODUCER, _MODEL_GRAPH = 1, 2, 7
_MODEL_OPSET, _MODEL_METADATA, _MODEL_FUNCTIONS = 8, 14, 25
_GRAPH_NODE, _GRAPH_NAME, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT = 1, 2, 5, 11, 12
_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_ATTRIBUTE = 1, 2, 3, 5
_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS = 6, 11
_TENSOR_NAME, _VALUE_NAME = 8, 1
_OPSET_DOMAIN, _OPSET_VERSION = 1, 2


@dataclass(frozen=True)
class _Graph:
    """What is kept of a model: shapes of intermediate values are left out, runtimes infer them."""

    ir_version: int
    opsets: Mapping[str, int]
    nodes: tuple[Buffer, ...]
    initializers: tuple[Buffer, ...]
    inputs: frozenset[str]

    @property
    def defined(self) -> frozenset[str]:
        """Names of the values that the graph computes or holds."""
        names = {_string(tensor, _TENSOR_NAME) for tensor in self.initializers}
        for node in self.nodes:
            names.update(f.text for f in parse(node) if f.number == _NODE_OUTPUT and f.buffer)
        return frozenset(names)


def merge(
    features: Buffer | None,
    predict: Buffer,
    *,
    values: Mapping[str, NDArray[np.float32]],
    size: int,
    classes: int,
    properties: Mapping[str, str],
) -> bytes:
    """One ONNX model from ``images`` (N, size, size, 3) uint8 to ``logits`` (N, classes) float32.

    Args:
        features: The model from ``images`` to ``features``, or None where there is none.
        predict: The model from ``features`` (or ``images``) and trained values to ``logits``.
        values: The trained values by input name, which become constants of the model.
        size: Side of the images.
        classes: Number of classes.
        properties: Metadata of the model.

    Raises:
        ValueError: The models are damaged, need different versions of the same operators, or
            ``values`` lacks an input.
    """
    second = _read(predict)
    first = _read(features) if features is not None else None
    parts = [second] if first is None else [_apart(first, second), second]
    missing = second.inputs - {*values, "images", "features"}
    if missing:
        raise ValueError(f"there is no value for the input {min(missing)}")
    graph = [
        *(Field(_GRAPH_NODE, BYTES, node) for part in parts for node in part.nodes),
        text(_GRAPH_NAME, "pocketune"),
        *(Field(_GRAPH_INITIALIZER, BYTES, t) for part in parts for t in part.initializers),
        *(tensor(_GRAPH_INITIALIZER, n, values[n]) for n in sorted(second.inputs & set(values))),
        value_info(_GRAPH_INPUT, "images", UINT8, ["N", size, size, 3]),
        value_info(_GRAPH_OUTPUT, "logits", FLOAT32, ["N", classes]),
    ]
    opsets = (
        message(_MODEL_OPSET, text(_OPSET_DOMAIN, domain), number(_OPSET_VERSION, version))
        for domain, version in _common_opsets(parts).items()
    )
    return serialize(
        [
            number(_MODEL_IR_VERSION, max(part.ir_version for part in parts)),
            text(_MODEL_PRODUCER, "pocketune"),
            *opsets,
            *metadata(_MODEL_METADATA, properties),
            message(_MODEL_GRAPH, *graph),
        ]
    )


def _read(model: Buffer) -> _Graph:
    fields = list(parse(model))
    if any(field.number == _MODEL_FUNCTIONS for field in fields):
        raise ProtobufError("models with functions of their own cannot be joined")
    graphs = [field.buffer for field in fields if field.number == _MODEL_GRAPH]
    if len(graphs) != 1:
        raise ProtobufError("not an ONNX model: it holds no graph")
    opsets = [field.buffer for field in fields if field.number == _MODEL_OPSET]
    graph = list(parse(graphs[0]))
    return _Graph(
        ir_version=max(_integer(f) for f in fields if f.number == _MODEL_IR_VERSION),
        opsets={_string(o, _OPSET_DOMAIN): _opset_version(o) for o in opsets},
        nodes=tuple(f.buffer for f in graph if f.number == _GRAPH_NODE),
        initializers=tuple(f.buffer for f in graph if f.number == _GRAPH_INITIALIZER),
        inputs=frozenset(_string(f.buffer, _VALUE_NAME) for f in graph if f.number == _GRAPH_INPUT),
    )


def _apart(first: _Graph, second: _Graph) -> _Graph:
    """The first graph with its inner values renamed, so that none is called like one of the second.

    What the two share, ``images`` and ``features``, keeps its name.
    """
    inner = first.defined - {"features"}
    taken = second.defined | second.inputs
    prefix = "features/"
    while any(prefix + name in taken for name in inner):
        prefix += "_/"
    names = {name: prefix + name for name in inner}
    return _Graph(
        first.ir_version,
        first.opsets,
        tuple(_rename_node(node, names, prefix) for node in first.nodes),
        tuple(_replace(t, _TENSOR_NAME, names) for t in first.initializers),
        first.inputs,
    )


def _rename_node(node: Buffer, names: Mapping[str, str], prefix: str) -> bytes:
    return serialize(_renamed(field, names, prefix) for field in parse(node))


def _renamed(field: Field, names: Mapping[str, str], prefix: str) -> Field:
    if field.number in (_NODE_INPUT, _NODE_OUTPUT):
        return text(field.number, names.get(field.text, field.text))
    if field.number == _NODE_NAME:
        return text(_NODE_NAME, prefix + field.text)
    if field.number == _NODE_ATTRIBUTE:
        _refuse_subgraph(field.buffer)
    return field


def _refuse_subgraph(attribute: Buffer) -> None:
    """Names inside of a control-flow operator's graphs would need renaming as well."""
    if any(f.number in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS) for f in parse(attribute)):
        raise ProtobufError("models with control flow cannot be joined")


def _replace(content: Buffer, name_field: int, names: Mapping[str, str]) -> bytes:
    return serialize(
        text(f.number, names[f.text]) if f.number == name_field else f for f in parse(content)
    )


def _common_opsets(parts: Collection[_Graph]) -> dict[str, int]:
    common: dict[str, int] = {}
    for part in parts:
        for domain, version in part.opsets.items():
            if common.setdefault(domain, version) != version:
                raise ValueError(
                    f"the graphs need versions {common[domain]} and {version} of the operators "
                    f"of {domain or 'ai.onnx'!r}"
                )
    return common


def _opset_version(opset: Buffer) -> int:
    return next(_integer(field) for field in parse(opset) if field.number == _OPSET_VERSION)


def _string(content: Buffer, field_number: int) -> str:
    return next((field.text for field in parse(content) if field.number == field_number), "")


def _integer(field: Field) -> int:
    if not isinstance(field.value, int):
        raise ProtobufError(f"field {field.number} is not a number")
    return field.value
