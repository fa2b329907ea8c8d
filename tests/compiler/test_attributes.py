"""Images with attributes, from a table to an exported model, on both engines."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pocketune.authoring import build_kit
from pocketune.compiler import compile
from pocketune.data import center_crop, load_splits
from pocketune.device import Interrupted, evaluate, export, predict
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.engine.session import open_session
from pocketune.device.train import resume, train
from pocketune.device.train.progress import Silent
from pocketune.eager.engine import TorchEngine
from pocketune.eager.run import TorchEngines
from pocketune.errors import PocketuneError
from pocketune.kit import Kit
from pocketune.methods import BiasAndLast, LastLayer, adapt
from pocketune.tasks import TASKS, Attributes
from pocketune.tasks.attributes import AttributeEvaluation, AttributePrediction, sigmoid

from ..data.images.loading import load_image
from ..device.failing import failing, interrupt
from ..device.runs import assert_same_end, lines
from .networks import SIZE, tiny

NAMES = ("red", "green", "blue")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos with any number of three colors in them, their table, and a kit of a real network."""
    folder, rng = tmp_path_factory.mktemp("place"), np.random.default_rng(0)
    rows = []
    for number in range(24):
        has = [number >> bit & 1 for bit in range(3)]
        pixels = rng.normal(np.array(has) * 150 + 50, 30, (20, 24, 3)).clip(0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number:02}.png")
        rows.append([f"{number:02}.png", *has])
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["file", *NAMES], *rows])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    build_kit(
        folder / "kit",
        network="resnet18",
        method=LastLayer(),
        width=0.125,
        size=32,
        batch=4,
        label_smoothing=0.1,
        photos=load_splits(folder / "table.csv").train,
        save_network=folder / "values.safetensors",
    )
    return folder


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, place: Path) -> Path:
    """A run of a network whose last layer can tell these colors."""
    network = adapt(tiny(channels=8), LastLayer())
    folder = tmp_path_factory.mktemp("learned")
    kit = compile(network, folder / "kit", batch=4, size=SIZE, task=Attributes(NAMES))
    run(place, folder / "run", kit=kit, steps=None, epochs=15, lr=0.1)
    return folder / "run"


def run(place: Path, out: Path, *, kit: Kit | None = None, **options):
    options = {"steps": 6, "seed": 3, "progress": Silent(), **options}
    return train(kit or place / "kit", place / "table.csv", out=out, **options)


def test_the_kit_is_made_for_the_table(place: Path) -> None:
    head = ("fc.weight", "fc.bias")
    task = Attributes(NAMES, head, label_smoothing=0.1)
    assert Kit.open(place / "kit").manifest.task == task


def test_it_learns_and_the_best_epoch_has_the_best_mean_accuracy(learned: Path) -> None:
    epochs = lines(learned, "epoch")
    assert epochs[-1]["loss"] < 0.7 * epochs[0]["loss"]
    assert all(0 <= line["accuracy"] <= 1 for line in epochs)
    (end,) = lines(learned, "end")
    assert end["best_accuracy"] == max(line["validation_accuracy"] for line in epochs)
    result = evaluate(learned)
    assert isinstance(result, AttributeEvaluation)
    assert result.accuracy == pytest.approx(end["best_accuracy"])


def test_both_engines_train_to_the_same(place: Path, tmp_path: Path) -> None:
    for name, engine in (
        ("onnx", None),
        ("torch", TorchEngines(network=place / "values.safetensors")),
    ):
        run(place, tmp_path / name, engine=engine, optimizer="sgd", lr=1e-3)
    one, other = (lines(tmp_path / name, "step") for name in ("onnx", "torch"))
    for key in ("loss", "accuracy", "gradient_norm"):
        np.testing.assert_allclose([x[key] for x in one], [x[key] for x in other], rtol=1e-3)


def test_a_stopped_run_ends_with_the_same_bits(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "whole")
    stopping = failing("gradients", 4, interrupt, OnnxEngine)
    with pytest.raises(Interrupted):
        run(place, tmp_path / "run", engine=stopping)
    resume(tmp_path / "run", progress=Silent())
    assert_same_end(tmp_path / "run", tmp_path / "whole")


def test_evaluation_agrees_with_prediction(learned: Path, place: Path, tmp_path: Path) -> None:
    rows = (place / "table.csv").read_text().splitlines()
    (place / "others.csv").write_text("\n".join(rows[:-1]))
    dataset = load_splits(place / "others.csv", val_fraction=1).val
    truth = dict(zip(dataset.names, dataset.labels.astype(bool), strict=True))
    counts = np.zeros((3, 2, 2), int)
    for result in predict(learned, [place / name for name in dataset.names]):
        assert isinstance(result, AttributePrediction)
        shares = [guess.probability for guess in result.guesses]
        assert shares == sorted(shares, reverse=True)
        told = {guess.label: guess.probability > 0.5 for guess in result.guesses}
        for number, name in enumerate(NAMES):
            counts[number, int(truth[Path(result.name).name][number]), int(told[name])] += 1
    found = evaluate(learned, place / "others.csv")
    assert isinstance(found, AttributeEvaluation)
    np.testing.assert_array_equal(found.counts, counts)
    assert found.images == 23
    right = counts[:, 0, 0] + counts[:, 1, 1]
    assert found.accuracy == pytest.approx(right.sum() / 69)
    assert [a.accuracy for a in found.per_attribute] == pytest.approx(list(right / 23))
    assert [a.present for a in found.per_attribute] == [11, 11, 11]
    assert found.per_attribute[0].recall == pytest.approx(counts[0, 1, 1] / 11)
    assert found.per_attribute[0].precision == pytest.approx(
        counts[0, 1, 1] / counts[0, :, 1].sum()
    )
    found.write_per_class(tmp_path / "attributes.csv")
    assert len((tmp_path / "attributes.csv").read_text().splitlines()) == 4


def test_an_exported_model_tells_its_task(learned: Path, place: Path, tmp_path: Path) -> None:
    session = open_session(export(learned, tmp_path / "model.onnx"), as_written=False)
    assert TASKS[session.get_modelmeta().custom_metadata_map["task"]] is Attributes
    (result,) = predict(learned, [place / "05.png"])
    assert isinstance(result, AttributePrediction)
    image = center_crop(load_image(place / "05.png"), SIZE)[None]
    (probabilities,) = sigmoid(session.run(["logits"], {"images": image})[0])
    told = {guess.label: guess.probability for guess in result.guesses}
    assert [told[name] for name in NAMES] == pytest.approx(list(probabilities), abs=1e-5)


def test_a_kit_for_other_attributes_begins_with_a_new_output_layer(place, tmp_path) -> None:
    text = (place / "table.csv").read_text().replace("red,green,blue", "warm,green,cold")
    (tmp_path / "other.csv").write_text(text.replace("\n", f"\n{place}/").removesuffix(f"{place}/"))
    result = train(
        place / "kit", tmp_path / "other.csv", out=tmp_path / "run", steps=1, progress=Silent()
    )
    assert result.classes == ("warm", "green", "cold")


def test_accumulated_parts_give_the_gradient_of_the_whole() -> None:
    network, rng = adapt(tiny(channels=8), BiasAndLast()), np.random.default_rng(0)
    images = rng.integers(0, 256, (4, SIZE, SIZE, 3), np.uint8)
    task = Attributes(NAMES)
    labels = rng.integers(0, 2, (4, 3), np.uint8)
    whole = TorchEngine(network, batch=4, size=SIZE, task=task).gradients(images, labels, rng)
    part = TorchEngine(network, batch=1, size=SIZE, task=task)
    parts = [part.gradients(images[i : i + 1], labels[i : i + 1], rng) for i in range(4)]
    assert np.mean([p.loss for p in parts]) == pytest.approx(whole.loss, rel=1e-6)
    assert sum(p.metrics["correct"] for p in parts) == pytest.approx(whole.metrics["correct"])


def test_a_task_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match="unknown task 'hinge': choose one of classification"):
        build_kit(tmp_path / "kit", network="resnet18", method=LastLayer(), task="hinge")


def test_a_kit_is_for_classes_or_for_attributes(place: Path, learned: Path, tmp_path: Path) -> None:
    kit = compile(adapt(tiny(), LastLayer()), tmp_path / "kit", batch=2, size=SIZE)
    with pytest.raises(PocketuneError, match="needs the columns file and label"):
        train(kit, place / "table.csv", out=tmp_path / "run")
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for file in ("00.png", "01.png"):
            (tmp_path / "photos" / name / file).write_bytes((place / file).read_bytes())
    with pytest.raises(PocketuneError, match="class by its folder, but attributes are needed"):
        evaluate(learned, tmp_path / "photos")
