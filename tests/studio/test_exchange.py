"""Runs and deltas go from the command line to the page and back, with the same predictions."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pocketune.data import ImageDataset, load_splits
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.engine.session import open_session
from pocketune.device.train import train
from pocketune.device.train.progress import Silent
from pocketune.device.train.record import RunRecord
from pocketune.device.use.delta import Delta
from pocketune.device.use.evaluate import evaluate
from pocketune.device.use.export import export
from pocketune.device.use.model import Model
from pocketune.device.use.predict import predict
from pocketune.device.use.unknown import known_of
from pocketune.kit.bundled import bundled_kit
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import Manifest, ParameterSpec
from pocketune.tasks.attributes import Attributes, sigmoid
from pocketune.tasks.classification import softmax

from ..device.runs import make_settings, trained_state, write_best, write_photos
from ..device.tiny_kit import CLASSES, WIDTH, TinyKit
from ..kit.hollow import hollow_graph

WEB = Path(__file__).parents[2] / "web"
LOW_RANK = "low_rank"
CLASS_KITS = ("tiny", "whole", "last")
ATTRIBUTES = "attributes"
KITS = (*CLASS_KITS, ATTRIBUTES)
MANY = {"photos": "tiny", "table": ATTRIBUTES}
"""Photos that the page takes along, and the kit that learns them."""
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write_photos(tmp_path_factory.mktemp("data") / "photos", each=6)


def _write_photos(folder: Path, each: int) -> Path:
    """Class folders, and beside them a table of attributes of the same photos."""
    write_photos(folder, CLASSES, each=each)
    files = [path.relative_to(folder.parent) for path in sorted(folder.rglob("*.png"))]
    rows = [f"{file.as_posix()},{n % 2},{n // 2 % 2}" for n, file in enumerate(files)]
    _photos_of(ATTRIBUTES, folder).write_text("\n".join(["file,bright,round", *rows]))
    return folder


def _photos_of(name: str, photos: Path) -> Path:
    """The photos as a kit of this name learns them."""
    return photos.parent / "table.csv" if name == ATTRIBUTES else photos


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    """For each kit a run, its delta and images; and what the page made of them."""
    if shutil.which("node") is None or not (WEB / "node_modules" / "esbuild").is_dir():
        pytest.skip("the page's tools are not installed: make studio")
    place = tmp_path_factory.mktemp("exchange")
    for number, name in enumerate(KITS):
        kit = _kit(name, place)
        settings = make_settings(epochs=1, val_fraction=0.34, lr=0.01 if number < 2 else 0.001)
        train(kit, _photos_of(name, photos), place / name, settings, progress=Silent())
        shutil.make_archive(str(place / name), "zip", place / name)
        Delta.of(place / name).save(place / f"{name}.safetensors")
        (place / f"{name}.images").write_bytes(_images(kit).tobytes())
    _low_rank_run(place / LOW_RANK)
    shutil.make_archive(str(place / LOW_RANK), "zip", place / LOW_RANK)
    Delta.of(place / LOW_RANK).save(place / f"{LOW_RANK}.safetensors")
    (place / f"{LOW_RANK}.images").write_bytes(_images(Kit.open(place / LOW_RANK)).tobytes())
    many = place / "many"
    write_photos(many / "photos", CLASSES, each=12)
    _write_photos(many / "table" / "photos", each=8)  # with its table beside it
    for name in MANY:
        shutil.make_archive(str(place / name), "zip", many / name)
    jobs = {"runs": [*KITS, LOW_RANK], "photos": list(MANY)}
    (place / "jobs.json").write_text(json.dumps(jobs))
    script = ["node", str(WEB / "tests" / "exchange.mjs"), str(place)]
    done = subprocess.run(script, capture_output=True, text=True, check=False, cwd=WEB)
    assert done.returncode == 0, done.stderr
    return place


def _kit(name: str, place: Path) -> Kit:
    if name == ATTRIBUTES:
        return TinyKit(task=Attributes).write(place / f"{name}.kit.zip")
    if name in ("tiny", "whole"):  # with a frozen part, and without
        return TinyKit(frozen_part=name == "tiny").write(place / f"{name}.kit.zip")
    return Kit.open(bundled_kit(name))


class LowRankKit(TinyKit):
    """With a layer in 8 bits, and one with an update of rank 2 beside it, as kits of LoRA.

    Its step computes nothing.
    """

    def manifest(self) -> Manifest:
        manifest = super().manifest()
        updates = (ParameterSpec("up", (WIDTH, 2)), ParameterSpec("down", (2, WIDTH)))
        return replace(manifest, parameters=(*manifest.parameters, *updates))

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        rng = np.random.default_rng(3)
        shapes = {"up": (WIDTH, 2), "down": (2, WIDTH)}
        own = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        return {**super().state(), **own}

    def files(self) -> dict[str, bytes]:
        return {**super().files(), "step.onnx": hollow_graph(self.manifest(), "step.onnx")}

    def _predict(self) -> onnx.ModelProto:
        model = super()._predict()
        layer = [
            helper.make_node("DequantizeLinear", ["whole", "scale8"], ["weight"], axis=0),
            helper.make_node("Gemm", ["features", "weight"], ["before"], transB=1),
            helper.make_node("Gemm", ["before", "layer"], ["plain"], transB=1),
            helper.make_node("Gemm", ["before", "down"], ["low"], transB=1),
            helper.make_node("Gemm", ["low", "up"], ["update"], transB=1),
            helper.make_node("Add", ["update", "plain"], ["changed"]),
        ]
        model.graph.node[0].input[0] = "changed"
        rest = list(model.graph.node)
        del model.graph.node[:]
        model.graph.node.extend([*layer, *rest])
        rng = np.random.default_rng(4)
        constants = {
            "layer": rng.normal(size=(WIDTH, WIDTH)).astype(np.float32),
            "whole": rng.integers(-127, 128, (WIDTH, WIDTH), dtype=np.int8),
            "scale8": rng.uniform(0.001, 0.01, WIDTH).astype(np.float32),
        }
        tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
        model.graph.initializer.extend(tensors)
        for name, value in self.state().items():
            if name in ("up", "down"):
                kind = helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape)
                model.graph.input.append(kind)
        return model


def _low_rank_run(place: Path) -> None:
    tiny = LowRankKit()
    kit = tiny.write(place)
    write_best(place, kit, trained_state(tiny), CLASSES)


def _images(kit: Kit) -> np.ndarray[Any, Any]:
    shape = (3, kit.manifest.size, kit.manifest.size, 3)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def _logits(model: Model) -> np.ndarray[Any, Any]:
    return OnnxEngine(model.kit, model.state).predict(_images(model.kit))


def _probabilities(model: Model, logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    attributes = model.kit.manifest.task.name == ATTRIBUTES
    return sigmoid(logits) if attributes else softmax(logits)


@pytest.mark.parametrize("name", KITS)
def test_the_page_predicts_as_the_command_line(folder: Path, name: str) -> None:
    model = Model.open(folder / name)
    page = json.loads((folder / f"{name}.json").read_text())
    assert tuple(page["classes"]) == model.classes
    expected = _probabilities(model, _logits(model))
    for part in ("run", "delta"):
        found = np.array(page[part], np.float32).reshape(expected.shape)
        assert np.abs(found - expected).max() < TOLERANCE


@pytest.mark.parametrize("name", KITS)
def test_a_run_of_the_page_is_used_as_its_own(
    folder: Path, name: str, photos: Path, tmp_path: Path
) -> None:
    own, page = Model.open(folder / name), Model.open(folder / f"{name}.page.zip")
    assert (own.classes, own.step, own.score) == (page.classes, page.step, page.score)
    assert own.kit.identity == page.kit.identity
    for key, value in own.state.items():
        np.testing.assert_array_equal(page.state[key], value, strict=True)
    if name in CLASS_KITS:
        assert known_of(own).tensors().keys() == known_of(page).tensors().keys()
    options = {"unknown": name in CLASS_KITS}
    assert list(predict(page, photos, **options)) == list(predict(own, photos, **options))
    others = _photos_of(name, _write_photos(tmp_path / "others", each=5))
    assert evaluate(page, others).to_dict() == evaluate(own, others).to_dict()
    record = RunRecord.read(folder / f"{name}.page.zip")
    assert record.kit == own.kit.identity
    assert record.parameters == RunRecord.read(folder / name).parameters
    assert record.predicted_memory is None
    assert Delta.of(page).header == Delta.of(own).header


@pytest.mark.parametrize("name", KITS)
def test_a_delta_of_the_page_is_that_of_python(folder: Path, name: str) -> None:
    own, page = (folder / f"{name}{suffix}.safetensors" for suffix in ("", ".page"))
    assert page.read_bytes() == own.read_bytes()
    model = Delta.load(page).model(Model.open(folder / name).kit)
    np.testing.assert_array_equal(_logits(model), _logits(Model.open(folder / name)))


@pytest.mark.parametrize("name", KITS)
def test_an_export_of_the_page_runs_and_is_valid(folder: Path, name: str, tmp_path: Path) -> None:
    model, file = Model.open(folder / name), folder / f"{name}.page.onnx"
    read = onnx.load(file)
    onnx.checker.check_model(read, full_check=True)
    theirs = onnx.load(export(model, tmp_path / "model.onnx"))
    assert read == theirs
    session = open_session(file, as_written=False)
    (found,) = session.run(["logits"], {"images": _images(model.kit)})
    found, expected = (_probabilities(model, each) for each in (found, _logits(model)))
    assert np.abs(found - expected).max() < TOLERANCE


def test_low_rank_updates_are_folded_and_weights_are_products_as_in_python(
    folder: Path, tmp_path: Path
) -> None:
    model = Model.open(folder / LOW_RANK)
    theirs = onnx.load(export(model, tmp_path / "model.onnx"))
    own = onnx.load(folder / f"{LOW_RANK}.page.onnx")
    operators = [node.op_type for node in own.graph.node]
    assert operators.count("Gemm") == 3  # the two layers and the head
    assert "DequantizeLinear" not in operators
    for one, other in zip(own.graph.initializer, theirs.graph.initializer, strict=True):
        assert one.name == other.name
        values = (numpy_helper.to_array(each) for each in (one, other))
        np.testing.assert_allclose(*values, rtol=1e-6, atol=1e-7)
    assert own.graph.node == theirs.graph.node


@pytest.mark.parametrize("name", ["tiny", ATTRIBUTES])
def test_training_goes_on_from_a_run_of_the_page(
    folder: Path, photos: Path, tmp_path: Path, name: str
) -> None:
    kit, settings, given = (
        folder / f"{name}.page.zip",
        make_settings(epochs=1),
        _photos_of(name, photos),
    )
    result = train(kit, given, tmp_path / "run", settings, progress=Silent())
    own = train(folder / name, given, tmp_path / "own", settings, progress=Silent())
    assert (result.head, result.best_step) == (own.head, own.best_step)
    one, other = Model.open(result.run), Model.open(own.run)
    assert all(np.array_equal(value, other.state[key]) for key, value in one.state.items())


@pytest.mark.parametrize(("name", "held_out"), [("photos", 6), ("table", 5)])
def test_photos_of_the_page_are_evaluated_where_its_run_held_them_out(
    folder: Path, name: str, held_out: int, tmp_path: Path
) -> None:
    kit, packed, settings = MANY[name], folder / f"{name}.page.zip", make_settings(epochs=0)
    splits = load_splits(packed, task=Model.open(folder / kit).task)
    assert sorted(splits.val.names) == sorted(json.loads((folder / f"{name}.json").read_text()))
    assert evaluate(folder / f"{kit}.page.zip", packed).images == len(splits.val) == held_out
    own = load_splits(folder / f"{name}.zip", val_fraction=0.0).train
    found = Counter(_labeled(splits.train) + _labeled(splits.val))
    assert found == Counter(_labeled(own))
    run = train(folder / f"{kit}.page.zip", packed, tmp_path / "run", settings, progress=Silent())
    assert RunRecord.read(run.run).photos.validation == held_out


def _labeled(photos: ImageDataset) -> list[tuple[bytes, bytes]]:
    return [(photos.read(n), photos.labels[n].tobytes()) for n in range(len(photos))]


def test_a_run_of_the_page_has_a_report(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="reports need the extra report")
    pytest.importorskip("matplotlib", reason="reports need the extra report")
    from pocketune import report

    page = report(folder / "last.page.zip", tmp_path / "report.html").read_text(encoding="utf-8")
    assert "onnxruntime-web" in page
    assert "The parts of this report that show photos are left out" in page
