"""What the graphs of a kit may hold, checked before the runtime sees them.

A kit may come from a stranger. Its graphs hold tensors and operators that compute tensors from
tensors: nothing that chooses what runs (subgraphs, functions), reads another file (external data)
or works on text. Their inputs and outputs are those that the manifest names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from pocketune.kit.manifest import KitError, Manifest
from pocketune.kit.names import BLOCKED_STEP, FEATURES, PREDICT
from pocketune.kit.outline import Outline, Value, read_outline

OPERATORS = frozenset(
    """
    Abs Add And ArgMax ArgMin AveragePool BatchNormalization BitwiseAnd BitwiseOr BitShift Cast
    Ceil Clip Compress Concat Constant Conv ConvInteger ConvTranspose Cos CumSum DepthToSpace
    DequantizeLinear Div Einsum Elu Equal Erf Exp Expand Flatten Floor Gather GatherElements
    GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GroupNormalization
    HardSigmoid HardSwish Identity InstanceNormalization LayerNormalization LeakyRelu Less
    LessOrEqual Log LogSoftmax MatMul MatMulInteger Max MaxPool Mean Min Mod Mul Neg Not OneHot Or
    PRelu Pad Pow QLinearConv QLinearMatMul QuantizeLinear Range Reciprocal ReduceL2 ReduceMax
    ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize Round
    ScatterElements ScatterND Shape Sigmoid Sign Sin Size Slice Softmax Softplus SpaceToDepth Split
    Sqrt Squeeze Sub Sum Tanh Tile TopK Transpose Trilu Unsqueeze Where Xor
    """.split()  # noqa: SIM905
)
"""Operators of ONNX that a graph may have."""
BLOCKED_OPERATORS = frozenset({"Conv", "ReorderInput", "ReorderOutput"})
"""Operators of ONNX Runtime's blocked layout, in the blocked step alone."""
BLOCKED_DOMAIN = "com.microsoft.nchwc"
FUSED_OPERATORS = frozenset({"FusedConv", "FusedMatMul"})
"""Operators of ONNX Runtime that do the work of two, in the blocked step alone."""
FUSED_DOMAIN = "com.microsoft"
OPSETS = range(13, 24)
"""Versions of ONNX's operators that a graph may ask for."""
IR_VERSIONS = range(4, 14)
MOST_NODES = 100_000
"""Most operators, and most constants, of a graph."""

TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10}


Declared = dict[str, tuple[str, tuple[int | None, ...]]]
"""Type and shape by name; None in a shape is any size."""


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a graph, by name.

    Attributes:
        inputs: Those that the graph may have.
        outputs: Those that it must have; a type of None is any.
    """

    inputs: Declared
    outputs: Mapping[str, tuple[str | None, tuple[int | None, ...]]]


def check_graph(name: str, data: memoryview, manifest: Manifest, where: str) -> None:
    """Check a graph of a kit.

    Args:
        name: Its file's name.
        data: All bytes of the file.
        manifest: The kit's manifest.
        where: The file, for messages.

    Raises:
        KitError: The graph is damaged, holds something that no graph of a kit has, or its inputs
            and outputs are not those of the manifest.
    """
    try:
        outline = read_outline(data)
    except ValueError as error:
        raise KitError(f"{where} is not a graph that a kit may hold: {error}") from error
    domains = {"": OPERATORS}
    if name == BLOCKED_STEP:
        domains |= {BLOCKED_DOMAIN: BLOCKED_OPERATORS, FUSED_DOMAIN: FUSED_OPERATORS}
    problems = chain(
        _strange_parts(outline, domains), _differences(outline, signature(manifest, name))
    )
    for problem in problems:
        raise KitError(f"{where} is not a graph that a kit may hold: {problem}")


def signature(manifest: Manifest, name: str) -> Signature:
    """The inputs and outputs of a kit's graph."""
    classes = len(manifest.classes)
    images: Declared = {"images": ("uint8", (None, manifest.size, manifest.size, 3))}
    if name == FEATURES:
        return Signature(images, {"features": ("float32", (None, *(manifest.features or ())))})
    start = images
    if manifest.features is not None:
        start = {"features": ("float32", (None, *manifest.features))}
    head = set(manifest.task.head)
    values = {
        spec.name: (None, *spec.shape[1:]) if spec.name in head else spec.shape
        for spec in (*manifest.parameters, *manifest.statistics)
    }
    floats = {key: ("float32", shape) for key, shape in values.items()}
    if name == PREDICT:
        outputs = {"logits": (None, *manifest.task.output_shape(manifest.size, classes))}
        if manifest.embeddings is not None:
            outputs["embeddings"] = (None, manifest.embeddings)
        return Signature(
            {**start, **floats}, {key: ("float32", shape) for key, shape in outputs.items()}
        )
    label = manifest.task.label_shape(manifest.size, classes)
    extra = {key: array.shape for key, array in manifest.task.step_inputs(classes).items()}
    extra |= {spec.name: spec.shape for spec in manifest.masks}
    return Signature(
        {
            **start,
            **floats,
            "labels": (np.dtype(manifest.task.label_type).name, (manifest.micro_batch, *label)),
            **{key: ("float32", shape) for key, shape in extra.items()},
        },
        {
            "loss": ("float32", ()),
            **dict.fromkeys(manifest.task.step_metrics, (None, ())),
            **{f"grad.{spec.name}": floats[spec.name] for spec in manifest.parameters},
            **{f"new.{spec.name}": floats[spec.name] for spec in manifest.statistics},
        },
    )


def _strange_parts(outline: Outline, domains: Mapping[str, frozenset[str]]) -> Iterator[str]:
    if outline.ir_version not in IR_VERSIONS:
        yield f"its format is version {outline.ir_version}"
    for domain, version in outline.opsets.items():
        if domain not in domains:
            yield f"it asks for operators of {domain!r}"
        elif not domain and version not in OPSETS:
            yield f"it asks for version {version} of the operators, not {OPSETS[0]} to {OPSETS[-1]}"
    if max(len(outline.nodes), len(outline.constants)) > MOST_NODES:
        yield f"it has more than {MOST_NODES:,} operators or constants"
    for node in outline.nodes:
        if node.operator not in domains.get(node.domain, ()):
            yield f"it has the operator {node.domain + '.' if node.domain else ''}{node.operator}"


def _differences(outline: Outline, expected: Signature) -> Iterator[str]:
    """What of its inputs and outputs is not as the manifest says."""
    for kind, values, specs in (
        ("input", outline.inputs, expected.inputs),
        ("output", outline.outputs, expected.outputs),
    ):
        found = {value.name for value in values}
        if len(found) < len(values):
            yield f"it names an {kind} twice"
        for value in values:
            if value.name not in specs:
                yield f"its {kind} {value.name} is not in the manifest"
            elif not _agrees(value, *specs[value.name]):
                yield f"its {kind} {value.name} is not of the type and shape of the manifest"
    for name in set(expected.outputs) - {value.name for value in outline.outputs}:
        yield f"it lacks the output {name}"


def _agrees(value: Value, kind: str | None, shape: tuple[int | None, ...]) -> bool:
    if kind is not None and value.type != TYPES[kind]:
        return False
    if value.shape is None:
        return True
    return len(value.shape) == len(shape) and all(
        have is None or want is None or have == want
        for have, want in zip(value.shape, shape, strict=True)
    )
