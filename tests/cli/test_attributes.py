"""The commands on images with attributes."""

import json
from pathlib import Path

import pytest

from pocketune.tasks import Attributes

from ..device.runs import write_photo
from ..device.tiny_kit import TinyKit
from .conftest import Run

NAMES = ("smiles", "bald", "young")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kit for three attributes, and a table of six photos."""
    folder = tmp_path_factory.mktemp("place")
    TinyKit(classes=NAMES, task=Attributes).write(folder / "kit")
    lines = [",".join(["file", *NAMES])]
    for number in range(6):
        write_photo(folder / f"{number}.png", number)
        lines.append(f"{number}.png,{number % 2},{-(-number // 3) % 2},1")
    (folder / "table.csv").write_text("\n".join(lines))
    return folder


def test_evaluate(run: Run, place: Path) -> None:
    table = place / "table.csv"
    told = json.loads(run("evaluate", place / "kit", table, "--json").stdout)
    assert told["images"] == 6
    assert [attribute["attribute"] for attribute in told["attributes"]] == list(NAMES)
    assert [attribute["present"] for attribute in told["attributes"]] == [3, 3, 6]
    shares = [attribute["accuracy"] for attribute in told["attributes"]]
    assert told["accuracy"] == pytest.approx(sum(shares) / 3)
    first, *lines = run("evaluate", place / "kit", table).stdout.splitlines()
    assert first == f"mean accuracy {told['accuracy']:.1%} of 3 attributes of 6 photos"
    assert [line.split()[0] for line in lines] == list(NAMES)


def test_a_confusion_matrix_is_for_classes(run: Run, place: Path) -> None:
    tables = ["--per-class", "classes.csv", "--confusion", "out.csv"]
    done = run("evaluate", place / "kit", place / "table.csv", *tables)
    assert done.exit_code == 1
    assert "has no confusion matrix" in done.stderr
    assert not done.stdout  # it is told before the photos are evaluated


def test_predict(run: Run, place: Path) -> None:
    image = place / "0.png"
    told = json.loads(run("predict", place / "kit", image, "--json").stdout)["attributes"]
    assert {attribute["attribute"] for attribute in told} == set(NAMES)
    assert all(each["present"] == (each["probability"] > 0.5) for each in told)
    present = [f"{x['attribute']} {x['probability']:.1%}" for x in told if x["present"]]
    line = run("predict", place / "kit", image).stdout.strip()
    assert line == f"{image}: {', '.join(present) or 'none of the attributes'}"
    assert run("predict", place / "kit", image, "--top", "3").stdout.count("%") == 3


def test_export_and_show(run: Run, place: Path) -> None:
    assert "whose sigmoid" in run("export", place / "kit").stdout
    assert "attributes   3: smiles, bald, young" in run("kit", "show", place / "kit").stdout


def test_the_bundled_kit_for_attributes_is_trained(run: Run, place: Path, tmp_path: Path) -> None:
    done = run("train", place / "table.csv", "--out", tmp_path / "run", "--epochs", 0)
    assert done.exit_code == 0, done.output
    assert "this was the bundled kit 'attributes'; choose another with --kit" in done.stderr
    told = json.loads(run("predict", tmp_path / "run", place / "0.png", "--json").stdout)
    assert {each["attribute"] for each in told["attributes"]} == set(NAMES)


def test_a_bundled_kit_for_classes_refuses_attributes(run: Run, place: Path) -> None:
    done = run("train", place / "table.csv", "--kit", "blocks")
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert "needs the columns file and label" in line
    assert line.endswith("train a kit for them, such as the bundled attributes")


def test_a_balance_is_for_classes(run: Run, place: Path) -> None:
    done = run("train", place / "table.csv", "--kit", place / "kit", "--balance", 1)
    assert done.exit_code == 1
    assert "--balance 1 has no effect: the task attributes has no classes that" in done.stderr
