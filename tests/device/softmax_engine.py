"""A training engine in pure numpy, and a kit and photos for it.

Softmax regression on down-sampled pixels with everything that a real engine has: two parameters,
a running statistic that training updates and prediction uses, and noise drawn for each step. Loop,
checkpoint and resume are tested with it in milliseconds, without any runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import safetensors.numpy
from PIL import Image

from pocketune.arrays import FloatArray, State
from pocketune.device.cache.code import Features
from pocketune.device.engine.base import Gradients
from pocketune.kit.manifest import GraphSpec, Manifest, ParameterSpec, TensorSpec
from pocketune.kit.writer import write_kit
from pocketune.tasks import Classification

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from pocketune.kit.kit import Kit

SIZE = 16
GRID = 4
FEATURES = GRID * GRID * 3
BATCH = 4
CLASSES = ("blue", "green", "red")
COLORS = {"blue": (40, 60, 190), "green": (50, 180, 60), "red": (200, 50, 40)}


class SoftmaxEngine:
    """`logits = (pooled pixels - running mean) @ weight.T + bias`, with dropout."""

    runtime = "numpy"

    def __init__(self, kit: Kit, state: Mapping[str, FloatArray]) -> None:
        self.parameters: State = {k: state[k].copy() for k in ("fc.weight", "fc.bias")}
        self.statistics: State = {"mean": state["mean"].copy()}

    def gradients(
        self, images: NDArray[np.uint8], labels: NDArray[np.int64], rng: np.random.Generator
    ) -> Gradients:
        pooled = self._pool(images)
        mean = self.statistics["mean"]
        mean += np.float32(0.1) * (pooled.mean(axis=0) - mean)
        inputs = (pooled - mean) * (rng.random(pooled.shape, np.float32) < 0.9)
        logits = self._logits(inputs)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = -float(np.log(shares[rows, labels]).mean())
        correct = int((shares.argmax(axis=1) == labels).sum())
        shares[rows, labels] -= 1
        shares /= np.float32(len(labels))
        # einsum without BLAS: the same bits in every process
        values = {
            "fc.weight": np.einsum("nc,nf->cf", shares, inputs),
            "fc.bias": shares.sum(axis=0),
        }
        return Gradients(loss, {"correct": correct}, values)

    def predict(self, images: NDArray[np.uint8]) -> FloatArray:
        return self._logits(self.embed(images))

    def embed(self, images: NDArray[np.uint8]) -> FloatArray:
        return self._pool(images) - self.statistics["mean"]

    def release(self) -> None:
        pass

    def state(self) -> State:
        return {k: v.copy() for k, v in {**self.parameters, **self.statistics}.items()}

    def load(self, state: Mapping[str, FloatArray]) -> None:
        for name, array in {**self.parameters, **self.statistics}.items():
            array[...] = state[name]

    def _pool(self, images: NDArray[np.uint8]) -> FloatArray:
        cell = SIZE // GRID
        cells = images.reshape(len(images), GRID, cell, GRID, cell, 3) / np.float32(255)
        return cells.mean(axis=(2, 4), dtype=np.float32).reshape(len(images), FEATURES)

    def _logits(self, inputs: FloatArray) -> FloatArray:
        weight, bias = self.parameters["fc.weight"], self.parameters["fc.bias"]
        return np.einsum("nf,cf->nc", inputs, weight) + bias


class FrozenEngine(SoftmaxEngine):
    """The same with a frozen part, which pools the pixels; it takes features in their place."""

    def prepare(self, images: NDArray[np.uint8]) -> FloatArray:
        return super()._pool(images)

    def _pool(self, images: NDArray[np.uint8] | Features) -> FloatArray:
        return images.decoded() if isinstance(images, Features) else super()._pool(images)


def write_softmax_kit(
    path: Path,
    *,
    classes: tuple[str, ...] = CLASSES,
    batch: int = BATCH,
    frozen: bool = False,
) -> Kit:
    """A kit for `SoftmaxEngine`, or if something is frozen for `FrozenEngine`.

    Its graphs are placeholders that nothing opens.
    """
    from ..kit.hollow import hollow_graph  # onnx takes a while to import

    rng = np.random.default_rng(0)
    state = {
        "fc.weight": rng.standard_normal((len(classes), FEATURES), np.float32) / 10,
        "fc.bias": np.zeros(len(classes), np.float32),
        "mean": np.full(FEATURES, 0.5, np.float32),
    }
    manifest = Manifest(
        version="0.1.0",
        network={"name": "softmax"},
        method={"name": "full"},
        task=Classification(classes, head=("fc.weight", "fc.bias")),
        size=SIZE,
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
        batch=batch,
        micro_batch=batch,
        features=(FEATURES,) if frozen else None,
        embeddings=FEATURES,
        parameters=tuple(ParameterSpec(k, state[k].shape) for k in ("fc.weight", "fc.bias")),
        statistics=(TensorSpec("mean", (FEATURES,)),),
        masks=(),
        graphs={
            **({"features": GraphSpec(1_000_000, 0, 0, 0, 0, {}, 0)} if frozen else {}),
            "step": GraphSpec(8_000_000, 0, 0, 0, 0, {}, 0),
            "predict": GraphSpec(4_000_000, 0, 0, 0, 0, {}, 0),
        },
    )
    names = ("features.onnx", "step.onnx", "predict.onnx")
    files = {
        **{name: hollow_graph(manifest, name) for name in names[not frozen :]},
        "parameters.safetensors": safetensors.numpy.save(state),
    }
    return write_kit(path, manifest, files)


def write_photos(folder: Path, *, each: int = 10, classes: tuple[str, ...] = CLASSES) -> Path:
    """Noisy photos of one color a class."""
    rng = np.random.default_rng(1)
    for label, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        color = COLORS.get(name, (60 * label, 90, 255 - 60 * label))
        for index in range(each):
            pixels = rng.normal(color, 60, (20, 24, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index}.png")
    return folder
