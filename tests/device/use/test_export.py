"""The exported file: valid, equal to the model, and never left behind when it is not."""

import contextlib
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.engine.session import open_session
from pocketune.device.use import export as exporter
from pocketune.device.use import onnx_merge
from pocketune.device.use.export import export
from pocketune.device.use.model import Model
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.kit.writer import write_kit
from pocketune.tasks import Box
from pocketune.tasks.maps import class_map
from pocketune.tasks.views import Seen

from ..pixel_kit import write_pixel_kit
from ..runs import trained_state, write_best
from ..tiny_kit import CLASSES, TinyKit

MANY = tuple(f"класс {i}" for i in range(11))


def images(n: int) -> np.ndarray:
    return np.random.default_rng(9).integers(0, 256, (n, 8, 8, 3), dtype=np.uint8)


def run_file(file: Path, n: int = 5) -> np.ndarray:
    result: np.ndarray = open_session(file, as_written=False).run(
        ["logits"], {"images": images(n)}
    )[0]
    return result


def model_with(files: dict[str, bytes], path: Path, **kinds: bool) -> Model:
    return Model.open(write_kit(path, TinyKit(**kinds).manifest(), files).path)


@pytest.mark.parametrize("frozen_part", [True, False])
@pytest.mark.parametrize("statistic", [True, False])
@pytest.mark.parametrize("name", ["kit", "kit.zip"])
def test_a_kit(tmp_path: Path, frozen_part: bool, statistic: bool, name: str) -> None:
    kit = TinyKit(frozen_part=frozen_part, statistic=statistic).write(tmp_path / name)
    file = export(kit.path, tmp_path / "model.onnx")
    onnx.checker.check_model(file, full_check=True)
    expected = OnnxEngine(kit, kit.state()).predict(images(5))
    np.testing.assert_allclose(run_file(file), expected, atol=1e-4)


@pytest.mark.parametrize("frozen_part", [True, False])
def test_a_run_with_its_own_classes(tmp_path: Path, frozen_part: bool) -> None:
    kit = TinyKit(frozen_part=frozen_part).write(tmp_path / "run")
    state = trained_state(TinyKit(classes=MANY))
    write_best(kit.path, kit, state, MANY)
    file = export(str(kit.path), tmp_path / "out" / "modèle.onnx")
    np.testing.assert_allclose(run_file(file), OnnxEngine(kit, state).predict(images(5)), atol=1e-4)
    model = onnx.load(file)
    told = {p.key: json.loads(p.value) for p in model.metadata_props if p.key[0] in "cn"}
    assert told == {"classes": list(MANY), "network": {"name": "tiny", "classes": len(MANY)}}


@pytest.mark.parametrize(("kit", "out"), [("run", "run/../run/predict.onnx"), ("k.zip", "k.zip")])
def test_what_is_exported_is_not_overwritten(tmp_path: Path, kit: str, out: str) -> None:
    TinyKit().write(tmp_path / kit)
    with pytest.raises(PocketuneError, match="is the run or kit itself, or a file in it: choose"):
        export(tmp_path / kit, tmp_path / out)
    Model.open(tmp_path / kit)


def test_the_class_of_each_pixel(tmp_path: Path) -> None:
    kit = write_pixel_kit(tmp_path / "kit")
    file = export(kit.path, tmp_path / "map.onnx", output="classes")
    onnx.checker.check_model(file, full_check=True)
    side = kit.manifest.size
    seen = np.random.default_rng(9).integers(0, 256, (3, side, side, 3), dtype=np.uint8)
    (found,) = open_session(file, as_written=False).run(None, {"images": seen})
    assert found.dtype == np.uint8
    whole = Seen(side, side, Box(0, 0, side, side))
    logits = OnnxEngine(kit, kit.state()).predict(seen)
    np.testing.assert_array_equal(found, [class_map(each, whole) for each in logits])
    assert len(np.unique(found)) > 1


def test_a_model_of_images_has_no_class_of_each_pixel(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    with pytest.raises(PocketuneError, match="no class for each pixel: export its logits"):
        export(kit.path, tmp_path / "map.onnx", output="classes")
    with pytest.raises(PocketuneError, match="output='map' must be one of logits, classes"):
        export(kit.path, tmp_path / "map.onnx", output="map")
    assert not (tmp_path / "map.onnx").exists()


def test_a_class_map_that_is_wrong_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = write_pixel_kit(tmp_path / "kit")
    add = onnx_merge._add_class_map
    monkeypatch.setattr(
        onnx_merge, "_add_class_map", lambda graph, *both: add(graph, *(m[::-1] for m in both))
    )
    with pytest.raises(PocketuneError, match="exported logits differ"):
        export(kit.path, tmp_path / "map.onnx", output="classes")
    assert not (tmp_path / "map.onnx").exists()


def test_interface(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    model = onnx.load(export(kit.path, tmp_path / "model.onnx"))
    info = helper.make_tensor_value_info
    assert list(model.graph.input) == [info("images", TensorProto.UINT8, ["N", 8, 8, 3])]
    assert list(model.graph.output) == [info("logits", TensorProto.FLOAT, ["N", 3])]
    assert model.producer_name == "pocketune"
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for name, value in TinyKit().state().items():
        np.testing.assert_array_equal(constants[name], value, strict=True)


def test_names_that_both_graphs_use_are_kept_apart(tmp_path: Path) -> None:
    """Both graphs call an inner value y and hold a constant c, of different meaning."""
    files = TinyKit(statistic=False, masks=False).files()
    for name, constant in (("features.onnx", 255), ("predict.onnx", 2)):
        graph = onnx.ModelProto.FromString(files[name])
        _rename(graph, {"y0": "y", "c255": "c", "one": "c", "x0": "features/y"})
        for tensor in graph.graph.initializer:
            if tensor.name == "c":
                tensor.CopyFrom(numpy_helper.from_array(np.array(constant, np.float32), "c"))
        files[name] = graph.SerializeToString()
    model = model_with(files, tmp_path / "kit", statistic=False, masks=False)
    file = export(model, tmp_path / "model.onnx")
    onnx.checker.check_model(file, full_check=True)
    nodes = onnx.load(file).graph.node
    assert len({node.name for node in nodes}) == len(nodes)
    expected = OnnxEngine(model.kit, model.state).predict(images(5))
    np.testing.assert_allclose(run_file(file), expected, atol=1e-4)


def _rename(model: onnx.ModelProto, names: dict[str, str]) -> None:
    for node in model.graph.node:
        for values in (node.input, node.output):
            for index, value in enumerate(values):
                values[index] = names.get(value, value)
    for tensor in model.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)


def test_values_that_predict_does_not_take_are_left_out(tmp_path: Path) -> None:
    files = TinyKit(statistic=False).files()
    model = model_with(files, tmp_path / "kit", statistic=False)
    state = {**model.state, "unused": np.zeros(3, np.float32)}
    file = export(Model(model.kit, model.classes, state), tmp_path / "model.onnx")
    assert "unused" not in {t.name for t in onnx.load(file).graph.initializer}


def test_replaces_a_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    (tmp_path / "model.onnx").touch()  # as mktemp makes it
    for _ in range(2):
        export(kit.path, tmp_path / "model.onnx")
    onnx.checker.check_model(tmp_path / "model.onnx")
    assert {f.name for f in tmp_path.iterdir()} == {"kit", "model.onnx"}


def test_the_network_that_a_kit_was_made_of_is_not_replaced(tmp_path: Path) -> None:
    """It may well have the name that an export has by default."""
    graph = helper.make_graph([], "test", [], [])
    onnx.save(helper.make_model(graph, producer_name="pytorch"), tmp_path / "model.onnx")
    said = refused(TinyKit().write(tmp_path / "kit").path, tmp_path)
    assert said.endswith("model.onnx exists and is not an exported model: choose another name")


def refused(model: Model | Path, tmp_path: Path) -> str:
    """The error of an export, which has to keep the previous file."""
    out = tmp_path / "model.onnx"
    if not out.exists():
        out.write_bytes(b"\x08\x08\x12\tpocketune")  # as an earlier export begins
    old = out.read_bytes()
    with pytest.raises(PocketuneError) as caught:
        export(model, out)
    assert out.read_bytes() == old
    assert not list(tmp_path.glob(".*"))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_that_computes_something_else_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = onnx_merge.merge

    def wrong(*graphs: bytes, values: dict[str, np.ndarray], **rest: object) -> bytes:
        return original(*graphs, values={**values, "scale": values["scale"] * 1.01}, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(exporter, "merge", wrong)
    kit = TinyKit().write(tmp_path / "kit")
    assert "logits differ by" in refused(kit.path, tmp_path)


def test_the_rounding_of_what_cancels_out_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A classifier from a few photos may have weights of 1e5, and biases that take most off."""
    original = onnx_merge.merge

    def rounded(*graphs: bytes, values: dict[str, np.ndarray], **rest: object) -> bytes:
        weight = values["fc.weight"] * np.float32(1 + 5e-4)
        return original(*graphs, values={**values, "fc.weight": weight}, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(exporter, "merge", rounded)
    kit = TinyKit().write(tmp_path / "kit")
    state = {**kit.state(), "fc.weight": 1e5 * np.ones_like(kit.state()["fc.weight"])}
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    unbiased = OnnxEngine(kit, {**state, "fc.bias": np.zeros(3, np.float32)}).predict(images)
    cancelling = {**state, "fc.bias": -unbiased.mean(axis=0) / state["scale"]}
    logits = OnnxEngine(kit, cancelling).predict(images)
    assert 5e-4 * np.abs(unbiased).max() > 2e-3 * np.abs(logits).max()
    export(Model(kit, CLASSES, cancelling), tmp_path / "model.onnx")


def test_nan_is_not_equal(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    state = {**kit.state(), "scale": np.array(np.nan, np.float32)}
    assert "differ by nan" in refused(Model(kit, CLASSES, state), tmp_path)


def test_different_operator_versions(tmp_path: Path) -> None:
    files = TinyKit().files()
    predict = onnx.ModelProto.FromString(files["predict.onnx"])
    predict.opset_import[0].version = 17
    model = model_with({**files, "predict.onnx": predict.SerializeToString()}, tmp_path / "kit")
    assert "need versions 18 and 17 of the operators" in refused(model, tmp_path)


def test_an_input_without_a_value(tmp_path: Path) -> None:
    model = Model.open(TinyKit().write(tmp_path / "kit").path)
    state = {name: value for name, value in model.state.items() if name != "scale"}
    message = refused(Model(model.kit, model.classes, state), tmp_path)
    assert "there is no value for the input scale" in message


@pytest.mark.parametrize("name", ["features.onnx", "predict.onnx"])
@pytest.mark.parametrize("content", [b"", b"\xff\xff\xff", b"not an onnx model"])
def test_a_graph_that_is_none(tmp_path: Path, name: str, content: bytes) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    (kit.path / name).write_bytes(content)
    model = Model(Kit.open(kit.path, verify=False), CLASSES, kit.state())
    assert "cannot be exported" in refused(model, tmp_path)


@pytest.mark.parametrize("name", ["features.onnx", "predict.onnx"])
def test_damaged_graphs_never_crash(tmp_path: Path, name: str) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    model = Model(Kit.open(kit.path, verify=False), CLASSES, kit.state())
    content = (kit.path / name).read_bytes()
    for position in range(0, len(content), max(1, len(content) // 40)):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        (kit.path / name).write_bytes(damaged)
        with contextlib.suppress(PocketuneError):  # any other error would be a failure
            export(model, tmp_path / "model.onnx")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "kit")
    (tmp_path / "file").write_text("")
    with pytest.raises(PocketuneError, match="cannot be written"):
        export(kit.path, tmp_path / "file" / "model.onnx")
    with pytest.raises(PocketuneError, match="cannot be written"):
        export(kit.path, tmp_path)
