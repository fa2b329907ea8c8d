"""An ONNX file as nodes on data and values that never change.

Whatever does not depend on the pixels is a constant: weights, shapes, and what exporters compute
from both. Their values come from running the file once, so that no operator on shapes has to be
understood here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from pocketune.errors import PocketuneError
from pocketune.onnx_import.rounding import without_rounding
from pocketune.onnx_import.values import Array, counted_sides, run_twice

OLDEST = 7
"""The first opset in which a dropout or a norm without a mode is one of inference."""
_SHAPELESS = {"Shape", "Size"}
"""Operators whose result does not depend on the pixels, whatever they read."""
_INTEGERS = ("QLinear", "QGemm", "QAttention", "ConvInteger", "MatMulInteger", "DynamicQuantize")
"""What the names of operators on integers begin with."""


@dataclass(frozen=True)
class Node:
    """An operator that reads data.

    Attributes:
        kind: The operator's name.
        data: Names of the inputs that depend on the pixels, in order.
        inputs: Names of all inputs; empty for one that is left out.
        output: Name of its one output.
        attributes: Its attributes.
        where: Its name in the file, for messages.
    """

    kind: str
    data: tuple[str, ...]
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any]
    where: str


@dataclass(frozen=True)
class OnnxFile:
    """What a file computes from images.

    Attributes:
        path: The file.
        input: Name of the images.
        output: Name of the class scores.
        channels_last: Whether the images are (N, H, W, 3), as TensorFlow has them.
        size: Side of the images.
        nodes: The operators on data, in an order in which they can run.
        values: Every constant, and every result for the images of the first run, by name.
        images: These images, (N, 3, size, size).
        scaled: For each value whose shape depends on the number of images, how often each of its
            sides counts them; 0 for a side that does not.
        is_fixed: Whether the file takes batches of one size alone; `scaled` is a guess then.
        opset: Version of the operators.
    """

    path: Path
    input: str
    output: str
    channels_last: bool
    size: int
    nodes: tuple[Node, ...]
    values: Mapping[str, Array]
    images: Array
    scaled: Mapping[str, tuple[int, ...]]
    is_fixed: bool
    opset: int

    @property
    def scores(self) -> Array:
        """The file's own output for `images`."""
        return self.values[self.output]

    @property
    def fixed_batch(self) -> str:
        """An error message for shapes that count the images, and what to do."""
        return (
            f"{self.path} has shapes for a batch of {len(self.images)} inside; export it again "
            "with two images as the sample and a dynamic batch: dynamic_shapes=({0: 'batch'},) of "
            "torch.onnx.export, or with dynamo=False input_names=['images'] and "
            "dynamic_axes={'images': {0: 'batch'}}"
        )

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value without its first side, that of the batch."""
        return tuple(self.values[name].shape[1:])

    def counts(self, name: str) -> tuple[int, ...]:
        """How often each side of a value counts the images of a batch; 0 where it does not."""
        return self.scaled.get(name, (0,) * self.values[name].ndim)

    def once(self, name: str) -> Array:
        """A value that is the same for each image, for one of them."""
        first = tuple(slice(1) if count else slice(None) for count in self.counts(name))
        return self.values[name][first]


def read_file(path: Path, size: int) -> OnnxFile:
    """Read a network from an ONNX file and run it once, without rounding activations to 8 bits.

    Args:
        path: The file; weights beside it are found, too.
        size: Side of the images, for a file that leaves it open.

    Raises:
        PocketuneError: The file cannot be read, is too old or too new, has control flow,
            operators on integers, several inputs or outputs, images of another size, or the
            runtime refuses it.
    """
    model = without_rounding(_read(path))
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [each for each in graph.input if each.name not in constants]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise PocketuneError(
            f"{path} has {len(inputs)} inputs and {len(graph.output)} outputs; export a network of "
            "one input, the images, and one output, the class scores"
        )
    shape, channels_last = _fit(inputs[0], path, size)
    images = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    images, values, more = run_twice(model, inputs[0], images)
    scaled = counted_sides(model, inputs[0].name, values, more)
    output = graph.output[0].name
    nodes = _needed(_data_nodes(model, inputs[0].name, path, values), output)
    if nodes and nodes[-1].kind in ("Softmax", "LogSoftmax"):  # the loss has its own
        output, nodes = nodes[-1].data[0], nodes[:-1]
    if values[output].dtype != np.float32 or values[output].shape[0] != len(images):
        raise PocketuneError(
            f"{path} gives no float32 class scores for each image; export the network without what "
            "follows them, such as an ArgMax"
        )
    return OnnxFile(
        path=path,
        input=inputs[0].name,
        output=output,
        channels_last=channels_last,
        size=size,
        nodes=tuple(nodes),
        values=values,
        images=images.transpose(0, 3, 1, 2) if channels_last else images,
        scaled=scaled,
        is_fixed=more is None,
        opset=_opset(model),
    )


def _read(path: Path) -> onnx.ModelProto:
    if not path.is_file():
        raise PocketuneError(f"there is no file {path}")
    try:
        model = onnx.load(path)
        _check_opset(model, path)
        onnx.checker.check_model(model)
    except PocketuneError:
        raise
    except Exception as error:  # protobuf's, onnx's and the system's, without a common base
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise PocketuneError(f"{path} is not an ONNX file that can be read: {reason[0]}") from error
    for node in model.graph.node:
        if any(attribute.type == onnx.AttributeProto.GRAPH for attribute in node.attribute):
            raise PocketuneError(
                f"{path} has control flow, {node.op_type} {node.name}; export a network whose "
                "operators always run"
            )
        if node.op_type.startswith(_INTEGERS):
            raise PocketuneError(
                f"{path} computes with integers, {node.op_type} {node.name}; give the network "
                "before it was quantized, or quantize it in the QDQ format"
            )
    return model


def _opset(model: onnx.ModelProto) -> int:
    return max((each.version for each in model.opset_import if not each.domain), default=OLDEST)


def _check_opset(model: onnx.ModelProto, path: Path) -> None:
    version, newest = _opset(model), onnx.defs.onnx_opset_version()
    if version < OLDEST:
        raise PocketuneError(
            f"{path} has operators of opset {version}; export it again with opset 11 or newer"
        )
    if version > newest:
        raise PocketuneError(
            f"{path} has operators of opset {version}, and the installed onnx knows those up to "
            f"{newest}; export it again with opset 20, or update onnx and onnxruntime"
        )


def _fit(images: onnx.ValueInfoProto, path: Path, size: int) -> tuple[list[int], bool]:
    """The shape of the first images, and whether channels come last."""
    kind = images.type.tensor_type
    sides = [side.dim_value or None for side in kind.shape.dim]
    if kind.elem_type == TensorProto.UINT8:
        raise PocketuneError(
            f"{path} takes images of 8 bits, as the exports of runs do: give the run itself as "
            "the kit to train on from, or export the network with float32 images as its one input"
        )
    last = len(sides) == 4 and sides[3] == 3 and sides[1] != 3
    if kind.elem_type != TensorProto.FLOAT or len(sides) != 4 or (sides[3 if last else 1] != 3):
        raise PocketuneError(
            f"{path} does not take float32 images of three channels: export the network with "
            "these as its one input"
        )
    fixed = [side for side in (sides[1:3] if last else sides[2:]) if side]
    if set(fixed) - {size}:
        own = fixed[0]
        remedy = f"give size={own}" if {*fixed} == {own} else "export it with square images"
        given = f"{own} x {fixed[-1]}"
        raise PocketuneError(
            f"{path} takes images of {given} pixels, not {size} x {size}: {remedy}"
        )
    batch = sides[0] or 2
    shape = [batch, size, size, 3] if last else [batch, 3, size, size]
    return shape, last


def _data_nodes(
    model: onnx.ModelProto, images: str, path: Path, values: Mapping[str, Array]
) -> list[Node]:
    """The nodes that read data; all others are known by their values."""
    data, nodes = {images}, []
    read = {name for node in model.graph.node for name in node.input}
    read |= {output.name for output in model.graph.output}
    for place, node in enumerate(model.graph.node):
        reads = tuple(name for name in node.input if name in data)
        if not reads or node.op_type in _SHAPELESS:
            continue
        where = node.name or f"number {place + 1}"
        outputs = [name for name in node.output if name]
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        if node.op_type == "Split":
            nodes += _parts(reads, attributes, outputs, values, where)
            data.update(outputs)
            continue
        outputs = outputs[:1] + [name for name in outputs[1:] if name in read]
        if len(outputs) != 1:
            raise PocketuneError(
                f"{path}: the operator {node.op_type} ({where}) has several outputs, which is "
                "not supported yet"
            )
        data.add(outputs[0])
        nodes.append(Node(node.op_type, reads, tuple(node.input), outputs[0], attributes, where))
    return nodes


def _parts(
    reads: tuple[str, ...],
    attributes: Mapping[str, Any],
    outputs: list[str],
    values: Mapping[str, Array],
    where: str,
) -> list[Node]:
    """A Split as one node for each of its outputs, with the place where that begins."""
    axis, start, parts = int(attributes.get("axis", 0)), 0, []
    for output in outputs:
        count = values[output].shape[axis]
        place = {"axis": axis, "start": start, "count": count}
        parts.append(Node("Split", reads, reads, output, place, where))
        start += count
    return parts


def _needed(nodes: list[Node], output: str) -> list[Node]:
    """The nodes that the output depends on."""
    wanted, kept = {output}, []
    for node in reversed(nodes):
        if node.output in wanted:
            wanted.update(node.data)
            kept.append(node)
    return kept[::-1]
