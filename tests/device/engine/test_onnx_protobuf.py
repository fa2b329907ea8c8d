"""The wire format, against the onnx package and its own inverse."""

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, numpy_helper

from pocketune.device.engine.onnx_protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    FLOAT32,
    VARINT,
    Field,
    ProtobufError,
    metadata,
    parse,
    serialize,
    tensor,
    value_info,
)

from ..tiny_kit import TinyKit

fields = st.one_of(
    st.builds(Field, st.integers(1, 2**20), st.just(VARINT), st.integers(0, 2**64 - 1)),
    st.builds(Field, st.integers(1, 2**20), st.just(BYTES), st.binary(max_size=300)),
    st.builds(Field, st.integers(1, 99), st.just(FIXED32), st.binary(min_size=4, max_size=4)),
    st.builds(Field, st.integers(1, 99), st.just(FIXED64), st.binary(min_size=8, max_size=8)),
)


def normal(field: Field) -> tuple[int, int, int | bytes]:
    value = field.value if isinstance(field.value, int) else bytes(field.value)
    return field.number, field.wire, value


@given(st.lists(fields))
def test_round_trip(message: list[Field]) -> None:
    assert [normal(f) for f in parse(serialize(message))] == [normal(f) for f in message]


@given(st.binary(max_size=200))
def test_any_bytes_parse_or_are_refused(data: bytes) -> None:
    try:
        list(parse(data))
    except ProtobufError:
        return


@pytest.mark.parametrize("name", ["step.onnx", "predict.onnx", "features.onnx"])
def test_models_survive_byte_by_byte(name: str) -> None:
    model = TinyKit().files()[name]
    assert serialize(parse(model)) == model


def test_truncated_model() -> None:
    model = TinyKit().files()["predict.onnx"]
    with pytest.raises(ProtobufError, match="cut off"):
        list(parse(model[:-1]))


@pytest.mark.parametrize("data", [b"\x80", b"\xff" * 11, b"\x0a\x05abc", b"\x0b", b"\x0d\x00"])
def test_malformed(data: bytes) -> None:
    with pytest.raises(ProtobufError):
        list(parse(data))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (0, 5)])
def test_tensor(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    proto = TensorProto.FromString(bytes(tensor(5, "wëight", values).buffer))
    assert proto.name == "wëight"
    np.testing.assert_array_equal(numpy_helper.to_array(proto), values, strict=True)


def test_tensor_of_a_view_that_is_not_contiguous() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3).T
    proto = TensorProto.FromString(bytes(tensor(5, "w", values).buffer))
    np.testing.assert_array_equal(numpy_helper.to_array(proto), values)


def test_value_info() -> None:
    content = bytes(value_info(11, "x", FLOAT32, ["N", 3, 300]).buffer)
    expected = onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 300])
    assert onnx.ValueInfoProto.FromString(content) == expected


def test_metadata() -> None:
    model = onnx.ModelProto.FromString(serialize(metadata(14, {"a": "1", "ключ": "знач"})))
    assert {p.key: p.value for p in model.metadata_props} == {"a": "1", "ключ": "знач"}
