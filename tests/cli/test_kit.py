"""`pocketune kit show` in this process."""

import json

from pocketune.kit.manifest import SCHEMA

from ..device.softmax_engine import CLASSES, write_photos
from ..device.tiny_kit import TinyKit


def test_kit_show(run, kit):
    result = run("kit", "show", kit)
    assert result.exit_code == 0
    told = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert told["kit"] == str(kit)
    assert told["trains"] == "22 parameters"
    assert told["images"] == "16 x 16 pixels, batch 4"
    assert told["classes"] == "3: blue, green, red"
    assert " MB with adam, " in told["memory"]


def test_kit_show_tells_the_parts_of_a_step(run, tmp_path):
    TinyKit(statistic=False, micro_batch=2).write(tmp_path / "kit")
    assert "batch 4 in 2 parts" in run("kit", "show", tmp_path / "kit").stdout


def test_kit_show_says_that_the_classes_of_a_bundled_kit_are_placeholders(run, kit):
    assert "8, 9 (placeholders: it is not trained)" in run("kit", "show", "blocks").stdout
    assert "placeholders" not in run("kit", "show", kit).stdout


def test_kit_show_json_is_the_manifest_and_more(run, kit):
    told = json.loads(run("kit", "show", kit, "--json").stdout)
    assert told["task"]["classes"] == list(CLASSES)
    assert told["trained_parameters"] == 22
    assert told["training_memory"]["adam"] >= told["training_memory"]["sgd"] > 10_000_000
    assert told["schema"] == SCHEMA


def test_kit_show_of_a_run_lists_its_own_classes(run, kit, tmp_path):
    photos = write_photos(tmp_path / "two", classes=("cyan", "pink"))
    assert run("train", photos, "--kit", kit, "--epochs", 1, "--out", "run").exit_code == 0
    told = json.loads(run("kit", "show", "run", "--json").stdout)
    assert told["task"]["classes"] == ["cyan", "pink"]
    assert told["network"]["classes"] == 2
    assert told["trained_parameters"] == 15


def test_kit_show_refuses(run, tmp_path):
    result = run("kit", "show", tmp_path)
    assert result.exit_code == 1
    assert "is neither a kit nor a run: it holds no manifest.json" in result.stderr
