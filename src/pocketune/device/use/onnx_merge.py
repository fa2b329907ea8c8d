"""Merge the two graphs of an inference into one, with the trained values as constants.

Protobuf, which ONNX Runtime requires anyway, reads and writes the messages. The schema here is the
part of ONNX's that is changed; protobuf keeps all other fields.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from pocketune.arrays import FloatArray
from pocketune.device.use.dequantize import dequantize_as_products
from pocketune.device.use.lora import fold_lora

# Fields of onnx.proto3 (github.com/onnx/onnx): name, number and type, in a list if repeated.
_SCHEMA: dict[str, tuple[tuple[str, int, Any], ...]] = {
    "Model": (
        ("ir_version", 1, int),
        ("producer_name", 2, str),
        ("graph", 7, "Graph"),
        ("opset_import", 8, ["OperatorSet"]),
        ("metadata_props", 14, ["StringEntry"]),
    ),
    "OperatorSet": (("domain", 1, str), ("version", 2, int)),
    "StringEntry": (("key", 1, str), ("value", 2, str)),
    "Graph": (
        ("node", 1, ["Node"]),
        ("name", 2, str),
        ("initializer", 5, ["Tensor"]),
        ("input", 11, ["ValueInfo"]),
        ("output", 12, ["ValueInfo"]),
    ),
    "Node": (
        ("input", 1, [str]),
        ("output", 2, [str]),
        ("name", 3, str),
        ("op_type", 4, str),
        ("attribute", 5, ["Attribute"]),
    ),
    "Attribute": (
        ("name", 1, str),
        ("i", 3, int),
        ("type", 20, int),
    ),
    "Tensor": (("dims", 1, [int]), ("data_type", 2, int), ("name", 8, str), ("raw_data", 9, bytes)),
    "ValueInfo": (("name", 1, str), ("type", 2, "Type")),
    "Type": (("tensor_type", 1, "TensorType"),),
    "TensorType": (("elem_type", 1, int), ("shape", 2, "Shape")),
    "Shape": (("dim", 1, ["Dimension"]),),
    "Dimension": (("dim_value", 1, int), ("dim_param", 2, str)),
}
_FLOAT32, _UINT8 = 1, 2
_INTEGER = 2  # the type of an attribute


def merge(
    features: bytes | None,
    predict: bytes,
    *,
    values: Mapping[str, NDArray[np.float32]],
    size: int,
    shape: tuple[int, ...],
    properties: Mapping[str, str],
    resizing: tuple[FloatArray, FloatArray] | None = None,
) -> bytes:
    """One ONNX model from `images` (N, size, size, 3) uint8 to `logits` (N, *shape) float32.

    With `resizing`, its output is a class map instead: `classes` (N, H, W) uint8, the class of
    the largest of the resized logits. Shapes of intermediate values are left out, because runtimes
    infer them. Low-rank updates of layers (LoRA) are added to the weights of these layers. Weights
    in 8 bits are written as products, which runtimes compute when they open the file.

    Args:
        features: The model from `images` to `features`; None without a frozen part.
        predict: The model from `features` (or `images`) and trained values to `logits`.
        values: The trained values by input name, which become constants of the model.
        size: Height and width of the images.
        shape: Shape of one image's logits.
        properties: Metadata of the model.
        resizing: Matrices (H, h) and (W, w) that resize logits (N, classes, h, w).

    Raises:
        ValueError: The models are damaged, need different versions of the same operators, or
            `values` lacks an input.
    """
    second = _read(predict)
    parts = [second] if features is None else [_read(features), second]
    if features is not None:
        _rename_apart(parts[0].graph, second.graph)
    inputs = {value.name for value in second.graph.input}
    missing = inputs - {*values, "images", "features"}
    if missing:
        raise ValueError(f"there is no value for the input {min(missing)}")
    merged = _joined(parts, properties)
    graph = merged.graph
    for name in sorted(inputs & set(values)):
        _add_constant(graph, name, values[name])
    graph.input.add(name="images", type=_tensor_type(_UINT8, ["N", size, size, 3]))
    if resizing is None:
        graph.output.add(name="logits", type=_tensor_type(_FLOAT32, ["N", *shape]))
    else:
        _add_class_map(graph, *resizing)
    dequantize_as_products(graph)
    _sweep(graph)  # embeddings are no output here
    fold_lora(graph)
    _sweep(graph)
    serialized: bytes = merged.SerializeToString()
    return serialized


def _joined(parts: Collection[Any], properties: Mapping[str, str]) -> Any:
    """A model of the nodes and constants of all parts, as yet without inputs and outputs."""
    joined = _messages()["Model"](
        ir_version=max(part.ir_version for part in parts),
        producer_name="pocketune",
        opset_import=[{"domain": d, "version": v} for d, v in _common_opsets(parts).items()],
        metadata_props=[{"key": key, "value": value} for key, value in properties.items()],
    )
    joined.graph.name = "pocketune"
    for part in parts:
        joined.graph.node.extend(part.graph.node)
        joined.graph.initializer.extend(part.graph.initializer)
    return joined


def _add_class_map(graph: Any, vertical: FloatArray, horizontal: FloatArray) -> None:
    """Append the class of each pixel, from the largest logit."""
    for name, matrix in (("vertical", vertical), ("horizontal", horizontal.T)):
        _add_constant(graph, f"map/{name}", matrix)
    node = graph.node.add
    node(op_type="MatMul", input=["map/vertical", "logits"], output=["map/high"])
    node(op_type="MatMul", input=["map/high", "map/horizontal"], output=["map/logits"])
    largest = node(op_type="ArgMax", input=["map/logits"], output=["map/largest"])
    cast = node(op_type="Cast", input=["map/largest"], output=["classes"])
    for name, value in (("axis", 1), ("keepdims", 0)):
        largest.attribute.add(name=name, i=value, type=_INTEGER)
    cast.attribute.add(name="to", i=_UINT8, type=_INTEGER)
    sides = (len(vertical), len(horizontal))
    graph.output.add(name="classes", type=_tensor_type(_UINT8, ["N", *sides]))


def _add_constant(graph: Any, name: str, value: NDArray[np.float32]) -> None:
    raw = np.asarray(value, dtype="<f4").tobytes()
    graph.initializer.add(name=name, data_type=_FLOAT32, dims=value.shape, raw_data=raw)


def _read(model: bytes) -> Any:
    try:
        read = _messages()["Model"].FromString(model)
    except DecodeError as error:
        raise ValueError("not an ONNX model: its file is damaged") from error
    if not read.HasField("graph"):
        raise ValueError("not an ONNX model: it holds no graph")
    return read


def _sweep(graph: Any) -> None:
    """Remove nodes and constants that nothing reads."""
    while True:
        read = {name for node in graph.node for name in node.input}
        read |= {value.name for value in graph.output}
        unread = [node for node in graph.node if not read.intersection(node.output)]
        for node in unread:
            graph.node.remove(node)
        if not unread:
            break
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in read]:
        graph.initializer.remove(tensor)


def _rename_apart(first: Any, second: Any) -> None:
    """Rename the inner values of the first graph, so that no name occurs in the second.

    The values that the two share, `images` and `features`, keep their names.
    """
    inner = _defined(first) - {"features"}
    taken = _defined(second) | {value.name for value in second.input}
    prefix = "features/"
    while any(prefix + name in taken for name in inner):
        prefix += "_/"
    for tensor in first.initializer:
        tensor.name = prefix + tensor.name
    for node in first.node:
        node.name = prefix + node.name
        for names in (node.input, node.output):
            names[:] = [prefix + name if name in inner else name for name in names]


def _defined(graph: Any) -> set[str]:
    """Names of the values that a graph computes or holds."""
    computed = {name for node in graph.node for name in node.output if name}
    return computed | {tensor.name for tensor in graph.initializer}


def _common_opsets(parts: Collection[Any]) -> dict[str, int]:
    common: dict[str, int] = {}
    for opset in (opset for part in parts for opset in part.opset_import):
        if common.setdefault(opset.domain, opset.version) != opset.version:
            raise ValueError(
                f"the graphs need versions {common[opset.domain]} and {opset.version} of the "
                f"operators of {opset.domain or 'ai.onnx'!r}"
            )
    return common


def _tensor_type(element: int, shape: Iterable[int | str]) -> dict[str, Any]:
    """A tensor type; sizes that are strings are symbols, known only when the graph runs."""
    dims = [{"dim_value" if isinstance(n, int) else "dim_param": n} for n in shape]
    return {"tensor_type": {"elem_type": element, "shape": {"dim": dims}}}


@cache
def _messages() -> dict[str, Any]:
    """A protobuf class for each message of the schema."""
    field = descriptor_pb2.FieldDescriptorProto
    types = {int: field.TYPE_INT64, str: field.TYPE_STRING, bytes: field.TYPE_BYTES}
    file = descriptor_pb2.FileDescriptorProto(name="onnx.proto", package="onnx", syntax="proto2")
    for message, fields in _SCHEMA.items():
        described = file.message_type.add(name=message)
        for name, number, kind in fields:
            label = field.LABEL_REPEATED if isinstance(kind, list) else field.LABEL_OPTIONAL
            kind = kind[0] if isinstance(kind, list) else kind
            added = described.field.add(name=name, number=number, label=label)
            added.type = types.get(kind, field.TYPE_MESSAGE)
            if isinstance(kind, str):
                added.type_name = f".onnx.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    classes = message_factory.GetMessageClass
    return {name: classes(pool.FindMessageTypeByName(f"onnx.{name}")) for name in _SCHEMA}
