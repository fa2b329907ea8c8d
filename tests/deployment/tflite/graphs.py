"""Small ONNX models from uint8 images, and what runtimes make of them."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from pocketune.compiler.quantize.static import MinMax, StaticQuantizer, measure_ranges
from pocketune.deployment.tflite.export import IN_INTEGERS
from pocketune.deployment.tflite.operators import Translator
from pocketune.device.engine.session import open_session

SIZE = 8


def model_of(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int],
    size: int = SIZE,
    **constants: np.ndarray,
) -> onnx.ModelProto:
    """A model of these nodes, from the normalized image `x` (1, 3, size, size) to `logits`."""
    stem = [
        helper.make_node("Transpose", ["images"], ["first"], perm=[0, 3, 1, 2]),
        helper.make_node("Cast", ["first"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["float", "factor"], ["scaled"]),
        helper.make_node("Add", ["scaled", "shift"], ["x"]),
    ]
    given = {
        "factor": np.array([0.017, 0.018, 0.016], np.float32).reshape(1, 3, 1, 1),
        "shift": np.array([-2.1, -2.0, -1.8], np.float32).reshape(1, 3, 1, 1),
        **constants,
    }
    graph = helper.make_graph(
        [*stem, *nodes],
        "g",
        [helper.make_tensor_value_info("images", TensorProto.UINT8, [1, size, size, 3])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, list(shape))],
        [numpy_helper.from_array(value, name) for name, value in given.items()],
    )
    for place, node in enumerate(graph.node):
        node.name = f"{place}/{node.op_type}"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model


def random_images(count: int = 4, size: int = SIZE) -> np.ndarray:
    """uint8 (count, size, size, 3)."""
    return np.random.default_rng(1).integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def quantized(
    model: onnx.ModelProto, images: np.ndarray, floats: Collection[str] = ()
) -> onnx.ModelProto:
    """The model in integers but for these layers, with ranges from these images."""
    ranges = measure_ranges(model, images, MinMax, IN_INTEGERS)
    return StaticQuantizer(model, ranges, IN_INTEGERS).quantize(floats)


def run_onnx(model: onnx.ModelProto, images: np.ndarray) -> np.ndarray:
    """What ONNX Runtime computes, with each operator by itself."""
    session = open_session(model.SerializeToString(), as_written=True)
    return np.concatenate([session.run(None, {"images": image[None]})[0] for image in images])


def run_flatbuffer(content: bytes, images: np.ndarray, *, plain: bool = False) -> np.ndarray:
    """What LiteRT computes, as it is; `plain` has its reference operators instead of the fast."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = OpResolverType.BUILTIN_REF if plain else OpResolverType.AUTO
    interpreter: Any = Interpreter(
        model_content=content, num_threads=1, experimental_op_resolver_type=kind
    )
    run = interpreter.get_signature_runner()
    return np.concatenate([run(images=image[None])["logits"] for image in images])


def translated(model: onnx.ModelProto) -> tuple[bytes, list[str]]:
    """The flatbuffer of a model, and its operators."""
    translator = Translator(model)
    return translator.translate(), translator.graph.kinds


def quantum(model: onnx.ModelProto) -> float:
    """The largest scale of the activations of a quantized model that the logits are made of."""
    made = {node.output[0]: node for node in model.graph.node}
    last = made["logits"]
    assert last.op_type == "DequantizeLinear"
    scales = {t.name: t for t in model.graph.initializer}
    return float(numpy_helper.to_array(scales[last.input[1]]))
