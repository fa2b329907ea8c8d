"""A frozen part in 8 bits: near enough to float32, or kept in it."""

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from torch import nn

from pocketune.compiler import Calibration, compile
from pocketune.compiler.passes.liveness import fused
from pocketune.compiler.passes.schedule import order_for_memory
from pocketune.compiler.passes.sizes import tensor_bytes
from pocketune.compiler.quantize import search as quantize
from pocketune.compiler.quantize.error import FeatureError, Judge, relative_error, run_features
from pocketune.compiler.quantize.search import quantize_features
from pocketune.compiler.quantize.static import (
    MinMax,
    Percentile,
    StaticQuantizer,
    measure_ranges,
)
from pocketune.data import Loader, load_splits
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.engine.session import Graph, open_session
from pocketune.device.use.export import export
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import Quantization
from pocketune.kit.names import FEATURES
from pocketune.methods import FullFineTune, LastLayer, TopBlocks, adapt
from pocketune.weights import create_network

from ..networks import tiny

SIZE, COUNT = 32, 24


def pictures(count: int = COUNT, size: int = SIZE) -> Calibration:
    """Smooth pictures of three classes, each brighter in another color."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(count) % 3)
    coarse = rng.random((count, 4, 4, 3)).repeat(size // 4, axis=1).repeat(size // 4, axis=2)
    coarse[np.arange(count), :, :, labels] += 0.5
    return Calibration((coarse * 170).astype(np.uint8), labels)


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return adapt(tiny(channels=16), LastLayer())


@pytest.fixture(scope="module")
def kits(network: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kit]:
    folder = tmp_path_factory.mktemp("kits")
    settings: Any = {"batch": 2, "size": SIZE}
    return {
        "float": compile(network, folder / "float", **settings),
        "weights": compile(network, folder / "weights", frozen_bits=8, **settings),
        "integer": compile(
            network, folder / "integer", frozen_bits=8, calibration=pictures(), **settings
        ),
    }


def features(kit: Kit) -> onnx.ModelProto:
    return onnx.load(kit.path / FEATURES)


def test_the_interface_stays(kits: dict[str, Kit]) -> None:
    for kit in kits.values():
        graph = features(kit).graph
        assert [(v.name, v.type.tensor_type.elem_type) for v in graph.input] == [("images", 2)]
        assert [(v.name, v.type.tensor_type.elem_type) for v in graph.output] == [("features", 1)]
        logits = OnnxEngine(kit, kit.state()).predict(pictures().images[:3])
        assert logits.shape == (3, 3)


def test_only_standard_operators_are_used(kits: dict[str, Kit]) -> None:
    for kit in kits.values():
        model = features(kit)
        assert [opset.domain for opset in model.opset_import] == [""]
        assert {node.domain for node in model.graph.node} == {""}
        onnx.checker.check_model(model, full_check=True)


def test_weights_are_int8_per_channel(kits: dict[str, Kit]) -> None:
    for name in ("weights", "integer"):
        tensors = {t.name: numpy_helper.to_array(t) for t in features(kits[name]).graph.initializer}
        kernels = [t for t in tensors.values() if t.ndim == 4 and t.size >= 256]
        assert kernels
        assert {kernel.dtype for kernel in kernels} == {np.dtype(np.int8)}


def test_the_error_is_the_manifests(kits: dict[str, Kit]) -> None:
    calibration = pictures()
    cost = kits["integer"].manifest.quantization
    assert cost is not None
    assert cost.activations == 8
    assert cost.images == len(calibration.held_out) == COUNT // 2
    images = calibration.images[calibration.held_out]
    truth, values = (_run(kits[name], images) for name in ("float", "integer"))
    assert cost.error == pytest.approx(relative_error(values, truth), rel=1e-6)
    assert 0 < cost.error <= quantize.ERROR_BOUND
    assert kits["weights"].manifest.quantization == Quantization(activations=32)
    assert kits["float"].manifest.quantization is None


def _run(kit: Kit, images: np.ndarray) -> np.ndarray:
    return run_features(features(kit), images)


def test_the_device_computes_what_was_judged(kits: dict[str, Kit]) -> None:
    images = pictures().images[:1]
    np.testing.assert_array_equal(
        _on_device(kits["integer"], images), _run(kits["integer"], images)
    )


def _on_device(kit: Kit, images: np.ndarray) -> np.ndarray:
    graph = Graph(kit, FEATURES, bound={}, inputs=["images"], outputs=["features"])
    return graph.run({"images": images})["features"]


def test_rounded_weights_alone_are_nearly_exact(kits: dict[str, Kit]) -> None:
    images = pictures().images[:2]
    error = relative_error(*(_on_device(kits[name], images) for name in ("weights", "float")))
    assert 0 < error < 0.05


def test_temporaries_shrink(kits: dict[str, Kit]) -> None:
    memory = {name: kit.manifest.graphs["features"].memory for name, kit in kits.items()}
    assert memory["float"] <= memory["weights"] < 1.1 * memory["float"]  # a kernel at a time
    assert memory["integer"] < memory["float"]
    model = features(kits["integer"])
    assert fused(model, {"N": 1}).peak(model.graph.node) == memory["integer"]
    in_float = order_for_memory(model, tensor_bytes(model, {"N": 1}))
    assert in_float > memory["integer"]  # as it is written


@pytest.mark.parametrize("calibrater", [MinMax, Percentile])
def test_any_layer_can_stay_in_float32(kits: dict[str, Kit], calibrater: Any) -> None:
    model, images = features(kits["float"]), pictures().images[:4]
    quantizer = StaticQuantizer(model, measure_ranges(model, images, calibrater))
    everything = quantizer.quantize(quantizer.layers)
    np.testing.assert_array_equal(run_features(everything, images), run_features(model, images))
    first = quantizer.layers[0]
    kernels = {
        name: sum(t.data_type == onnx.TensorProto.INT8 for t in quantized.graph.initializer)
        for name, quantized in (
            ("all", quantizer.quantize()),
            ("but one", quantizer.quantize([first])),
        )
    }
    assert kernels["but one"] < kernels["all"]


def test_layers_stay_in_float32_until_the_bound_holds(
    kits: dict[str, Kit], monkeypatch: pytest.MonkeyPatch
) -> None:
    calibration, model = pictures(), features(kits["float"])
    error = kits["integer"].manifest.quantization
    assert error is not None
    assert error.error is not None
    monkeypatch.setattr(quantize, "ERROR_BOUND", error.error / 2)
    quantized, cost = quantize_features(model, calibration)
    assert cost.error is not None
    assert cost.error <= error.error / 2
    assert 0 < cost.float_layers < cost.layers
    images = calibration.images[calibration.held_out]
    off = relative_error(run_features(quantized, images), run_features(model, images))
    assert cost.error == pytest.approx(off, rel=1e-6)


def test_a_bound_of_nothing_leaves_everything_in_float32(
    kits: dict[str, Kit], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantize, "ERROR_BOUND", 0.0)
    _, cost = quantize_features(features(kits["float"]), pictures(8))
    assert (cost.error, cost.float_layers) == (0.0, cost.layers)


def test_without_labels_accuracy_is_not_measured(kits: dict[str, Kit]) -> None:
    _, cost = quantize_features(features(kits["float"]), Calibration(pictures().images))
    assert (cost.accuracy, cost.float_accuracy) == (None, None)


def test_the_accuracy_is_that_of_the_nearest_centroid(kits: dict[str, Kit]) -> None:
    calibration, model = pictures(), features(kits["float"])
    _, cost = quantize_features(model, calibration)
    pooled = run_features(model, calibration.images)  # it ends in the network's own pooling
    right = 0
    for i in calibration.held_out:
        distances = []
        for c in range(3):
            mine = [j for j in calibration.fitted if calibration.labels[j] == c]
            distances.append(np.linalg.norm(pooled[i] - pooled[mine].mean(axis=0)))
        right += int(np.argmin(distances) == calibration.labels[i])
    assert cost.float_accuracy == pytest.approx(right / len(calibration.held_out))


def test_the_halves_are_of_every_class_and_share_nothing() -> None:
    calibration = pictures()
    fitted, held_out = calibration.fitted, calibration.held_out
    assert sorted([*fitted, *held_out]) == list(range(COUNT))
    for half in (fitted, held_out):
        assert np.bincount(calibration.labels[half]).tolist() == [4, 4, 4]


@pytest.mark.parametrize("most", [2, 3, 32])
def test_a_few_images_are_of_all_classes(most: int) -> None:
    labels = np.arange(24) % 3
    images = np.zeros((24, 1, 1, 3), np.uint8) + labels[:, None, None, None].astype(np.uint8)
    few = Calibration(images, labels).spread(most)
    assert len(few) == min(most, 12)
    assert {*few[:, 0, 0, 0].tolist()} >= {0, 2}


def test_single_layers_are_compared_on_images_of_all_classes(
    kits: dict[str, Kit], monkeypatch: pytest.MonkeyPatch
) -> None:
    calibration, model = pictures(60), features(kits["float"])
    assert calibration.labels is not None
    ran: list[np.ndarray] = []

    def run(model: onnx.ModelProto, images: np.ndarray, output: str) -> np.ndarray:
        ran.append(images)
        return run_features(model, images, output)

    monkeypatch.setattr(quantize, "run_features", run)
    quantizer: Any = SimpleNamespace(layers=["conv"], quantize=lambda _: model)
    quantize._by_sensitivity(model, quantizer, calibration, "features")
    labels = {
        image.tobytes(): int(label)
        for image, label in zip(calibration.images, calibration.labels, strict=True)
    }
    assert len(ran) == 2
    for images in ran:
        assert {labels[image.tobytes()] for image in images} == {0, 1, 2}


def test_a_percentile_within_bounds_is_taken_whatever_the_other_error(
    kits: dict[str, Kit], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = iter([FeatureError(0.05, 0.5, 1.0), FeatureError(0.06, 1.0, 1.0)])
    monkeypatch.setattr(Judge, "judge", lambda *_: next(results))
    _, cost = quantize_features(features(kits["float"]), pictures())
    assert (cost.error, cost.float_layers) == (0.06, 0)


def test_a_method_that_trains_from_the_first_layer_on_has_nothing_to_quantize(
    tmp_path: Path,
) -> None:
    network = adapt(tiny(), FullFineTune())
    kit = compile(network, tmp_path / "kit", batch=2, size=SIZE, frozen_bits=8)
    assert kit.manifest.features is None
    assert kit.manifest.quantization is None


def test_a_calibration_of_nothing_is_told(tmp_path: Path) -> None:
    network = adapt(tiny(), FullFineTune())
    with pytest.warns(UserWarning, match="calibration changes nothing: this kit has no frozen"):
        compile(
            network,
            tmp_path / "kit",
            batch=2,
            size=SIZE,
            frozen_bits=8,
            calibration=pictures(4),
        )


@pytest.mark.parametrize("bits", [None, 32])
def test_a_calibration_in_float32_is_refused_before_anything_is_traced(
    bits: int | None, network: nn.Module, tmp_path: Path
) -> None:
    done: list[str] = []
    with pytest.raises(PocketuneError, match="calibration is for a frozen part in 8 bits"):
        compile(
            network,
            tmp_path / "kit",
            batch=2,
            size=SIZE,
            frozen_bits=bits,
            calibration=pictures(4),
            progress=lambda what, _: done.append(what),
        )
    assert not done


def test_lists_are_a_calibration_too(kits: dict[str, Kit]) -> None:
    arrays = pictures(4)
    assert arrays.labels is not None
    lists = Calibration(list(arrays.images), arrays.labels.tolist())  # type: ignore[arg-type]
    judged = [
        Judge(features(kits["float"]), c).judge(features(kits["integer"])) for c in (arrays, lists)
    ]
    assert judged[0] == judged[1]


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((4, 8, 8, 3), np.float32), None, r"must be uint8 .* not float32 \(4, 8, 8, 3\)"),
        (np.zeros((1, 8, 8, 3), np.uint8), None, "N of at least 2"),
        (np.zeros((4, 3, 8, 8), np.uint8), None, "must be uint8"),
        (np.zeros((4, 8, 8, 3), np.uint8), np.zeros(3, np.int64), "4 images have labels of shape"),
    ],
)
def test_refuses_what_is_no_calibration(images: Any, labels: Any, message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        Calibration(images, labels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frozen_bits": 4}, "frozen_bits=4 is not possible"),
        ({"frozen_bits": 8, "calibration": pictures(4, 16)}, r"give them as \(N, 32, 32, 3\)"),
    ],
)
def test_refuses_what_cannot_be_done(
    network: nn.Module, tmp_path: Path, options: Any, message: str
) -> None:
    with pytest.raises(PocketuneError, match=message):
        compile(network, tmp_path / "kit", batch=2, size=SIZE, **options)
    assert not list(tmp_path.iterdir())


def test_compiling_twice_gives_the_same_kit(tmp_path: Path) -> None:
    network = adapt(tiny(blocks=2), TopBlocks(blocks=1))
    options: Any = {"batch": 2, "size": SIZE, "frozen_bits": 8, "calibration": pictures()}
    kits = [compile(network, tmp_path / name, **options) for name in ("a", "b")]
    assert kits[0].identity == kits[1].identity


def test_a_kit_that_computes_with_integers_is_exported(shared_data: Path, tmp_path: Path) -> None:
    """Real weights and photos: elsewhere few roundings fall the other way in float32."""
    with zipfile.ZipFile(
        shared_data / "classification" / "oxford_flowers_12cls_224.zip"
    ) as archive:
        archive.extractall(tmp_path)
    photos = load_splits(tmp_path / "test", val_fraction=0.0).train
    loader = Loader(photos.subset(range(0, len(photos), 6)), size=96, batch=40, train=False)
    batch = next(iter(loader.epoch(0)))
    weights = shared_data / "weights" / "mbv2-w0.35.float32.safetensors"
    network = create_network("mobilenet_v2", weights=weights, width=0.35)
    kit = compile(
        adapt(network, LastLayer()),
        tmp_path / "kit",
        batch=2,
        size=96,
        frozen_bits=8,
        calibration=Calibration(batch.images, batch.labels),
    )
    assert kit.manifest.quantization.float_layers == 0
    session = open_session(export(kit.path, tmp_path / "m.onnx"), as_written=False, integers=True)
    images = batch.images[:4]
    (logits,) = session.run(["logits"], {"images": images})
    expected = OnnxEngine(kit, kit.state()).predict(images)
    assert np.abs(logits - expected).max() < 1e-4 * np.abs(expected).max()
