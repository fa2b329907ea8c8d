"""A kit that predicts the class of each cell of 4 x 4 pixels from its mean color, and its engine.

`logits = weight @ mean color + bias`, trained in numpy on the label in the corner of each cell.
Its `predict.onnx` computes the same, so a run can be evaluated and used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from onnx import TensorProto, helper
from PIL import Image

from pocketune.arrays import FloatArray, State
from pocketune.device.engine.base import Gradients
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import GraphSpec, Manifest, ParameterSpec
from pocketune.kit.writer import write_kit
from pocketune.tasks import Segmentation
from pocketune.tasks.maps import IGNORED

from ..kit.hollow import hollow_graph
from .runs import write_best

SIZE, CELL, BATCH = 16, 4, 2
CELLS = SIZE // CELL
CLASSES = ("sky", "road", "car")
COLORS = np.array([[40, 90, 220], [110, 110, 110], [220, 40, 40]])
FLOAT, UINT8 = TensorProto.FLOAT, TensorProto.UINT8


class PixelEngine:
    """Softmax regression of cells, with weights of the classes."""

    runtime = "numpy"

    def __init__(self, kit: Kit, state: Mapping[str, FloatArray]) -> None:
        self.parameters: State = {k: state[k].copy() for k in ("head.weight", "head.bias")}
        self.statistics: State = {}
        self.inputs: State = kit.manifest.task.step_inputs(len(state["head.bias"]))

    def gradients(
        self, images: NDArray[np.uint8], labels: NDArray[np.uint8], rng: np.random.Generator
    ) -> Gradients:
        assert labels.shape == (len(images), SIZE, SIZE)
        means = pooled(images)
        logits = self._logits(means)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        truth = labels[:, ::CELL, ::CELL]
        counts = truth != IGNORED
        safe = np.where(counts, truth, 0)
        weights = (self.inputs["class_weights"][safe] * counts).astype(np.float32)
        weights /= max(weights.sum(), 1e-9)
        own = np.take_along_axis(shares, safe[:, None].astype(np.intp), axis=1)[:, 0]
        loss = -float((weights * np.log(own)).sum())
        correct = int(((shares.argmax(axis=1) == truth) & counts).sum())
        target = np.moveaxis(np.eye(shares.shape[1], dtype=np.float32)[safe], -1, 1)
        gradient = (shares - target) * weights[:, None]
        values = {
            "head.weight": np.einsum("nkhw,nchw->kc", gradient, means)[..., None, None],
            "head.bias": gradient.sum(axis=(0, 2, 3)),
        }
        return Gradients(loss, {"correct": correct, "pixels": int(counts.sum())}, values)

    def predict(self, images: NDArray[np.uint8]) -> FloatArray:
        return self._logits(pooled(images))

    def release(self) -> None:
        """Do nothing: there are no graphs."""

    def state(self) -> State:
        return {name: values.copy() for name, values in self.parameters.items()}

    def load(self, state: Mapping[str, FloatArray]) -> None:
        for name, array in self.parameters.items():
            array[...] = state[name]

    def _logits(self, means: FloatArray) -> FloatArray:
        weight = self.parameters["head.weight"][..., 0, 0]
        logits: FloatArray = np.einsum("kc,nchw->nkhw", weight, means)
        return logits + self.parameters["head.bias"][:, None, None]


def pooled(images: NDArray[np.uint8]) -> FloatArray:
    """The mean color (N, 3, cells, cells) of each cell, on [0, 1]."""
    cells = images.reshape(len(images), CELLS, CELL, CELLS, CELL, 3) / np.float32(255)
    means: FloatArray = cells.mean(axis=(2, 4), dtype=np.float32)
    return np.ascontiguousarray(np.moveaxis(means, -1, 1))


def write_exact_model(folder: Path) -> None:
    """A trained model that knows the colors of the classes."""
    kit = write_pixel_kit(folder)
    exact = COLORS / 255
    state = {
        "head.weight": (80 * exact).astype(np.float32)[..., None, None],
        "head.bias": (-40 * (exact**2).sum(1)).astype(np.float32),
    }
    write_best(folder, kit, state, CLASSES)


def write_pixel_kit(
    path: Path, *, classes: tuple[str, ...] = CLASSES, decode_head: bool = False
) -> Kit:
    """The kit, with random values; with a parameter of a random decode head if asked for."""
    rng = np.random.default_rng(0)
    state = {
        "head.weight": rng.standard_normal((len(classes), 3, 1, 1), np.float32) / 10,
        "head.bias": np.zeros(len(classes), np.float32),
    }
    shapes = {name: value.shape for name, value in state.items()}
    specs = [ParameterSpec(name, shape, "head") for name, shape in shapes.items()]
    if decode_head:
        state["decode_head.scale"] = np.ones(3, np.float32)
        specs.append(ParameterSpec("decode_head.scale", (3,), "decode_head"))
    manifest = Manifest(
        version="0.1.0",
        network={"name": "pixels"},
        method={"name": "last"},
        task=Segmentation(classes, head=tuple(shapes), output_size=(CELLS, CELLS)),
        size=SIZE,
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
        batch=BATCH,
        micro_batch=BATCH,
        features=None,
        embeddings=None,
        parameters=tuple(specs),
        statistics=(),
        masks=(),
        graphs={
            "step": GraphSpec(8_000_000, 0, 0, 0, 0, {}, 0),
            "predict": GraphSpec(4_000_000, 0, 0, 0, 0, {}, 0),
        },
    )
    files = {
        "step.onnx": hollow_graph(manifest, "step.onnx"),
        "predict.onnx": _predict(),
        "parameters.safetensors": safetensors.numpy.save(state),
    }
    return write_kit(path, manifest, files)


def _predict() -> bytes:
    nodes = [
        helper.make_node("Cast", ["images"], ["float"], to=FLOAT),
        helper.make_node("Transpose", ["float"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("Constant", [], ["full"], value_float=255.0),
        helper.make_node("Div", ["planes", "full"], ["scaled"]),
        helper.make_node(
            "AveragePool", ["scaled"], ["means"], kernel_shape=[CELL] * 2, strides=[CELL] * 2
        ),
        helper.make_node("Conv", ["means", "head.weight", "head.bias"], ["logits"]),
    ]
    inputs = [
        helper.make_tensor_value_info("images", UINT8, ["N", SIZE, SIZE, 3]),
        helper.make_tensor_value_info("head.weight", FLOAT, ["classes", 3, 1, 1]),
        helper.make_tensor_value_info("head.bias", FLOAT, ["classes"]),
    ]
    outputs = [helper.make_tensor_value_info("logits", FLOAT, None)]
    graph = helper.make_graph(nodes, "predict", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    content: bytes = model.SerializeToString()
    return content


def write_scenes(
    folder: Path, count: int = 8, *, size: tuple[int, int] = (32, 24), names: bool = True
) -> Path:
    """Sky above road, with a car of random place; the road's lower edge is ignored."""
    rng = np.random.default_rng(1)
    for number in range(count):
        mask = np.zeros((size[1], size[0]), np.uint8)
        mask[size[1] // 2 :] = 1
        left, top = rng.integers(0, size[0] - 10), rng.integers(size[1] // 3, size[1] - 9)
        mask[top : top + 8, left : left + 10] = 2
        mask[-1] = 255
        pixels = rng.normal(COLORS[np.where(mask == 255, 1, mask)], 15).clip(0, 255)
        for kind, values in (("images", pixels.astype(np.uint8)), ("masks", mask)):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            Image.fromarray(values).save(folder / kind / f"{number}.png")
    if names:
        (folder / "classes.txt").write_text("\n".join(CLASSES))
    return folder
