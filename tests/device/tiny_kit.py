"""A kit small enough to be read at a glance, with gradients written by hand.

The network is a frozen layer, a running mean taken off, dropout, a linear classifier and a
temperature: `logits = scale * ((relu(pixels @ frozen) - mean) * mask @ weight.T + bias)`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper

from pocketune.kit.kit import Kit
from pocketune.kit.manifest import (
    GraphSpec,
    Manifest,
    MaskSpec,
    ParameterSpec,
    TensorSpec,
    Work,
)
from pocketune.kit.writer import write_kit
from pocketune.tasks import Attributes, Classification, Task

from ..kit.hollow import hollow_graph

MOMENTUM = 0.1
CLASSES = ("cat", "dog", "owl")
WIDTH = 6
_FLOAT, _INT64, _UINT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8


@dataclass(frozen=True)
class TinyKit:
    """Contents of the kit."""

    classes: tuple[str, ...] = CLASSES
    size: int = 8
    batch: int = 4
    micro_batch: int | None = None  # of a kit without the statistic
    frozen_part: bool = True
    statistic: bool = True
    masks: bool = True
    embeddings: bool = True
    task: type[Task] = Classification  # for others than attributes, step.onnx computes nothing

    @property
    def at_once(self) -> int:
        """Images that the graphs compute at once."""
        return self.micro_batch or self.batch

    def write(self, path: Path) -> Kit:
        """Write the kit to a folder or a .zip."""
        return write_kit(path, self.manifest(), self.files())

    def files(self) -> dict[str, bytes]:
        """The kit's files by name."""
        graphs = self._graphs().items()
        files = {f"{name}.onnx": model.SerializeToString() for name, model in graphs}
        if self.task not in (Classification, Attributes):
            files["step.onnx"] = hollow_graph(self.manifest(), "step.onnx")
        return {**files, "parameters.safetensors": safetensors.numpy.save(self.state())}

    def _graphs(self) -> dict[str, onnx.ModelProto]:
        features = {"features": self._features()} if self.frozen_part else {}
        return {**features, "step": self._step(), "predict": self._predict()}

    def _cost(self, model: onnx.ModelProto) -> GraphSpec:
        weights = [tensor.ByteSize() for tensor in model.graph.initializer]
        return GraphSpec(
            memory=4096,
            flops=2000,
            nodes=len(model.graph.node),
            weights=sum(weights),
            largest=max(weights, default=0),
            work={"matrix": Work(1, 2000, 4096)},
            arena=4096,
        )

    def manifest(self) -> Manifest:
        """The kit's manifest, without hashes."""
        classes = len(self.classes)
        shapes = {"fc.weight": (classes, WIDTH), "fc.bias": (classes,), "scale": ()}
        return Manifest(
            version="0.1.0",
            network={"name": "tiny"},
            method={"name": "last"},
            task=self.task(self.classes, head=("fc.weight", "fc.bias")),
            size=self.size,
            mean=(0.485, 0.456, 0.406),
            std=(0.229, 0.224, 0.225),
            batch=self.batch,
            micro_batch=self.at_once,
            features=(WIDTH,) if self.frozen_part else None,
            embeddings=WIDTH if self.embeddings else None,
            parameters=tuple(ParameterSpec(name, shape) for name, shape in shapes.items()),
            statistics=(TensorSpec("norm.running_mean", (WIDTH,)),) if self.statistic else (),
            masks=(MaskSpec("drop.mask", (self.at_once, WIDTH), 0.75),) if self.masks else (),
            graphs={name: self._cost(model) for name, model in self._graphs().items()},
        )

    def state(self) -> dict[str, np.ndarray]:
        """The parameters and statistics that the kit starts from."""
        rng = np.random.default_rng(0)
        state = {
            "fc.weight": rng.normal(size=(len(self.classes), WIDTH)).astype(np.float32),
            "fc.bias": rng.normal(size=len(self.classes)).astype(np.float32),
            "scale": np.array(1.5, np.float32),
        }
        if self.statistic:
            state["norm.running_mean"] = rng.random(WIDTH).astype(np.float32)
        return state

    def frozen(self) -> np.ndarray:
        """Weights (pixels, WIDTH) of the frozen layer."""
        rng = np.random.default_rng(1)
        return rng.normal(scale=0.1, size=(3 * self.size**2, WIDTH)).astype(np.float32)

    def _features(self) -> onnx.ModelProto:
        return _model(self._front("features"), [self._images("N")], ["features"], self._constants())

    def _step(self) -> onnx.ModelProto:
        nodes = [] if self.frozen_part else self._front("features")
        nodes += self._forward(["drop.mask"] if self.masks else [])
        if self.task is Attributes:
            nodes += _attribute_loss(self.at_once)
            labels = _value("labels", _UINT8, [self.at_once, "classes"])
        else:
            nodes += _class_loss(self.at_once)
            labels = _value("labels", _INT64, [self.at_once])
        nodes += _backward()
        inputs = [self._start(self.at_once), labels, *self._state()]
        outputs = ["loss", "correct", "grad.fc.weight", "grad.fc.bias", "grad.scale"]
        if self.masks:
            inputs.append(_value("drop.mask", _FLOAT, [self.at_once, WIDTH]))
        if self.statistic:
            outputs.append("new.norm.running_mean")
            nodes += _new_mean()
        correct = _FLOAT if self.task is Attributes else _INT64
        return _model(nodes, inputs, outputs, self._constants(), correct)

    def _predict(self) -> onnx.ModelProto:
        nodes = [] if self.frozen_part else self._front("features")
        nodes += self._forward([])
        outputs = ["logits"]
        if self.embeddings:
            nodes.append(_node("Identity", ["x0"], "embeddings"))
            outputs.append("embeddings")
        return _model(nodes, [self._start("N"), *self._state()], outputs, self._constants())

    def _front(self, output: str) -> list[onnx.NodeProto]:
        return [
            _node("Cast", ["images"], "x", to=_FLOAT),
            _node("Div", ["x", "c255"], "pixels"),
            _node("Flatten", ["pixels"], "rows"),
            _node("MatMul", ["rows", "frozen"], "y"),
            _node("Relu", ["y"], output),
        ]

    def _forward(self, mask: list[str]) -> list[onnx.NodeProto]:
        mean = "norm.running_mean" if self.statistic else "zero"
        return [
            _node("Sub", ["features", mean], "y0"),
            _node("Mul", ["y0", mask[0] if mask else "one"], "x0"),
            _node("Gemm", ["x0", "fc.weight", "fc.bias"], "z", transB=1),
            _node("Mul", ["z", "scale"], "logits"),
        ]

    def _start(self, batch: int | str) -> onnx.ValueInfoProto:
        if self.frozen_part:
            return _value("features", _FLOAT, [batch, WIDTH])
        return self._images(batch)

    def _images(self, batch: int | str) -> onnx.ValueInfoProto:
        return _value("images", _UINT8, [batch, self.size, self.size, 3])

    def _state(self) -> list[onnx.ValueInfoProto]:
        shapes: dict[str, list[int | str]] = {
            "fc.weight": ["classes", WIDTH],
            "fc.bias": ["classes"],
            "scale": [],
        }
        if self.statistic:
            shapes["norm.running_mean"] = [WIDTH]
        return [_value(name, _FLOAT, shape) for name, shape in shapes.items()]

    def _constants(self) -> dict[str, np.ndarray]:
        return {
            "c255": np.array(255, np.float32),
            "frozen": self.frozen(),
            "zero": np.array(0, np.float32),
            "one": np.array(1, np.float32),
            "momentum": np.array(MOMENTUM, np.float32),
            "rest": np.array(1 - MOMENTUM, np.float32),
            "off_on": np.array([0, 1], np.float32),
            "axis1": np.array([1], np.int64),
            "axis0": np.array([0], np.int64),
        }


def _class_loss(batch: int) -> list[onnx.NodeProto]:
    return [
        _node("Shape", ["fc.bias"], "depth"),
        _node("OneHot", ["labels", "depth", "off_on"], "target"),
        _node("LogSoftmax", ["logits"], "log_p"),
        _node("Mul", ["target", "log_p"], "picked"),
        _node("ReduceSum", ["picked", "axis1"], "each", keepdims=0),
        _node("ReduceMean", ["each"], "mean_log_p", keepdims=0),
        _node("Neg", ["mean_log_p"], "loss"),
        _node("ArgMax", ["logits"], "guess", axis=1, keepdims=0),
        _node("Equal", ["guess", "labels"], "hit"),
        _node("Cast", ["hit"], "hit_int", to=_INT64),
        _node("ReduceSum", ["hit_int"], "correct", keepdims=0),
        _node("Exp", ["log_p"], "p"),
        _node("Sub", ["p", "target"], "g_sum"),
        _node("Constant", [], "b", value_float=float(batch)),
        _node("Div", ["g_sum", "b"], "g"),
    ]


def _attribute_loss(batch: int) -> list[onnx.NodeProto]:
    return [
        _node("Cast", ["labels"], "target", to=_FLOAT),
        _node("Softplus", ["logits"], "absent"),
        _node("Mul", ["target", "logits"], "present"),
        _node("Sub", ["absent", "present"], "each"),
        _node("ReduceMean", ["each"], "loss", keepdims=0),
        _node("Greater", ["logits", "zero"], "guess"),
        _node("Greater", ["target", "zero"], "truth"),
        _node("Equal", ["guess", "truth"], "hit"),
        _node("Cast", ["hit"], "hit_float", to=_FLOAT),
        _node("ReduceMean", ["hit_float"], "share", keepdims=0),
        _node("Constant", [], "b", value_float=float(batch)),
        _node("Mul", ["share", "b"], "correct"),
        _node("Sigmoid", ["logits"], "p"),
        _node("Sub", ["p", "target"], "g_sum"),
        _node("Size", ["logits"], "count"),
        _node("Cast", ["count"], "count_float", to=_FLOAT),
        _node("Div", ["g_sum", "count_float"], "g"),
    ]


def _backward() -> list[onnx.NodeProto]:
    return [
        _node("Mul", ["g", "z"], "gz"),
        _node("ReduceSum", ["gz"], "grad.scale", keepdims=0),
        _node("Mul", ["g", "scale"], "gs"),
        _node("Gemm", ["gs", "x0"], "grad.fc.weight", transA=1),
        _node("ReduceSum", ["gs", "axis0"], "grad.fc.bias", keepdims=0),
    ]


def _new_mean() -> list[onnx.NodeProto]:
    return [
        _node("ReduceMean", ["features", "axis0"], "m", keepdims=0),
        _node("Mul", ["m", "momentum"], "m1"),
        _node("Mul", ["norm.running_mean", "rest"], "m2"),
        _node("Add", ["m1", "m2"], "new.norm.running_mean"),
    ]


def _model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: Iterable[str],
    constants: dict[str, np.ndarray],
    correct: int = _INT64,
) -> onnx.ModelProto:
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "tiny",
        inputs,
        [_value(name, correct if name == "correct" else _FLOAT, None) for name in outputs],
        [numpy_helper.from_array(v, name) for name, v in constants.items() if name in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _node(operator: str, inputs: list[str], output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, [output], name=f"n_{output}", **attributes)


def _value(name: str, element: int, shape: list[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)
