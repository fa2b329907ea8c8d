"""A compiled step that is wrong is found, one that is right is not."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from pocketune.compiler import Calibration, CompileError, compile
from pocketune.compiler import prepare as prepare_module
from pocketune.compiler.capture.dropout import supply_masks
from pocketune.compiler.capture.trace import check_norms
from pocketune.compiler.check import _moved, _settled, check_engine
from pocketune.compiler.graphs import Graphs, build_graphs
from pocketune.compiler.settings import CompileSettings
from pocketune.device.engine.base import Gradients
from pocketune.eager.engine import TorchEngine
from pocketune.errors import PocketuneError
from pocketune.methods import BiasAndLast, FullFineTune, LastLayer, TopBlocks, adapt
from pocketune.tasks import Classification, numbered

from .networks import BATCH, CLASSES, HEAD, SIZE, tiny

TASK = Classification(numbered(CLASSES), HEAD, label_smoothing=0.1)
SETTINGS: Any = {"batch": BATCH, "size": SIZE, "task": TASK}
COMPILED = CompileSettings(**SETTINGS)


@pytest.fixture
def network() -> nn.Module:
    return adapt(tiny(dropout=0.3), FullFineTune())


class Wrong(TorchEngine):
    """An engine with one number changed."""

    def __init__(self, network: nn.Module, tensor: str, factor: float) -> None:
        super().__init__(copy.deepcopy(network), **SETTINGS)
        self._wrong, self._factor = tensor, factor

    def gradients(self, *args: Any) -> Gradients:
        result = super().gradients(*args)
        values = {name: value.copy() for name, value in result.values.items()}
        if self._wrong in values:
            values[self._wrong].flat[0] += self._factor * np.abs(values[self._wrong]).max()
        if self._wrong in self.statistics:
            self.statistics[self._wrong][0] *= 1 + self._factor
        loss = result.loss * (1 + self._factor) if self._wrong == "loss" else result.loss
        return Gradients(loss, result.metrics, values)

    def predict(self, images: Any) -> Any:
        logits = super().predict(images)
        return logits * (1 + self._factor) if self._wrong == "predictions" else logits

    def embed(self, images: Any) -> Any:
        inputs = super().embed(images)
        return inputs * (1 + self._factor) if self._wrong == "embeddings" else inputs


def check(network: nn.Module, tensor: str, factor: float) -> None:
    masks = supply_masks(network, BATCH, SIZE)
    engine = Wrong(network, tensor, factor)
    check_engine(engine, network, COMPILED, masks, steps=2)


def test_pytorch_agrees_with_itself(network: nn.Module) -> None:
    masks = supply_masks(network, BATCH, SIZE)
    engine = TorchEngine(copy.deepcopy(network), **SETTINGS)
    worst = check_engine(engine, network, COMPILED, masks, steps=2)
    assert 0 < worst.share <= 1


class AtBorder(TorchEngine):
    """An engine that is wrong for the values of its first step, whatever the images."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__(copy.deepcopy(network), **SETTINGS)
        self._calls: list[float] = []

    def gradients(self, *args: Any) -> Gradients:
        result = super().gradients(*args)
        bias = self.parameters["classifier.bias"]
        self._calls.append(bias[0])
        if bias[0] in self._calls[1:2]:  # the call before settles the running means
            result.values["classifier.bias"][0] += 1
        return result


def test_a_value_at_a_border_with_all_images_is_moved_off_it(network: nn.Module) -> None:
    masks = supply_masks(network, BATCH, SIZE)
    engine = AtBorder(network)
    assert check_engine(engine, network, COMPILED, masks, steps=2).share <= 1


def test_running_means_start_near_those_of_the_batches(network: nn.Module) -> None:
    supply_masks(network, BATCH, SIZE)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (BATCH, SIZE, SIZE, 3)).astype(np.uint8)
    labels = rng.integers(0, CLASSES, BATCH)
    name, norm = next((n, m) for n, m in network.named_modules() if isinstance(m, nn.BatchNorm2d))
    inputs: list[Tensor] = []
    norm.register_forward_pre_hook(lambda _, args: inputs.append(args[0].detach()))
    engine = TorchEngine(network, **SETTINGS)
    settled = _settled(engine, network, images, labels)
    x = inputs[-1]
    np.testing.assert_allclose(settled[f"{name}.running_mean"], x.mean((0, 2, 3)), rtol=1e-4)


@pytest.mark.parametrize(
    ("tensor", "named"),
    [
        ("loss", "in step 1: loss"),
        ("classifier.bias", "in step 1: gradient of classifier.bias"),
        ("blocks.0.depthwise.0.weight", "in step 1: gradient of blocks.0.depthwise.0.weight"),
        ("stem.1.running_var", "in step 1: new stem.1.running_var"),
        ("predictions", "after step 2: predictions"),
        ("embeddings", "after step 2: embeddings"),
    ],
)
def test_a_hundredth_too_much_is_found_and_named(
    network: nn.Module, tensor: str, named: str
) -> None:
    with pytest.raises(CompileError, match=rf"{named} is off by .*no kit was written"):
        check(network, tensor, 0.01)


def test_the_last_step_may_be_of_another_engine(network: nn.Module) -> None:
    masks = supply_masks(network, BATCH, SIZE)
    right = TorchEngine(copy.deepcopy(network), **SETTINGS)
    wrong = Wrong(network, "classifier.bias", 0.01)
    with pytest.raises(CompileError, match=r"in step 2: gradient of classifier\.bias"):
        check_engine(right, network, COMPILED, masks, last=wrong, steps=2)


def test_what_is_not_a_number_is_found(network: nn.Module) -> None:
    with pytest.raises(CompileError, match="loss"):
        check(network, "loss", float("nan"))


class Root(nn.Module):
    """The gradient of a root has no value at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.fc = nn.Conv2d(3, 4, 3, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        scores: Tensor = self.fc((x - x.detach() + x.mean() * 0).sqrt().mean((2, 3)))
        return scores


def test_gradients_that_are_not_finite_in_pytorch_are_told(tmp_path: Path) -> None:
    said = r"PyTorch's own gradient of stem.weight is not finite in step 1, on random images"
    with pytest.raises(CompileError, match=said):
        compile(adapt(Root(), FullFineTune()), tmp_path / "kit", batch=2, size=16)


def test_values_are_moved_and_a_variance_of_zero_stays_a_variance() -> None:
    state = {"running_var": np.zeros(50, np.float32), "weight": np.ones(50, np.float32)}
    moved = _moved(state, np.random.default_rng(0))
    assert (moved["running_var"] > 0).all()
    assert (moved["weight"] != 1).all()


def test_the_networks_own_values_stay(network: nn.Module) -> None:
    masks = supply_masks(network, BATCH, SIZE)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    engine = TorchEngine(copy.deepcopy(network), **SETTINGS)
    check_engine(engine, network, COMPILED, masks, steps=1)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name])


class Drifts(nn.Module):
    """Counts its steps in a buffer, by which it predicts; no kit has that."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("nothing", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
            return x * (1 + self.nothing)
        return x * (1 + self.seen)


def test_a_buffer_that_only_pytorch_changes_is_no_rounding(tmp_path: Path) -> None:
    network = tiny()
    network.pool = nn.Sequential(Drifts(), network.pool)
    with pytest.raises(CompileError, match="after step 5: embeddings is off by"):
        compile(adapt(network, LastLayer()), tmp_path / "kit", **SETTINGS)


def test_running_statistics_that_a_kit_would_not_update_are_refused(tmp_path: Path) -> None:
    network = tiny()
    network.pool = nn.Sequential(nn.InstanceNorm2d(4, track_running_stats=True), network.pool)
    with pytest.raises(PocketuneError, match=r"pool\.0 is a InstanceNorm2d with running statist"):
        compile(adapt(network, LastLayer()), tmp_path / "kit", **SETTINGS)
    check_norms(nn.InstanceNorm2d(4))


def test_what_is_done_is_told_in_order(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    network = adapt(tiny(), TopBlocks(blocks=1), frozen_bits=8)
    images = np.random.default_rng(0).integers(0, 256, (4, SIZE, SIZE, 3), np.uint8)
    options = {"calibration": Calibration(images), "progress": lambda *seen: told.append(seen)}
    compile(network, tmp_path / "kit", **SETTINGS, **options)
    names, shares = zip(*told, strict=True)
    steps = [f"comparing step {step} of 5 with PyTorch" for step in range(1, 6)]
    last = "measuring the frozen part in 8 bits"
    assert names == ("tracing the training step", *steps, last)
    assert list(shares) == sorted({*shares})
    assert shares[0] == 0
    assert shares[-1] < 1


def corrupt(model: onnx.ModelProto) -> None:
    """Change the largest constant of a graph by one per cent."""
    constants = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    chosen = max(constants, key=lambda t: np.prod(t.dims))
    chosen.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(chosen) * 1.01, chosen.name))


@pytest.mark.parametrize("graph", ["features", "step", "predict"])
def test_a_corrupted_graph_is_not_written(
    graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*args: Any, **kwargs: Any) -> Graphs:
        graphs = build_graphs(*args, **kwargs)
        corrupt(getattr(graphs, graph))
        return graphs

    monkeypatch.setattr(prepare_module, "build_graphs", build)
    method = TopBlocks(blocks=1) if graph == "features" else BiasAndLast()
    with pytest.raises(CompileError, match="is off by"):
        compile(adapt(tiny(), method), tmp_path / "kit", **SETTINGS)
    assert not list(tmp_path.iterdir())
