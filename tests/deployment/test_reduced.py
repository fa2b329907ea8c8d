"""Exports in fewer bits: what they compute, and how far they say that they agree."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

from pocketune import LastLayer, adapt, compile, create_network
from pocketune.compiler.quantize.calibration import Calibration
from pocketune.deployment import result
from pocketune.deployment.agreement import agreement
from pocketune.deployment.plain import plain_model
from pocketune.deployment.reduced import export_reduced
from pocketune.device import export
from pocketune.device.engine.session import open_session
from pocketune.device.use.model import Model
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit

from ..device.runs import write_photos
from ..device.tiny_kit import TinyKit
from .tflite.graphs import model_of, quantized, random_images


def logits(file: Path, images: np.ndarray) -> np.ndarray:
    session = open_session(file, as_written=False, integers=True)
    found: np.ndarray = session.run(["logits"], {"images": images})[0]
    return found


@pytest.mark.parametrize(("precision", "error"), [("int8", 0.1), ("fp16", 0.005)])
def test_it_computes_what_the_model_computes(
    tmp_path: Path, model: Model, photos: Path, precision: str, error: float
) -> None:
    stages: list[str] = []
    made = export_reduced(
        model,
        tmp_path / "deep" / "small.onnx",
        precision=precision,
        photos=photos,
        progress=lambda what, share: stages.append(what),
    )
    onnx.checker.check_model(made.path, full_check=True)
    images = np.random.default_rng(5).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    truth = logits(export(model, tmp_path / "float.onnx"), images)
    found = logits(made.path, images)
    assert 0 < np.linalg.norm(found - truth) < error * np.linalg.norm(truth)
    assert made.agreement is not None
    assert made.agreement.photos == 6 and made.agreement.same >= 5 / 6
    assert 0 < made.agreement.error < error
    assert stages == [
        "reading the photos",
        f"converting to {precision}",
        "comparing the predictions",
    ]
    small, whole = (onnx.load(tmp_path / f) for f in ("deep/small.onnx", "float.onnx"))
    assert sorted(map(str, small.metadata_props)) == sorted(map(str, whole.metadata_props))
    kinds = {t.name: t.data_type for t in small.graph.initializer}
    assert (onnx.TensorProto.INT8 if precision == "int8" else onnx.TensorProto.FLOAT16) in set(
        kinds.values()
    )


def test_what_is_refused(tmp_path: Path, model: Model, photos: Path, monkeypatch) -> None:
    out = tmp_path / "small.onnx"
    with pytest.raises(PocketuneError, match="precision='int4' must be one of int8, fp16"):
        export_reduced(model, out, precision="int4", photos=photos)
    with pytest.raises(PocketuneError, match="does not say where its photos are; give photos"):
        export_reduced(model, out, precision="int8")
    with pytest.raises(PocketuneError, match="choose another file"):
        export_reduced(model, model.kit.path / "step.onnx", precision="fp16", photos=photos)
    (tmp_path / "net.onnx").write_bytes(b"a network")
    with pytest.raises(PocketuneError, match="exists and is not an exported model: choose"):
        export_reduced(model, tmp_path / "net.onnx", precision="fp16", photos=photos)
    monkeypatch.setattr(result, "BOUND", 1e-9)
    with pytest.raises(PocketuneError, match=r"would be off by .*; export it in float32"):
        export_reduced(model, out, precision="fp16", photos=photos)
    with pytest.raises(PocketuneError, match="give more photos to calibrate it on, or export it"):
        export_reduced(model, out, precision="int8", photos=photos)
    assert not out.exists()


def test_a_kit_in_halves_needs_no_photos(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    made = export_reduced(Kit.open(kit.path).path, tmp_path / "half.onnx", precision="fp16")
    assert made.agreement is None and made.path.is_file()


def test_a_kit_that_overflows_in_halves_is_refused(tmp_path: Path) -> None:
    class Large(TinyKit):
        def state(self) -> dict[str, np.ndarray]:
            return super().state() | {"scale": np.array(1e7, np.float32)}

    kit = Large().write(tmp_path / "kit")
    with pytest.raises(PocketuneError, match=r"fp16: the logits would be off by .*; export it in"):
        export_reduced(kit.path, tmp_path / "half.onnx", precision="fp16")
    assert not (tmp_path / "half.onnx").exists()


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_it_is_compared_on_training_photos_where_there_are_no_others(
    tmp_path: Path, model: Model, photos: Path, precision: str
) -> None:
    few = write_photos(tmp_path / "few", ("cat", "dog"), each=1)
    made = export_reduced(model, tmp_path / "a.onnx", precision=precision, photos=few)
    assert made.agreement is not None
    assert (made.agreement.photos, made.on_training) == (2, True)
    made = export_reduced(model, tmp_path / "b.onnx", precision=precision, photos=photos)
    assert not made.on_training


def test_the_size_in_float32_is_known(tmp_path: Path, model: Model, photos: Path) -> None:
    made = export_reduced(model, tmp_path / "a.onnx", precision="fp16", photos=photos)
    assert made.float_size == export(model, tmp_path / "b.onnx").stat().st_size


def test_agreement() -> None:
    truth = np.array([[3.0, -1.0], [0.5, 1.0]], np.float32)
    other = np.array([[2.0, 1.0], [0.5, 1.0]], np.float32)
    images = np.zeros((2, 1, 1, 3), np.uint8)
    by_class = agreement(images, lambda _: truth, lambda _: other, several=False)
    assert by_class.same == 1.0
    assert by_class.error == pytest.approx(5**0.5 / 11.25**0.5)
    each = agreement(images, lambda _: truth, lambda _: other, several=True)
    assert each.same == 0.75
    assert str(each).startswith("on 2 photos, 75.0% of its answers are those of the model")


def test_constants_scales_and_shifts_become_part_of_the_layer() -> None:

    rng = np.random.default_rng(0)
    whole = rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    values = {
        "w": whole,
        "s": rng.uniform(0.01, 0.02, 4).astype(np.float32),
        "z": np.zeros(4, np.int8),
        "bias": rng.integers(-900, 900, 4).astype(np.int32),
        "zero": np.zeros(4, np.int32),
        "mean": rng.normal(size=(1, 4, 1, 1)).astype(np.float32),
        "scale": rng.normal(size=(1, 4, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Cast", ["images"], ["float"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Transpose", ["float"], ["x"], perm=[0, 3, 1, 2]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["kernel"], axis=0),
        helper.make_node("DequantizeLinear", ["bias", "s", "zero"], ["shift"], axis=0),
        helper.make_node("Conv", ["x", "kernel", "shift"], ["a"]),
        helper.make_node("Sub", ["a", "mean"], ["b"]),
        helper.make_node("Mul", ["b", "scale"], ["c"]),
        helper.make_node("ReduceMean", ["c"], ["logits"], axes=[2, 3], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("images", onnx.TensorProto.UINT8, ["N", 8, 8, 3])],
        [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["N", 4])],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    images = rng.integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
    expected = open_session(model.SerializeToString(), as_written=True).run(
        None, {"images": images}
    )[0]
    plain = plain_model(model)
    operators = [node.op_type for node in plain.graph.node]
    assert operators == ["Cast", "Transpose", "Conv", "ReduceMean"]
    found = open_session(plain.SerializeToString(), as_written=True).run(None, {"images": images})
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-3)


class TokenMixer(nn.Module):
    """A linear layer over the tokens, which is a product in batches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 16, 8, 8), nn.LayerNorm(16)
        self.mix, self.head = nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + self.mix(self.norm(x).transpose(1, 2)).transpose(1, 2)
        scores: torch.Tensor = self.head(x.mean(1))
        return scores


def test_a_layer_over_the_tokens_in_8_bits(tmp_path: Path, photos: Path) -> None:
    torch.manual_seed(0)
    kit = compile(adapt(TokenMixer(), LastLayer()), tmp_path / "kit", batch=1, size=32)
    made = export_reduced(kit.path, tmp_path / "small.onnx", precision="int8", photos=photos)
    assert (made.layers, made.float_layers) == (4, 0)


def test_a_frozen_part_in_integers_stays_in_integers(tmp_path: Path, photos: Path) -> None:
    torch.manual_seed(0)
    network = adapt(create_network("mobilenet_v2", width=0.1, classes=2), LastLayer())
    images = np.random.default_rng(3).integers(0, 256, (8, 32, 32, 3), np.uint8)
    calibration = Calibration(images, np.arange(8) % 2)
    kit = compile(
        network, tmp_path / "kit", batch=4, size=32, frozen_bits=8, calibration=calibration
    )
    assert kit.manifest.quantization is not None and kit.manifest.quantization.activations == 8
    made = export_reduced(kit.path, tmp_path / "half.onnx", precision="fp16", photos=photos)
    kinds = {node.op_type for node in onnx.load(made.path).graph.node}
    assert "QuantizeLinear" in kinds
    assert logits(made.path, np.zeros((2, 32, 32, 3), np.uint8)).shape == (2, 2)
    # the quantizer names what it adds after the values that it is added to
    original = onnx.load(export(kit.path, tmp_path / "float.onnx"))
    before, plain = quantized_values(original), quantized_values(plain_model(original))
    assert before and plain and not before & plain
    onnx.checker.check_model(plain_model(original), full_check=True)
    kept = plain_model(original, integers=True)
    onnx.checker.check_model(kept, full_check=True)
    assert integer_layers(kept) == integer_layers(original) > 20
    whole = export_reduced(kit.path, tmp_path / "whole.onnx", precision="int8", photos=photos)
    assert integer_layers(onnx.load(whole.path)) > integer_layers(original)
    assert whole.float_layers == 0


def integer_layers(model: onnx.ModelProto) -> int:
    """Number of layers whose maps and kernels are stored in 8 bits."""
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    made = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "DequantizeLinear"}
    stored = [[made[n] in constants for n in node.input[:2] if n in made] for node in graph.node]
    return stored.count([False, True])


def quantized_values(model: onnx.ModelProto) -> set[str]:
    """Names of what is read and made where values are quantized or dequantized."""
    kinds = ("QuantizeLinear", "DequantizeLinear")
    nodes = [node for node in model.graph.node if node.op_type in kinds]
    return {name for node in nodes for name in (*node.input[1:], *node.output)}


def test_with_all_layers_in_float32_nothing_is_quantized() -> None:
    weight = np.random.default_rng(0).normal(size=(4, 3, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"]),
        helper.make_node("Sigmoid", ["y"], ["logits"]),
    ]
    model = model_of(nodes, (1, 4, 8, 8), w=weight)
    (layer,) = (node.name for node in model.graph.node if node.op_type == "Conv")
    kinds = [node.op_type for node in model.graph.node]
    rounded = quantized(model, random_images())
    assert "QuantizeLinear" in {node.op_type for node in rounded.graph.node}
    plain = quantized(model, random_images(), [layer])
    assert [node.op_type for node in plain.graph.node] == kinds
