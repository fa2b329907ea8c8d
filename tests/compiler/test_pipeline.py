"""From an adapted network to a kit."""

import copy
import platform
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import Tensor, nn

import pocketune
from pocketune.compiler import CompileError, compile, pipeline
from pocketune.compiler.capture.trace import running_statistics, trained_parameters
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.kit.names import BLOCKED_STEP, FEATURES, PARAMETERS, PREDICT, STEP
from pocketune.methods import (
    FullFineTune,
    LastLayer,
    Method,
    TopBlocks,
    adapt,
)
from pocketune.tasks import Attributes, Classification, numbered

from .networks import BATCH, CLASSES, HEAD, SIZE, tiny

SETTINGS: Any = {"batch": BATCH, "size": SIZE}
TASK = Classification(("a", "b", "ü"), label_smoothing=0.1)


def images(count: int, size: int = SIZE) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return adapt(tiny(dropout=0.2), TopBlocks(blocks=1))


@pytest.fixture(scope="module")
def kit(network: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Kit:
    out = tmp_path_factory.mktemp("kits") / "kit"
    return compile(network, out, task=TASK, **SETTINGS)


def models(kit: Kit) -> Iterator[tuple[str, onnx.ModelProto]]:
    for name in (FEATURES, STEP, PREDICT):
        if (kit.path / name).exists():
            yield name, onnx.load(kit.path / name)


def test_the_folder(kit: Kit) -> None:
    names = {file.name for file in kit.path.iterdir()}
    assert names == {"manifest.json", FEATURES, STEP, BLOCKED_STEP, PREDICT, PARAMETERS}
    assert Kit.open(kit.path).manifest == kit.manifest


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="no blocked kernels for this processor"
)
@pytest.mark.parametrize("wrong", [STEP, BLOCKED_STEP])
def test_both_graphs_of_a_step_are_compared(
    wrong: str, network: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = pipeline.block_depthwise

    def change(step: onnx.ModelProto) -> onnx.ModelProto | None:
        blocked = block(step)
        assert blocked is not None
        _negate((step if wrong == STEP else blocked).graph, "grad.classifier.bias")
        return blocked

    monkeypatch.setattr(pipeline, "block_depthwise", change)
    with pytest.raises(CompileError, match=r"in step [15]: gradient of classifier\.bias"):
        compile(network, tmp_path / "kit", task=TASK, **SETTINGS)


def _negate(graph: onnx.GraphProto, output: str) -> None:
    node = next(node for node in graph.node if output in node.output)
    node.output[[*node.output].index(output)] = "right"
    graph.node.append(onnx.helper.make_node("Neg", ["right"], [output], "wrong"))


def test_the_manifest(kit: Kit, network: Any) -> None:
    manifest = kit.manifest
    assert manifest.version == pocketune.__version__
    assert manifest.network == {"name": "TinyNetwork"}
    assert manifest.method == {"name": "blocks", "blocks": 1}
    assert (manifest.classes, manifest.size, manifest.batch) == (("a", "b", "ü"), SIZE, BATCH)
    assert manifest.features == (4, 8, 8)
    assert [spec.name for spec in manifest.parameters] == list(trained_parameters(network))
    assert [spec.name for spec in manifest.statistics] == list(running_statistics(network))
    assert [(spec.name, spec.shape) for spec in manifest.masks] == [("dropout.mask", (BATCH, 4))]
    assert manifest.task == replace(TASK, head=HEAD)
    assert manifest.graphs.keys() == {"features", "step", "predict"}


@pytest.mark.parametrize("name", ["features", "step", "predict"])
def test_the_manifest_counts_what_is_in_the_files(kit: Kit, name: str) -> None:
    graph = onnx.load(kit.path / f"{name}.onnx").graph
    weights = [tensor.ByteSize() for tensor in graph.initializer]
    spec = kit.manifest.graphs[name]
    assert (spec.nodes, spec.weights, spec.largest) == (
        len(graph.node),
        sum(weights),
        max(weights, default=0),
    )
    assert spec.memory > 0
    assert spec.flops > 0


def test_the_starting_values_are_the_networks(kit: Kit, network: nn.Module) -> None:
    state = kit.state()
    expected = {**trained_parameters(network), **running_statistics(network)}
    assert state.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(state[name], tensor.detach().numpy())


def test_a_zip_holds_the_same(kit: Kit, network: nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "kit.zip"
    packed = compile(network, path, task=TASK, **SETTINGS)
    assert [file.name for file in tmp_path.iterdir()] == ["kit.zip"]
    assert packed.manifest == kit.manifest  # with every file's hash: compiling is reproducible


def test_the_network_is_left_untouched(tmp_path: Path) -> None:
    network = adapt(tiny(dropout=0.2), FullFineTune()).train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    compile(network, tmp_path / "kit", **SETTINGS)
    assert isinstance(network.dropout, nn.Dropout)
    assert all(module.training for module in network.modules() if not _frozen(module))
    assert network.state_dict().keys() == before.keys()
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert all(p.grad is None and p.requires_grad for p in network.parameters())


def _frozen(module: nn.Module) -> bool:
    return type(module).__name__ == "FrozenBatchNorm2d"


@pytest.mark.parametrize("count", [0, 1, 3, 7])
def test_any_number_of_images_is_predicted(kit: Kit, network: Any, count: int) -> None:
    engine = OnnxEngine(kit, kit.state())
    logits = engine.predict(images(count))
    assert logits.shape == (count, CLASSES)
    pixels = torch.from_numpy(images(count)).permute(0, 3, 1, 2) / 255
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (kit.manifest.mean, kit.manifest.std))
    with torch.no_grad():
        expected = network.eval()((pixels - mean) / std).numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.parametrize("classes", [2, 7])
def test_other_classes_than_it_was_made_for(kit: Kit, classes: int) -> None:
    state = kit.state()
    state["classifier.weight"] = np.ones((classes, 4), np.float32) / 9
    state["classifier.bias"] = np.zeros(classes, np.float32)
    engine = OnnxEngine(kit, state)
    result = engine.gradients(images(BATCH), np.arange(BATCH) % classes, np.random.default_rng(0))
    assert result.values["classifier.weight"].shape == (classes, 4)
    assert result.loss == pytest.approx(np.log(classes), rel=1e-4)
    assert engine.predict(images(2)).shape == (2, classes)


def test_graphs_are_standard_onnx_without_trained_values(kit: Kit, network: nn.Module) -> None:
    trained = [p.detach().numpy() for p in trained_parameters(network).values()]
    for name, model in models(kit):
        assert {o.domain for o in model.opset_import} == {""}, name
        assert {node.domain for node in model.graph.node} == {""}, name
        constants = [numpy_helper.to_array(t) for t in model.graph.initializer]
        assert not any(
            c.size == p.size and p.size > 4 and np.array_equal(c.ravel(), p.ravel())
            for c in constants
            for p in trained
        )
        declared = {t.name for t in model.graph.input}
        assert not declared & {t.name for t in model.graph.initializer}


class _BackwardTimesTen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return g * 10 * (x == x)


class _Tenfold(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return _BackwardTimesTen.apply(x)


def test_a_backward_that_is_not_the_derivative_reaches_the_device(tmp_path: Path) -> None:
    results = []
    for layer in (nn.Identity(), _Tenfold()):
        network = adapt(tiny(), FullFineTune())
        network.pool = nn.Sequential(layer, network.pool)
        kit = compile(network, tmp_path / type(layer).__name__, **SETTINGS)
        engine = OnnxEngine(kit, kit.state())
        labels = np.arange(BATCH) % CLASSES
        results.append(engine.gradients(images(BATCH), labels, np.random.default_rng(0)))
    plain, custom = results
    assert custom.loss == pytest.approx(plain.loss)
    for name, gradient in plain.values.items():
        factor = 1 if name.startswith("classifier") else 10
        atol = 1e-4 * np.abs(gradient).max() * factor + 1e-5
        np.testing.assert_allclose(custom.values[name], gradient * factor, atol=atol)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 0}, "batch=0"),
        ({"batch": 2.5}, "batch=2.5"),
        ({"size": -1}, "size=-1"),
        ({"size": "64"}, "size='64'"),
        ({"task": Classification(("a",))}, "1 class and.*3 outputs.*classes=1"),
        ({"task": Attributes(("a", "b"))}, "2 attributes.*3 outputs.*classes=2"),
        ({"out": None}, "out=None must be a folder"),
        ({"out": "/dev/null"}, "null exists and is not a kit"),
        ({"out": "/dev/null/kit.zip"}, "null/kit.zip cannot be written: Not a directory"),
    ],
)
def test_bad_arguments_are_found_before_the_work(
    network: nn.Module,
    tmp_path: Path,
    change: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pocketune.compiler.prepare.build_graphs", pytest.fail)
    with pytest.raises(PocketuneError, match=message):
        compile(network, **{"out": tmp_path / "kit", **SETTINGS, **change})
    assert not list(tmp_path.iterdir())


def test_a_network_of_which_nothing_is_trained(tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match="nothing in this network is trained"):
        compile(tiny().requires_grad_(False), tmp_path / "kit", **SETTINGS)


def test_a_network_whose_classifier_is_frozen(tmp_path: Path) -> None:
    network = adapt(tiny(), TopBlocks(blocks=1))
    network.classifier.requires_grad_(False)
    with pytest.raises(PocketuneError, match="output layer classifier must be linear"):
        compile(network, tmp_path / "kit", **SETTINGS)


def test_an_operator_without_a_lowering_is_named(tmp_path: Path) -> None:
    network = adapt(tiny(), FullFineTune())
    network.pool = nn.Sequential(nn.LocalResponseNorm(2), network.pool)
    with pytest.raises(PocketuneError, match=r"aten\.avg_pool3d"):
        compile(network, tmp_path / "kit", **SETTINGS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", [FullFineTune(), TopBlocks(blocks=1)])
def test_random_layers_other_than_dropout_are_refused(method: Method, tmp_path: Path) -> None:
    """In the frozen part they would only widen what rounding is said to do."""
    network = adapt(tiny(), method)
    network.stem.append(nn.FeatureAlphaDropout(0.5))
    with pytest.raises(PocketuneError, match="random numbers"):
        compile(network, tmp_path / "kit", **SETTINGS)


def test_dropout_before_operators_without_weights_drops(tmp_path: Path) -> None:
    network = tiny()
    network.pool = nn.Sequential(nn.Dropout(0.5), nn.Sigmoid(), network.pool)
    kit = compile(adapt(network, LastLayer()), tmp_path / "kit", batch=BATCH, size=SIZE)
    assert [spec.name for spec in kit.manifest.masks] == ["pool.0.mask"]


def test_dropout_in_a_frozen_block_drops_nothing(tmp_path: Path) -> None:
    network = adapt(tiny(blocks=3), TopBlocks(blocks=1))
    for block in network.blocks[0], network.blocks[2]:
        block.excite = nn.Sequential(nn.Dropout(0.5), block.excite)
    kit = compile(network, tmp_path / "kit", **SETTINGS)
    assert [spec.name for spec in kit.manifest.masks] == ["blocks.2.excite.0.mask"]


def test_a_frozen_part_that_depends_on_training_is_refused(tmp_path: Path) -> None:
    class Louder(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * x if self.training else x

    network = adapt(tiny(blocks=3), TopBlocks(blocks=1))
    network.blocks[0].excite = nn.Sequential(Louder(), network.blocks[0].excite)
    with pytest.raises(PocketuneError, match="computes something else in training than in eval"):
        compile(network, tmp_path / "kit", **SETTINGS)


def test_whole_numbers_for_label_smoothing(tmp_path: Path) -> None:
    task = Classification(numbered(CLASSES), label_smoothing=0)
    kit = compile(adapt(tiny(), LastLayer()), tmp_path / "kit", task=task, **SETTINGS)
    assert Kit.open(kit.path).manifest.task == replace(task, head=HEAD)


def test_no_scratch_files_stay(
    network: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    compile(network, tmp_path / "kit", **SETTINGS)
    assert not list(scratch.iterdir())


def test_batch_statistics_of_one_image_are_warned_of(network: nn.Module, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="holds one image; give a batch of 2"):
        compile(network, tmp_path / "kit", batch=1, size=SIZE)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"task": "classification"}, "task='classification' is not a Task; give one with the name"),
        ({"calibration": np.zeros((4, 8, 8, 3), np.uint8)}, "calibration is a ndarray; give Calib"),
    ],
)
def test_what_is_no_task_or_calibration(
    network: nn.Module, tmp_path: Path, argument: dict[str, Any], message: str
) -> None:
    with pytest.raises(PocketuneError, match=message):
        compile(network, tmp_path / "kit", **SETTINGS, **argument)


def test_networks_that_a_kit_cannot_hold(network: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match="must be a PyTorch module"):
        compile("mobilenet_v2", tmp_path / "kit", **SETTINGS)  # type: ignore[arg-type]
    with pytest.raises(PocketuneError, match="is float16, and a kit computes in float32"):
        compile(copy.deepcopy(network).half(), tmp_path / "kit", **SETTINGS)
