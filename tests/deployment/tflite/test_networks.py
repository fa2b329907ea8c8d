"""Whole networks: LiteRT's logits are those of ONNX Runtime, up to the rounding of integers."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

pytest.importorskip("ai_edge_litert", reason="needs the extra tflite")

from pocketune import LastLayer, TopBlocks, adapt, compile, create_network
from pocketune.compiler.quantize.calibration import Calibration
from pocketune.compiler.quantize.error import relative_error
from pocketune.deployment.tflite.export import export_tflite, run_tflite
from pocketune.deployment.tflite.prepare import prepared_model
from pocketune.device import export
from pocketune.methods import Method
from pocketune.networks.registry import is_dense

from ...networks.shallow import shallow
from ...networks.tiny import tiny
from .graphs import quantized, run_onnx, translated

SIZE = 32
CLASSES = 5
NETWORKS = {
    "mobilenet_v2": 0.35,
    "mobilenet_v3_small": 0.5,
    "mobilenet_v4_small": 0.35,
    "mcunet_5fps": 1.0,
    "resnet18": 0.25,
    "efficientnet_lite0": 0.35,
    "efficientnet_b0": 0.35,
    "lraspp": 0.35,
    "fcn": 0.1,
}
IN_FLOAT32 = {
    "lraspp": {"BATCH_MATMUL"},  # it resizes by matrices
    "convnext_atto": {"RSQRT", "SUB"},  # layer norms
    "deit_tiny": {"RSQRT", "SUB", "BATCH_MATMUL", "SOFTMAX"},
    "fastvit_t8": {"SUB"},  # its mixers' maps less their input
    "mobilevit_xxs": {"RSQRT", "SUB", "BATCH_MATMUL", "SOFTMAX"},
    "repvit_m0_9": {"DIV"},  # the mean of two classifiers
    "vit_tiny": {"RSQRT", "SUB", "BATCH_MATMUL", "SOFTMAX"},
}
"""What is not computed with integers."""
TINY = [name for name in IN_FLOAT32 if name != "lraspp"]
GELU = {*TINY} - {"mobilevit_xxs"}
INTEGERS = {
    *("QUANTIZE", "DEQUANTIZE", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "MUL"),
    *("MEAN", "PAD", "PADV2", "MAX_POOL_2D", "HARD_SWISH", "LOGISTIC", "RESHAPE"),
    *("CONCATENATION", "TRANSPOSE", "GATHER", "GELU"),
}


def exported(folder: Path, name: str, method: Method | None = None) -> onnx.ModelProto:
    torch.manual_seed(0)
    if name in TINY:
        network = tiny(name, classes=CLASSES)
    else:
        network = create_network(name, width=NETWORKS[name], classes=CLASSES)
        network = network if is_dense(name) else shallow(network)
    network = adapt(network, method or LastLayer())
    kit = compile(network, folder / "kit", batch=2, size=SIZE)
    return onnx.load(export(kit.path, folder / "model.onnx"))


def smooth_images(count: int) -> np.ndarray:
    """Images with structure, on which random networks have activations of all sizes."""
    coarse = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    return coarse.repeat(SIZE // 8, axis=1).repeat(SIZE // 8, axis=2)


@pytest.mark.parametrize("name", [*NETWORKS, *TINY])
def test_a_network(tmp_path: Path, name: str) -> None:
    model, images = exported(tmp_path, name), smooth_images(8)
    truth = run_onnx(model, images)
    prepared = prepared_model(model)
    content, kinds = translated(prepared)
    assert relative_error(run_tflite(content, images), truth) < 1e-4
    assert "TRANSPOSE" not in kinds or "BATCH_MATMUL" in kinds
    assert ("GELU" in kinds) == (name in GELU)

    integers = quantized(prepared, images)
    content, kinds = translated(integers)
    rounded, found = run_onnx(integers, images), run_tflite(content, images)
    off = relative_error(rounded, truth)
    assert relative_error(found, truth) < 1.5 * off + 0.02  # LiteRT rounds between, too
    assert set(kinds) - INTEGERS == IN_FLOAT32.get(name, set())
    assert name in IN_FLOAT32 or kinds.count("QUANTIZE") <= 6
    assert kinds[:2] == ["QUANTIZE", "DEPTHWISE_CONV_2D"]


def test_a_frozen_part_that_gives_several_maps(tmp_path: Path) -> None:
    model, images = exported(tmp_path, "lraspp", TopBlocks(blocks=1)), smooth_images(2)
    assert "Split" in {node.op_type for node in model.graph.node}
    prepared = prepared_model(model)
    assert "Split" not in {node.op_type for node in prepared.graph.node}
    content, _ = translated(prepared)
    assert relative_error(run_tflite(content, images), run_onnx(model, images)) < 1e-4


def test_a_frozen_part_in_integers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = adapt(create_network("mobilenet_v2", width=0.1, classes=CLASSES), LastLayer())
    images = smooth_images(8)
    calibration = Calibration(images, np.arange(8) % CLASSES)
    kit = compile(
        network, tmp_path / "kit", batch=1, size=SIZE, frozen_bits=8, calibration=calibration
    )
    assert kit.manifest.computes_integers
    prepared = prepared_model(onnx.load(export(kit.path, tmp_path / "model.onnx")))
    _, kinds = translated(prepared)
    assert kinds.count("QUANTIZE") <= 6
    made = export_tflite(kit.path, tmp_path / "model.tflite", precision="float32")
    assert made.path.exists()  # however LiteRT rounds
