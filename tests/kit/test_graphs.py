"""A kit whose graphs are not those of its manifest, or hold other operators, is refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pocketune.device.engine.onnx import OnnxEngine
from pocketune.kit import graphs
from pocketune.kit.graphs import OPERATORS
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import KitError
from pocketune.kit.writer import write_kit

from ..device.tiny_kit import TinyKit

Change = Callable[[onnx.ModelProto], object]


def refusal(folder: Path, change: Change, name: str = "step.onnx") -> str:
    files = TinyKit().files()
    model = onnx.load_from_string(files[name])
    change(model)
    with pytest.raises(KitError) as caught:
        write_kit(folder / "kit", TinyKit().manifest(), {**files, name: model.SerializeToString()})
    message = str(caught.value)
    assert message.startswith(f"{name} of the kit {folder / 'kit'} is not a graph that a kit may ")
    assert "\n" not in message
    return message


def operator(name: str, domain: str = "") -> Change:
    def change(model: onnx.ModelProto) -> None:
        model.graph.node[0].op_type, model.graph.node[0].domain = name, domain

    return change


@pytest.mark.parametrize("name", ["RandomNormal", "Loop", "SequenceEmpty", "StringConcat", "Mine"])
def test_other_operators(tmp_path: Path, name: str) -> None:
    assert f"it has the operator {name}" in refusal(tmp_path, operator(name))


def test_other_domains(tmp_path: Path) -> None:
    found = refusal(tmp_path / "a", operator("Gelu", "com.microsoft"))
    assert "it has the operator com.microsoft.Gelu" in found
    found = refusal(tmp_path / "b", lambda m: m.opset_import.add(domain="mine", version=1))
    assert "it asks for operators of 'mine'" in found
    found = refusal(tmp_path / "c", operator("Conv", "com.microsoft.nchwc"))
    assert "com.microsoft.nchwc.Conv" in found  # in the blocked step alone


@pytest.mark.parametrize("version", [12, 24])
def test_other_versions(tmp_path: Path, version: int) -> None:
    def change(model: onnx.ModelProto) -> None:
        model.opset_import[0].version = version

    assert f"version {version} of the operators, not 13 to 23" in refusal(tmp_path, change)


def test_a_format_of_the_future(tmp_path: Path) -> None:
    assert "version 99" in refusal(tmp_path, lambda m: setattr(m, "ir_version", 99))


def test_more_operators_than_any_kit_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST_NODES", 5)
    assert "more than 5 operators or constants" in refusal(tmp_path, lambda _: None)


def rename(model: onnx.ModelProto) -> None:
    model.graph.input[1].name = "answers"


def retype(model: onnx.ModelProto) -> None:
    model.graph.input[1].type.tensor_type.elem_type = TensorProto.FLOAT


def reshape(model: onnx.ModelProto) -> None:
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 5


def flatten(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim.pop()


def repeat(model: onnx.ModelProto) -> None:
    model.graph.input.append(model.graph.input[0])


def drop(model: onnx.ModelProto) -> None:
    del model.graph.output[2]


def declare(model: onnx.ModelProto) -> None:
    value = helper.make_tensor_value_info("grad.fc.weight", TensorProto.FLOAT, [3, 999])
    model.graph.output[2].CopyFrom(value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (rename, "its input answers is not in the manifest"),
        (retype, "its input labels is not of the type and shape of the manifest"),
        (reshape, "its input labels is not of the type and shape of the manifest"),
        (flatten, "its input features is not of the type and shape of the manifest"),
        (repeat, "it names an input twice"),
        (drop, "it lacks the output grad.fc.weight"),
        (declare, "its output grad.fc.weight is not of the type and shape of the manifest"),
    ],
)
def test_inputs_and_outputs(tmp_path: Path, change: Change, expected: str) -> None:
    assert expected in refusal(tmp_path, change)


def test_the_prediction_and_the_frozen_part(tmp_path: Path) -> None:
    for name, tensor in (("predict.onnx", "logits"), ("features.onnx", "features")):
        found = refusal(tmp_path, lambda m: setattr(m.graph.output[0], "name", "x"), name)
        assert "its output x is not in the manifest" in found, tensor


def step(engine: OnnxEngine, images: np.ndarray) -> object:
    return engine.gradients(images, np.zeros(4, np.int64), np.random.default_rng(0))


def test_what_graphs_compute_is_checked_when_it_is_computed(tmp_path: Path) -> None:
    """Shapes of outputs need not be declared."""

    def spoiled(name: str, output: str) -> OnnxEngine:
        files = TinyKit().files()
        model = onnx.load_from_string(files[name])
        node = next(node for node in model.graph.node if node.output[0] == output)
        node.output[0] = "right"
        model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.int64), "twice"))
        model.graph.node.append(helper.make_node("Expand", ["right", "twice"], ["wide"]))
        model.graph.node.append(helper.make_node("Unsqueeze", ["wide", "zeroth"], [output]))
        model.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.int64), "zeroth"))
        folder = tmp_path / output
        kit = write_kit(folder, TinyKit().manifest(), {**files, name: model.SerializeToString()})
        return OnnxEngine(kit, kit.state())

    def complete(engine: OnnxEngine, images: np.ndarray) -> object:
        return engine.complete(engine.prepare(images))

    def complete_with_embeddings(engine: OnnxEngine, images: np.ndarray) -> object:
        return engine.complete_with_embeddings(engine.prepare(images))

    images = np.zeros((4, 8, 8, 3), np.uint8)
    for name, output, *uses in (
        ("features.onnx", "features", OnnxEngine.predict),
        ("predict.onnx", "logits", OnnxEngine.predict, complete, complete_with_embeddings),
        ("predict.onnx", "embeddings", OnnxEngine.embed, complete_with_embeddings),
        ("step.onnx", "loss", step),
        ("step.onnx", "correct", step),
        ("step.onnx", "grad.fc.bias", step),
        ("step.onnx", "new.norm.running_mean", step),
    ):
        engine = spoiled(name, output)
        for use in uses:
            with pytest.raises(KitError, match=rf"{name} of the kit .* gives {output} in the "):
                use(engine, images)


def test_an_error_of_the_runtime_is_one_sentence(tmp_path: Path) -> None:
    files = TinyKit().files()
    model = onnx.load_from_string(files["predict.onnx"])
    model.graph.node[0].input[1] = "fc.bias"  # of another size than the features
    kit = write_kit(
        tmp_path / "kit",
        TinyKit().manifest(),
        {**files, "predict.onnx": model.SerializeToString()},
    )
    with pytest.raises(KitError, match=r"predict.onnx of the kit .* cannot be ") as caught:
        OnnxEngine(kit, kit.state()).predict(np.zeros((4, 8, 8, 3), np.uint8))
    assert "\n" not in str(caught.value)


def test_every_operator_exists() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    assert known >= OPERATORS


def test_bundled_kits_are_checked() -> None:
    for name in ("last", "blocks"):
        assert Kit.open(name).manifest.files
