"""The check refuses each of many faults in a graph, and nothing else.

The graphs are those of a small network with a frozen block in 8 bits and a trained one, whose relu6
clips on both sides. It has as many classes as images in a batch, so that axes can be mixed up.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto
from torch import nn

from pocketune.compiler import check as check_module
from pocketune.compiler.check import CompileError, check_engine
from pocketune.compiler.graphs import Graphs
from pocketune.compiler.passes.activations import NORMALIZED
from pocketune.compiler.pipeline import _write_files
from pocketune.compiler.prepare import Prepared, prepare
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.kit.writer import write_kit
from pocketune.methods import TopBlocks, adapt
from pocketune.tasks import Classification, numbered

from .edits import Array, Edits, attribute
from .networks import CLASSES, HEAD, tiny

BATCH, SIZE = CLASSES, 8
TASK = Classification(numbered(CLASSES), HEAD, label_smoothing=0.1)
EXPAND, DEPTHWISE, PROJECT = "blocks.1.expand", "blocks.1.depthwise", "blocks.1.project"
EXCITE = "blocks.1.excite"


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    network = tiny(blocks=2, channels=16, dropout=0.3)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 3, 6)
    nn.init.normal_(network.classifier.bias)
    adapted = adapt(network, TopBlocks(blocks=1), frozen_bits=8)
    return prepare(adapted, batch=BATCH, size=SIZE, task=TASK)


def check(prepared: Prepared, graphs: Graphs, folder: Path) -> None:
    files = _write_files(graphs, prepared.network, folder)
    kit = write_kit(folder / "kit", prepared.manifest, files)
    check_engine(OnnxEngine(kit, kit.state()), prepared.network, prepared.settings, prepared.masks)


Fault = Callable[[Edits, Prepared], None]
FAULTS: dict[tuple[str, str], Fault] = {}


def fault(graph: str, name: str) -> Callable[[Fault], Fault]:
    """Register a fault by its graph and name."""

    def register(function: Fault) -> Fault:
        assert (graph, name) not in FAULTS
        FAULTS[graph, name] = function
        return function

    return register


# ---- the frozen part


def depthwise(graph: Edits) -> NodeProto:
    """The first depthwise convolution."""
    return next(n for n in graph.nodes("Conv") if any(a.name == "group" for a in n.attribute))


def transposed(kernel: Array) -> Array:
    return kernel.swapaxes(-1, -2)


@fault("features", "a wrong pad")
def _(graph: Edits, _: Prepared) -> None:
    attribute(graph.nodes("Conv")[0], "pads", [0, 1, 2, 1])


@fault("features", "a wrong pad of a depthwise convolution")
def _(graph: Edits, _: Prepared) -> None:
    attribute(depthwise(graph), "pads", [1, 2, 1, 0])


@fault("features", "a transposed kernel")
def _(graph: Edits, _: Prepared) -> None:
    graph.constant(graph.made(depthwise(graph).input[1]), 0, transposed)


@fault("features", "kernels of other channels")
def _(graph: Edits, _: Prepared) -> None:
    graph.constant(graph.nodes("DequantizeLinear")[0], 0, lambda k: np.roll(k, 1, 0))


@fault("features", "an integer scale off by a hundredth")
def _(graph: Edits, _: Prepared) -> None:
    graph.constant(graph.nodes("DequantizeLinear")[0], 1, lambda scales: scales * 1.01)


@fault("features", "the integer scale of one channel off by a hundredth")
def _(graph: Edits, _: Prepared) -> None:
    largest = graph.nodes("DequantizeLinear")[-1]
    graph.constant(largest, 1, lambda s: np.where(s == s.max(), s * 1.01, s))


@fault("features", "a wrong zero point")
def _(graph: Edits, _: Prepared) -> None:
    node = graph.nodes("DequantizeLinear")[0]
    graph.read(node, 2, np.ones(graph.value(node.input[1]).shape, np.int8))


@fault("features", "a bias off by a hundredth")
def _(graph: Edits, _: Prepared) -> None:
    graph.constant(graph.nodes("Conv")[0], 2, lambda bias: bias * 1.01)


@fault("features", "relu6 without its upper bound")
def _(graph: Edits, _: Prepared) -> None:
    graph.unbounded(graph.nodes("Clip")[0], 2)


@fault("features", "relu6 without its lower bound")
def _(graph: Edits, _: Prepared) -> None:
    graph.unbounded(graph.nodes("Clip")[1], 1)


@fault("features", "no residual")
def _(graph: Edits, _: Prepared) -> None:
    graph.without(graph.made("features"))


@fault("features", "no squeeze and excitation")
def _(graph: Edits, _: Prepared) -> None:
    graph.without(graph.nodes("Mul")[-1])


@fault("features", "a wrong slope of the hard sigmoid")
def _(graph: Edits, _: Prepared) -> None:
    attribute(graph.nodes("HardSigmoid")[0], "alpha", 0.2)


@fault("features", "colors in another order")
def _(graph: Edits, _: Prepared) -> None:
    graph.constant(graph.nodes("Mul")[0], 1, lambda deviations: np.roll(deviations, 1))


@fault("features", "a mean of the colors off by a hundredth")
def _(graph: Edits, _: Prepared) -> None:
    graph.constant(graph.nodes("Add")[0], 1, lambda means: means * 1.01)


@fault("features", "rows and columns of the images swapped")
def _(graph: Edits, _: Prepared) -> None:
    attribute(graph.nodes("Transpose")[0], "perm", [0, 3, 2, 1])


# ---- the step, forward


@fault("step", "relu6 without its upper bound")
def _(graph: Edits, _: Prepared) -> None:
    graph.unbounded(graph.nodes("Clip")[1], 2)


@fault("step", "a wrong pad")
def _(graph: Edits, _: Prepared) -> None:
    attribute(graph.nodes("Conv", f"{DEPTHWISE}.0.weight")[0], "pads", [1, 2, 1, 0])


@fault("step", "a wrong epsilon")
def _(graph: Edits, _: Prepared) -> None:
    graph.constant(graph.made(graph.nodes("Sqrt")[1].input[0]), 1, lambda _: 1e-3)


@fault("step", "a scale without its shift")
def _(graph: Edits, _: Prepared) -> None:
    scale = next(node for node in graph.nodes("Mul") if node.name.startswith(NORMALIZED))
    shift = graph.nodes("Add", scale.output[0])[0]
    graph.without(shift)


@fault("step", "no dropout")
def _(graph: Edits, _: Prepared) -> None:
    graph.without(graph.nodes("Mul", "dropout.mask")[0], "dropout.mask")


@fault("step", "no label smoothing")
def _(graph: Edits, _: Prepared) -> None:
    off = graph.made("target", "Concat", "Div")
    on = graph.made("target", "Concat", "Add")
    graph.constant(off, 0, np.zeros_like)
    graph.constant(on, 1, np.ones_like)


@fault("step", "a loss that is summed over the images")
def _(graph: Edits, _: Prepared) -> None:
    graph.constant(graph.made("loss"), 1, lambda share: share * BATCH)


@fault("step", "a stale parameter")
def _(graph: Edits, prepared: Prepared) -> None:
    stale(graph, prepared, "Gemm", "classifier.weight")


def stale(graph: Edits, prepared: Prepared, op: str, name: str) -> None:
    """Let the first node of a type that reads a tensor read its initial value."""
    reader = graph.nodes(op, name)[0]
    value = prepared.network.state_dict()[name].numpy().copy()
    graph.read(reader, [*reader.input].index(name), value)


# ---- running statistics


def shares(graph: Edits, statistic: str) -> tuple[NodeProto, NodeProto]:
    """The products of the old and the new statistic with their shares of the running one."""
    old, new = (graph.made(name) for name in graph.made(f"new.{statistic}").input)
    assert statistic in old.input
    return old, new


@fault("step", "a stale running statistic")
def _(graph: Edits, _: Prepared) -> None:
    name = f"{DEPTHWISE}.1.running_mean"
    graph.instead(f"new.{name}", name)


@fault("step", "a wrong momentum")
def _(graph: Edits, _: Prepared) -> None:
    old, new = shares(graph, f"{EXPAND}.1.running_mean")
    graph.constant(old, 1, lambda _: 0.99)
    graph.constant(new, 1, lambda _: 0.01)


@fault("step", "a running variance with its bias")
def _(graph: Edits, _: Prepared) -> None:
    _old, new = shares(graph, f"{DEPTHWISE}.1.running_var")
    graph.constant(new, 1, lambda _: 0.1)


@fault("step", "swapped statistics")
def _(graph: Edits, _: Prepared) -> None:
    graph.swap(f"new.{EXPAND}.1.running_mean", f"new.{DEPTHWISE}.1.running_mean")


# ---- the step, backward


def masked(graph: Edits) -> NodeProto:
    """The gradient behind the mask of the relu6 after the depthwise convolution."""
    return graph.made(f"grad.{DEPTHWISE}.1.bias", "Mul")


@fault("step", "no mask of relu6")
def _(graph: Edits, _: Prepared) -> None:
    node = masked(graph)
    graph.without(node, graph.made(node.output[0], "Cast").output[0])


@fault("step", "a mask of relu6 without the upper bound")
def _(graph: Edits, _: Prepared) -> None:
    graph.without(graph.made(masked(graph).output[0], "Cast", "And"))


@fault("step", "no dropout in the backward pass")
def _(graph: Edits, _: Prepared) -> None:
    graph.without(graph.nodes("Mul", "dropout.mask")[1], "dropout.mask")


@fault("step", "a gradient that is summed over the images")
def _(graph: Edits, _: Prepared) -> None:
    graph.constant(graph.made("grad.classifier.weight", "Mul"), 1, lambda share: share * BATCH)


@fault("step", "a sum over the wrong axis")
def _(graph: Edits, _: Prepared) -> None:
    graph.constant(graph.made("grad.classifier.bias", "ReduceSum"), 1, lambda _: [1])


@fault("step", "swapped gradients")
def _(graph: Edits, _: Prepared) -> None:
    graph.swap(f"grad.{EXPAND}.1.bias", f"grad.{DEPTHWISE}.1.bias")


@fault("step", "a gradient of the other sign")
def _(graph: Edits, _: Prepared) -> None:
    attribute(graph.made(f"grad.{PROJECT}.0.weight", "Gemm"), "alpha", -1.0)


@fault("step", "a gradient off by a hundredth")
def _(graph: Edits, _: Prepared) -> None:
    attribute(graph.made(f"grad.{EXCITE}.fc2.weight", "Gemm"), "alpha", 1.01)


@fault("step", "a kernel that is not turned for the gradient of its input")
def _(graph: Edits, _: Prepared) -> None:
    graph.constant(graph.nodes("Gather")[0], 1, np.sort)


@fault("step", "no gradient through the squeeze and excitation")
def _(graph: Edits, _: Prepared) -> None:
    graph.without(graph.made(graph.made(masked(graph).output[0], "Reshape").output[0], "Add"))


@fault("step", "no gradient through the statistics of a batch")
def _(graph: Edits, _: Prepared) -> None:
    graph.without(graph.made(f"grad.{EXPAND}.0.weight", "Mul", "Sub"))


@fault("step", "a gradient of a scale that is not divided by the deviation")
def _(graph: Edits, _: Prepared) -> None:
    product = graph.made(f"grad.{DEPTHWISE}.1.weight")
    graph.without(product, graph.made(product.output[0], "Reciprocal").output[0])


@fault("step", "a stale parameter in the backward pass")
def _(graph: Edits, prepared: Prepared) -> None:
    node = graph.nodes("Gemm", "classifier.weight")[-1]
    graph.read(node, 1, prepared.network.state_dict()["classifier.weight"].numpy().copy())


# ---- the prediction


@fault("predict", "relu6 without its upper bound")
def _(graph: Edits, _: Prepared) -> None:
    graph.unbounded(graph.nodes("Clip")[0], 2)


@fault("predict", "a wrong epsilon")
def _(graph: Edits, _: Prepared) -> None:
    graph.constant(graph.nodes("Add", f"{DEPTHWISE}.1.running_var")[0], 1, lambda _: 1e-2)


@fault("predict", "a stale running statistic")
def _(graph: Edits, prepared: Prepared) -> None:
    stale(graph, prepared, "Sub", f"{PROJECT}.1.running_mean")


@fault("predict", "a stale parameter")
def _(graph: Edits, prepared: Prepared) -> None:
    stale(graph, prepared, "Mul", f"{EXPAND}.1.weight")


@fault("predict", "no residual")
def _(graph: Edits, _: Prepared) -> None:
    graph.without(graph.made("embeddings", "Reshape", "Add"))


@fault("predict", "no bias of the classifier")
def _(graph: Edits, _: Prepared) -> None:
    del graph.made("logits").input[2]


@fault("predict", "embeddings off by a hundredth")
def _(graph: Edits, _: Prepared) -> None:
    graph.instead("embeddings", "embeddings.right")
    node = graph.made("embeddings")
    node.op_type = "Mul"
    graph.read(node, 1, np.array(1.01, np.float32))


# ---- the tests


def test_the_graphs_are_right_without_a_fault(prepared: Prepared, tmp_path: Path) -> None:
    check(prepared, prepared.graphs, tmp_path)


@pytest.mark.parametrize(("graph", "name"), FAULTS)
def test_a_fault_is_refused(
    graph: str, name: str, prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_module, "ATTEMPTS", 2)  # more take longer, and find the same
    model = onnx.ModelProto()
    model.CopyFrom(getattr(prepared.graphs, graph))
    FAULTS[graph, name](Edits(model), prepared)
    onnx.checker.check_model(model)
    with pytest.raises(CompileError):
        check(prepared, replace(prepared.graphs, **{graph: model}), tmp_path)
