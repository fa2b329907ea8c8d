"""Graphs of every method, small enough for any runtime, with what ONNX Runtime computes."""

import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import safetensors.numpy
import torch
from numpy.typing import NDArray
from torch import nn

from pocketune.compiler.capture.trace import running_statistics, trained_parameters
from pocketune.compiler.prepare import Prepared, prepare
from pocketune.compiler.quantize.static import MinMax, StaticQuantizer, measure_ranges
from pocketune.device.engine.base import draw_masks
from pocketune.device.engine.session import open_session
from pocketune.methods import LastLayer, TopBlocks, adapt, list_methods
from pocketune.objectives import objective_of
from pocketune.tasks import Attributes, numbered

from ..compiler.dense_networks import SIZE as DENSE_SIZE
from ..compiler.dense_networks import TASK as SEGMENTATION
from ..compiler.dense_networks import dense
from ..methods.examples import example_method
from ..networks.small import small_mobilenet

Arrays = Mapping[str, NDArray[Any]]

BATCH, SIZE, CLASSES = 2, 16, 3
NAMES = [*list_methods(), "attributes", "segmentation", "8-bit"]
"""Every method, every task, and a frozen part that computes with integers."""

TOLERANCE = 1e-4
"""Largest error of a tensor, as a share of its largest magnitude."""
OF_INTEGERS = 0.02
"""The same where integers are rounded, and a tie may go either way."""
FLOOR = 1e-6
"""Error that is always allowed: some gradients are zero except for rounding."""


@dataclass(frozen=True)
class Case:
    """The graphs of a kit with one set of inputs.

    Attributes:
        name: One of `NAMES`.
        models: The graphs by name.
        feeds: The inputs of each graph.
        expected: Its outputs, by name.
    """

    name: str
    models: dict[str, onnx.ModelProto]
    feeds: dict[str, Arrays]
    expected: dict[str, Arrays]

    def write(self, folder: Path) -> None:
        """Write GRAPH.onnx and GRAPH.feeds.safetensors for each graph, for another process."""
        folder.mkdir()
        for graph, model in self.models.items():
            onnx.save(model, folder / f"{graph}.onnx")
            feeds = safetensors.numpy.save(dict(self.feeds[graph]))
            (folder / f"{graph}.feeds.safetensors").write_bytes(feeds)

    def check(self, graph: str, found: Arrays, *, without: Collection[str] = ()) -> None:
        """Compare the outputs of a graph, `without` some, with ONNX Runtime's."""
        assert found.keys() == self.expected[graph].keys() - set(without)
        rounded = (self.name, graph) == ("8-bit", "features")
        for name in found:
            truth = self.expected[graph][name]
            assert found[name].shape == truth.shape, f"{graph}: the shape of {name}"
            truth = truth.astype(np.float64)
            error = np.abs(found[name] - truth).max()
            allowed = max((OF_INTEGERS if rounded else TOLERANCE) * np.abs(truth).max(), FLOOR)
            assert error <= allowed, f"{graph}: {name} is off by {error:.1e} of {allowed:.1e}"


@cache
def case(name: str) -> Case:
    """The case of this name; made once."""
    prepared, rng = _prepared(name), np.random.default_rng(0)
    graphs, settings = prepared.graphs, prepared.settings
    models = {"step": graphs.step, "predict": graphs.predict}
    images = rng.integers(0, 256, (BATCH, settings.size, settings.size, 3), dtype=np.uint8)
    if graphs.features is not None:
        whole = name == "8-bit"
        models["features"] = _in_integers(graphs.features, images) if whole else graphs.features
    tensors = {**trained_parameters(prepared.network), **running_statistics(prepared.network)}
    label_shape = (BATCH, *settings.task.label_shape(settings.size))
    values = {
        "images": images,
        "labels": objective_of(settings.task).draw_labels(rng, label_shape),
        **{key: tensor.detach().numpy() for key, tensor in tensors.items()},
        **{key: value + 1 for key, value in settings.task.step_inputs(CLASSES).items()},
        **draw_masks(prepared.masks, rng),
    }
    feeds, expected = {}, {}
    for graph in ("features", "step", "predict"):
        if graph in models:
            wanted = [i.name for i in models[graph].graph.input]
            feeds[graph] = {key: np.ascontiguousarray(values[key]) for key in wanted}
            expected[graph] = _computed(models[graph], feeds[graph])
            values |= expected[graph]  # the features
    return Case(name, models, feeds, expected)


def compute(folder: Path, command: Sequence[str | Path], seconds: float) -> Path:
    """Write every case into a folder and let a command compute them all; the folder."""
    for name in NAMES:
        case(name).write(folder / name)
    done = subprocess.run(
        [*command, folder], capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def check_computed(name: str, folder: Path) -> None:
    """Compare what the command of `compute` found for a case."""
    made = case(name)
    for graph in made.models:
        made.check(graph, safetensors.numpy.load_file(folder / name / f"{graph}.found.safetensors"))


def _prepared(name: str) -> Prepared:
    torch.manual_seed(4)
    if name == "segmentation":
        adapted = adapt(dense(), TopBlocks(blocks=1))
        return prepare(adapted, batch=BATCH, size=DENSE_SIZE, task=SEGMENTATION)
    network = small_mobilenet(CLASSES)
    for norm in network.modules():
        if isinstance(norm, nn.BatchNorm2d):  # without shifts, constant channels lie on the kink
            nn.init.normal_(norm.bias, 0, 0.2)
            norm.running_mean.normal_(0, 0.2)
    method = example_method(name, "mobilenet_v2") if name in list_methods() else LastLayer()
    task = Attributes(numbered(CLASSES)) if name == "attributes" else None
    return prepare(adapt(network, method), batch=BATCH, size=SIZE, task=task)


def _in_integers(features: onnx.ModelProto, images: NDArray[np.uint8]) -> onnx.ModelProto:
    return StaticQuantizer(features, measure_ranges(features, images, MinMax)).quantize()


def _computed(model: onnx.ModelProto, feeds: Arrays) -> Arrays:
    """What ONNX Runtime computes node by node, integers as floats."""
    session = open_session(model.SerializeToString(), as_written=True)
    names = [output.name for output in model.graph.output]
    return dict(zip(names, session.run(names, feeds), strict=True))
