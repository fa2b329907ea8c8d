"""Each operator against ONNX Runtime, in float32 and in integers."""

import numpy as np
import onnx
import pytest
from onnx import helper

pytest.importorskip("ai_edge_litert", reason="needs the extra tflite")

from pocketune.errors import PocketuneError

from .cases import CASES, FLOAT_CASES, Case, normal
from .graphs import (
    SIZE,
    model_of,
    quantized,
    quantum,
    random_images,
    run_flatbuffer,
    run_onnx,
    translated,
)

node = helper.make_node


def as_onnx(logits: np.ndarray, case: Case) -> np.ndarray:
    return np.moveaxis(logits, -1, 1) if case.last else logits


@pytest.mark.parametrize("name", FLOAT_CASES)
def test_in_float32(name: str) -> None:
    case, images = FLOAT_CASES[name], random_images()
    model = model_of(case.nodes, case.shape, **case.constants)
    content, _ = translated(model)
    found = as_onnx(run_flatbuffer(content, images), case)
    np.testing.assert_allclose(found, run_onnx(model, images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("plain", [False, True], ids=["fast", "reference"])
@pytest.mark.parametrize("name", CASES)
def test_in_integers(name: str, plain: bool) -> None:
    case, images = CASES[name], random_images()
    model = quantized(model_of(case.nodes, case.shape, **case.constants), images)
    content, kinds = translated(model)
    assert kinds == ["QUANTIZE", "DEPTHWISE_CONV_2D", *case.kinds, "DEQUANTIZE"]
    expected = run_onnx(model, images)
    found = as_onnx(run_flatbuffer(content, images, plain=plain), case)
    assert np.ptp(expected) > 20 * quantum(model)
    assert np.abs(found - expected).max() <= case.quanta * quantum(model)


def test_pixels_become_the_same_integers() -> None:
    """The normalization rounds once, like ONNX; only ties may fall to the other side."""
    images = np.arange(256, dtype=np.uint8).repeat(3).reshape(4, SIZE, SIZE, 3)
    model = quantized(
        model_of([node("Concat", ["x", "x"], ["logits"], axis=1)], (1, 6, 8, 8)), images
    )
    content, kinds = translated(model)
    assert kinds == ["QUANTIZE", "DEPTHWISE_CONV_2D", "CONCATENATION", "DEQUANTIZE"]
    found = np.moveaxis(run_flatbuffer(content, images), -1, 1)
    off = np.abs(found - run_onnx(model, images)) / quantum(model)
    assert off.max() < 1.01 and (off > 0.5).mean() < 0.02


def test_a_layer_in_float32_between_integers() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["y"]),
        node("Div", ["y", "d"], ["z"]),
        node("Conv", ["z", "v"], ["logits"]),
    ]
    constants = {
        "w": normal(4, 3, 1, 1),
        "d": np.full((1, 4, 1, 1), 1.7, np.float32),
        "v": normal(4, 4, 1, 1),
    }
    images = random_images()
    model = quantized(model_of(nodes, (1, 4, 8, 8), **constants), images)
    content, kinds = translated(model)
    assert kinds[2:] == ["CONV_2D", "DEQUANTIZE", "DIV", "QUANTIZE", "CONV_2D", "DEQUANTIZE"]
    off = np.moveaxis(run_flatbuffer(content, images), -1, 1) - run_onnx(model, images)
    assert np.abs(off).max() <= 2.01 * quantum(model)


@pytest.mark.parametrize("kind", ["Conv", "MatMul"])
def test_a_layer_that_stays_in_float32_computes_so_between_integers(kind: str) -> None:
    shape = (4, 4, 1, 1) if kind == "Conv" else (SIZE, SIZE)
    nodes = [
        node("Conv", ["x", "u"], ["y"]),
        node(kind, ["y", "v"], ["z"]),
        node("Conv", ["z", "w"], ["logits"]),
    ]
    constants = {"u": normal(4, 3, 1, 1), "v": normal(*shape), "w": normal(4, 4, 1, 1)}
    model, images = model_of(nodes, (1, 4, 8, 8), **constants), random_images()
    layer = model.graph.node[-2]
    rounded = quantized(model, images, [layer.name])
    content, kinds = translated(rounded)
    assert kinds.count("DEQUANTIZE") == 2 and kinds.count("QUANTIZE") == 2
    off = np.moveaxis(run_flatbuffer(content, images), -1, 1) - run_onnx(rounded, images)
    assert np.abs(off).max() <= 2.01 * quantum(rounded)


@pytest.mark.parametrize("floats", [(), (0,), (1,), (0, 1)])
def test_activations_follow_their_layers(floats: tuple[int, ...]) -> None:
    """Behind a layer in float32, nothing is rounded before the next layer."""
    nodes = [
        node("Conv", ["x", "w"], ["earlier"]),
        node("Conv", ["earlier", "v"], ["later"]),
        node("Gelu", ["later"], ["y"]),
        node("Transpose", ["y"], ["turned"], perm=[0, 1, 3, 2]),
        node("Sigmoid", ["turned"], ["gate"]),
        node("Mul", ["turned", "gate"], ["logits"]),
    ]
    model = model_of(nodes, (1, 4, 8, 8), w=normal(4, 3, 1, 1), v=normal(4, 4, 1, 1))
    layers = [each.name for each in model.graph.node if each.op_type == "Conv"]
    images = random_images()
    rounded = quantized(model, images, [layers[place] for place in floats])
    content, kinds = translated(rounded)
    behind = kinds[kinds.index("GELU") :]
    assert ("DEQUANTIZE" in behind) == (1 not in floats)
    if floats == (0, 1):
        found = run_flatbuffer(content, images)
        np.testing.assert_allclose(found, run_onnx(model, images), rtol=1e-4, atol=1e-4)


def test_an_activation_behind_a_norm_in_float32_follows_the_layer_before_it() -> None:
    """Its rounding would cost accuracy, and save nothing between two operators in float32."""
    nodes = [
        node("Conv", ["x", "w"], ["map"]),
        node("InstanceNormalization", ["map", "scale", "offset"], ["normalized"]),
        node("Sigmoid", ["normalized"], ["logits"]),
    ]
    constants = {"w": normal(4, 3, 1, 1), "scale": normal(4), "offset": normal(4)}
    model, images = model_of(nodes, (1, 4, 8, 8), **constants), random_images()
    rounded = quantized(model, images, [model.graph.node[-3].name])
    np.testing.assert_array_equal(run_onnx(rounded, images), run_onnx(model, images))


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([node("Erf", ["x"], ["logits"])], r"the model has Erf \(4/Erf\), which"),
        (
            [node("Gelu", ["x"], ["logits"], approximate="tanh")],
            r"Gelu by an approximation \(4/Gelu\)",
        ),
        (
            [node("HardSigmoid", ["x"], ["logits"])],
            r"HardSigmoid other than x / 6 \+ 1 / 2 \(4/HardSigmoid\)",
        ),
        (
            [node("AveragePool", ["x"], ["logits"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])],
            r"AveragePool with padding \(4/AveragePool\)",
        ),
        (
            [node("Softmax", ["x"], ["logits"], axis=2)],
            r"Softmax along axis 2 \(4/Softmax\)",
        ),
    ],
)
def test_what_is_not_translated_is_named(nodes: list[onnx.NodeProto], said: str) -> None:
    model = model_of(nodes, (1, 3, SIZE, SIZE))
    with pytest.raises(PocketuneError, match=said):
        translated(model)
