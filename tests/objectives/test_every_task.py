"""Every registered task compiles a kit, trains it on both engines, evaluates, predicts and exports.

One of them, regression, is two files of the tests: what a new task takes.
"""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from pocketune.authoring import build_kit
from pocketune.data import Skipped, load_splits
from pocketune.device import Interrupted, evaluate, export, predict
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.engine.session import open_session
from pocketune.device.train import resume, train
from pocketune.device.train.progress import Silent
from pocketune.eager.run import TorchEngines
from pocketune.kit import Kit
from pocketune.methods import LastLayer
from pocketune.objectives import OBJECTIVES, objective_of
from pocketune.tasks import TASKS, numbered

from ..device.failing import failing, interrupt
from ..device.runs import assert_same_end, lines
from . import regression  # noqa: F401 - registers the task and its objective


def write_mask(level: float, file: Path) -> list[str]:
    """A mask of one class beside an image, without its first row."""
    pixels = np.full((20, 24), level > 0.5, np.uint8)
    pixels[0] = 255
    name = f"mask_{file.stem}.png"
    Image.fromarray(pixels).save(file.with_name(name))
    return [name]


ROWS = {  # a label for an image of this brightness, by the titles of the table
    "classification": (("label",), lambda level, _: ["bright" if level > 0.5 else "dark"]),
    "attributes": (("bright", "dark"), lambda level, _: [int(level > 0.5), int(level <= 0.5)]),
    "segmentation": (("mask",), write_mask),
    "regression": (("brightness", "darkness"), lambda level, _: [level, 1 - level]),
}


def write_table(folder: Path, task: str) -> Path:
    """Gray photos of random brightness and a table of their labels."""
    titles, label = ROWS[task]
    rng = np.random.default_rng(0)
    rows = []
    for number in range(24):
        level = float(rng.random())
        pixels = rng.normal(40 + 170 * level, 20, (20, 24, 3)).clip(0, 255)
        file = folder / f"{number:02}.png"
        Image.fromarray(pixels.astype(np.uint8)).save(file)
        rows.append([file.name, *label(level, file)])
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["file", *titles], *rows])
    return folder / "table.csv"


def network_for(task: str) -> dict[str, str | int]:
    """A network with an output for each image or for each pixel."""
    if not TASKS[task].dense:
        return {"network": "resnet18"}
    return {"network": "fcn", "backbone": "resnet18", "head_channels": 8}


@pytest.fixture(scope="module", params=sorted(TASKS))
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of photos, a kit for its task and the network's values."""
    folder = tmp_path_factory.mktemp(request.param)
    table = write_table(folder, request.param)
    torch.set_num_threads(1)
    build_kit(
        folder / "kit",
        **network_for(request.param),
        method=LastLayer(),
        width=0.125,
        size=32,
        batch=4,
        photos=load_splits(table, task=request.param).train,
        save_network=folder / "values.safetensors",
    )
    return folder


def run(place: Path, out: Path, **options):
    options = {"steps": 6, "seed": 3, "progress": Silent(), **options}
    return train(place / "kit", place / "table.csv", out=out, **options)


def test_each_task_has_an_objective_and_an_example() -> None:
    assert set(TASKS) == set(OBJECTIVES) == set(ROWS)


def test_it_learns_and_the_best_epoch_is_kept(place: Path, tmp_path: Path) -> None:
    result = run(place, tmp_path / "run", steps=None, epochs=8, lr=0.03, head_start="random")
    task = Kit.open(place / "kit").manifest.task
    epochs = lines(result.run, "epoch")
    assert epochs[-1]["loss"] < epochs[0]["loss"]
    scores = [
        task.score(line[f"validation_{task.metric_name}"], line["validation_loss"])
        for line in epochs
    ]
    if result.start is not None:  # a run never ends below it
        scores.append(result.start)
    assert result.best is not None
    assert result.best in scores
    assert not any(task.is_better(score, result.best) for score in scores)
    (end,) = lines(result.run, "end")
    assert end[f"best_{task.metric_name}"] == result.best.value
    assert 0 < evaluate(result.run).images < 24


def test_both_engines_train_to_the_same(place: Path, tmp_path: Path) -> None:
    for name, engine in (
        ("onnx", None),
        ("torch", TorchEngines(network=place / "values.safetensors")),
    ):
        run(place, tmp_path / name, engine=engine, optimizer="sgd", lr=1e-3)
    one, other = (lines(tmp_path / name, "step") for name in ("onnx", "torch"))
    task = Kit.open(place / "kit").manifest.task
    metric = task.step_score(0.0, dict.fromkeys(task.step_metrics, 1.0), images=1).name
    for key in ("loss", metric, "gradient_norm"):
        np.testing.assert_allclose([x[key] for x in one], [x[key] for x in other], rtol=1e-3)


def test_a_stopped_run_ends_with_the_same_bits(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "whole", accumulate=2)
    with pytest.raises(Interrupted):
        run(
            place,
            tmp_path / "run",
            accumulate=2,
            engine=failing("gradients", 6, interrupt, OnnxEngine),
        )
    resume(tmp_path / "run", progress=Silent())
    assert_same_end(tmp_path / "run", tmp_path / "whole")


def test_predictions_and_figures_are_plain_values(place: Path) -> None:
    (result,) = predict(place / "kit", place / "00.png")
    assert not isinstance(result, Skipped)
    assert json.loads(json.dumps(result.to_dict()))["image"] == result.name
    assert "\n" not in str(result)
    figures = evaluate(place / "kit", place / "table.csv")
    assert json.loads(json.dumps(figures.to_dict()))["images"] == 24
    assert "of 24 photos" in str(figures)


def test_the_exported_model_names_its_task(place: Path, tmp_path: Path) -> None:
    session = open_session(export(place / "kit", tmp_path / "model.onnx"), as_written=False)
    task = Kit.open(place / "kit").manifest.task
    assert session.get_modelmeta().custom_metadata_map["task"] == task.name
    assert tuple(session.get_outputs()[0].shape[1:]) == task.output_shape(32)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_numpy_loss_is_the_objectives(name: str) -> None:
    """Without label smoothing: it is how validation measures, on the device."""
    task = TASKS[name](numbered(3))
    objective, rng = objective_of(task), np.random.default_rng(0)
    outputs = rng.normal(size=(8, *task.output_shape(32))).astype(np.float32)
    labels = objective.draw_labels(rng, (8, *task.label_shape(32)))
    assert labels.dtype == task.label_type
    losses = task.losses(outputs, labels)
    for image in range(8):  # the images of a batch may count differently
        part = slice(image, image + 1)
        pair = torch.from_numpy(outputs[part]), torch.from_numpy(labels[part])
        assert losses[image] == pytest.approx(float(objective.loss(*pair)), rel=1e-5)
        metrics = dict(zip(task.step_metrics, map(float, objective.metrics(*pair)), strict=True))
        step = task.step_score(0.0, metrics, images=1)
        marks = task.marks(outputs[part], labels[part])
        assert step.value == pytest.approx(float(marks.mean()), rel=1e-5)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_operator_gives_the_gradient_of_the_loss(name: str) -> None:
    objective = objective_of(TASKS[name](numbered(3)))
    labels = torch.from_numpy(
        objective.draw_labels(np.random.default_rng(0), (4, *objective.task.label_shape(32)))
    )
    outputs = nn.Parameter(torch.randn(4, *objective.task.output_shape(32)))
    loss, *metrics, gradient = objective.step(outputs.detach(), labels)
    expected = objective.loss(outputs, labels)
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, outputs)[0])
    for metric, wanted in zip(metrics, objective.metrics(outputs, labels), strict=True):
        torch.testing.assert_close(metric, wanted.detach())
