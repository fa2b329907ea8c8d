"""The strict reader of graphs agrees with the onnx package, and refuses what kits may not hold."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from pocketune.kit.bundled import kit_path, list_kits
from pocketune.kit.kit import Kit
from pocketune.kit.names import GRAPHS
from pocketune.kit.outline import Node, Outline, Value, read_outline

from ..device.tiny_kit import TinyKit

STEP = TinyKit().files()["step.onnx"]


def by_onnx(content: bytes) -> Outline:
    model = onnx.load_from_string(content)
    graph = model.graph

    def value(info: onnx.ValueInfoProto) -> Value:
        tensor = info.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
        shape = tuple(dims) if tensor.HasField("shape") else None
        return Value(info.name, tensor.elem_type, shape)

    constants = [a.t for node in graph.node for a in node.attribute if a.HasField("t")]
    return Outline(
        ir_version=model.ir_version,
        opsets={each.domain: each.version for each in model.opset_import},
        nodes=[Node(node.op_type, node.domain) for node in graph.node],
        constants=[numpy_helper.to_array(t).nbytes for t in (*constants, *graph.initializer)],
        inputs=[value(each) for each in graph.input],
        outputs=[value(each) for each in graph.output],
    )


@pytest.mark.parametrize("kit", [path.name for path in map(kit_path, list_kits())])
def test_it_agrees_with_the_onnx_package(kit: str) -> None:
    opened = Kit.open(kit_path(kit.removesuffix(".zip")))
    for name in GRAPHS:
        if name in opened.manifest.files:
            content = opened.read(name)
            assert read_outline(memoryview(content)) == by_onnx(content)


def with_step(change: object) -> bytes:
    model = onnx.load_from_string(STEP)
    change(model)  # type: ignore[operator]
    content: bytes = model.SerializeToString()
    return content


def add_branch(model: onnx.ModelProto) -> None:
    branch = helper.make_graph([], "b", [], [helper.make_tensor_value_info("v", 1, None)])
    model.graph.node.append(
        helper.make_node("If", ["yes"], ["w"], then_branch=branch, else_branch=branch)
    )


def add_branches(model: onnx.ModelProto) -> None:
    branch = helper.make_graph([], "b", [], [])
    model.graph.node[0].attribute.append(helper.make_attribute("branches", [branch]))


def point_outside(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.external_data.add(key="location", value="../../etc/passwd")
    tensor.data_location = TensorProto.EXTERNAL


def claim_more(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [1 << 40]


def claim_negative(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [-1, -1]


def as_texts(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(helper.make_tensor("t", TensorProto.STRING, [1], [b"text"]))


def add_sparse(model: onnx.ModelProto) -> None:
    model.graph.sparse_initializer.add()


def add_sequence(model: onnx.ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [1]))


def only_say_outside(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL


REFUSED = {
    "a subgraph": add_branch,
    "a list of subgraphs": add_branches,
    "functions": lambda model: model.functions.add(),
    "training information": lambda model: model.training_info.add(),
    "external data": point_outside,
    "external data without a place": only_say_outside,
    "a shape of more bytes": claim_more,
    "a negative shape": claim_negative,
    "texts": as_texts,
    "a sparse constant": add_sparse,
    "a sequence": add_sequence,
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_what_no_kit_has_is_refused(change: object) -> None:
    read_outline(memoryview(STEP))
    with pytest.raises(ValueError, match=r".+"):
        read_outline(memoryview(with_step(change)))


@pytest.mark.parametrize("kind", ["FLOAT", "INT8", "UINT8", "INT32", "BOOL", "INT64", "FLOAT16"])
def test_values_may_be_in_lists(kind: str) -> None:
    def add(model: onnx.ModelProto, count: int) -> None:
        values = helper.make_tensor("t", getattr(TensorProto, kind), [count], [1] * count)
        values.dims[:] = [5]
        model.graph.initializer.append(values)

    content = with_step(lambda model: add(model, 5))
    assert read_outline(memoryview(content)) == by_onnx(content)
    with pytest.raises(ValueError, match=r"a constant of shape \(5,\) has 4 values"):
        read_outline(memoryview(with_step(lambda model: add(model, 4))))


def test_values_may_be_said_to_be_inside() -> None:
    def say(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            tensor.data_location = TensorProto.DEFAULT

    content = with_step(say)
    assert content != STEP
    assert read_outline(memoryview(content)) == read_outline(memoryview(STEP))


def test_a_field_that_readers_may_understand_differently_is_refused() -> None:
    node = helper.make_node("Add", ["a", "b"], ["c"]).SerializeToString()
    other = onnx.NodeProto(op_type="If").SerializeToString()
    graph = onnx.GraphProto(name="g").SerializeToString() + field(1, node + other)
    content = onnx.ModelProto(ir_version=9).SerializeToString() + field(7, graph)
    assert onnx.load_from_string(content).graph.node[0].op_type == "If"
    with pytest.raises(ValueError, match="more than one op_type"):
        read_outline(memoryview(content))


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


@settings(max_examples=150)
@given(data=st.data())
def test_damage_never_crashes(data: st.DataObject) -> None:
    content = bytearray(STEP)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=12))
    try:
        outline = read_outline(memoryview(bytes(content)))
    except ValueError:
        return
    assert sum(outline.constants) <= len(content)


@pytest.mark.parametrize(
    "content", [b"", b"\x3a", b"\xff" * 20, b"\x3a\xff\xff\xff\xff\x0f", b"\x3b"]
)
def test_short_files(content: bytes) -> None:
    if not content:
        assert read_outline(memoryview(content)) == Outline()
        return
    with pytest.raises(ValueError, match=r".+"):
        read_outline(memoryview(content))


def test_constants_are_not_copied() -> None:
    import tracemalloc

    weights = numpy_helper.from_array(np.zeros(1_000_000, np.float32), "w")
    content = helper.make_model(helper.make_graph([], "g", [], [], [weights])).SerializeToString()
    tracemalloc.start()
    try:
        assert read_outline(memoryview(content)).constants == [4_000_000]
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
