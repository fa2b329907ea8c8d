"""The help of the commands, and their usage errors."""

import json

import pytest

import pocketune
from pocketune.cli import app
from pocketune.cli.command import Group
from pocketune.device.train.defaults import RATES

COMMANDS = [
    "train",
    "plan",
    "predict",
    "evaluate",
    "export",
    "studio",
    "demo",
    "networks",
    "methods",
    "tables",
]


def test_version(run):
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout == f"pocketune {pocketune.__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help_names_every_command_and_a_way_to_start(run, arguments):
    result = run(*arguments)
    assert result.exit_code == (0 if arguments else 2)
    for name in [*COMMANDS, "kit"]:
        assert f" {name} " in result.output
    assert "pocketune demo" in result.output


def test_help_says_which_commands_of_kit_need_no_pytorch(run):
    assert "(need PyTorch, except kit show and check)" in run("--help").output


@pytest.mark.parametrize("name", [*COMMANDS, "kit", "kit build", "kit show"])
def test_each_command_explains_itself(run, name):
    result = run(*name.split(), "--help")
    assert result.exit_code == 0
    assert f"Usage: pocketune {name}" in result.output.replace("root", "pocketune")


def examples(group):
    yield from group.examples
    for name in group.list_commands(None):
        found = group.get_command(None, name)
        yield from examples(found) if isinstance(found, Group) else found.examples


def test_examples_fit_a_terminal_of_80_columns():
    indented = [f"  {line}" for line in examples(app)]
    assert len(indented) > 50
    assert [line for line in indented if len(line) > 80] == []


def test_train_groups_its_options(run):
    text = run("train", "--help").output
    panels = [
        "The run",
        "What to choose from",
        "Training ",
        "Network ",
        "Training method",
        "Engine",
        "Examples",
    ]
    places = [text.index(f"─ {panel}") for panel in panels[:-1]] + [text.index(panels[-1])]
    assert places == sorted(places)


def test_help_shows_the_defaults_of_the_library(run):
    text = " ".join(run("train", "--help").output.replace("│", " ").split())
    adam, sgd = RATES["adam"], RATES["sgd"]
    assert f"[default: {adam.main:g}, or {sgd.main:g} for sgd" in text
    assert f"[default: lr if that is given, else {adam.side:g}, or {sgd.side:g} for sgd]" in text
    assert adam.head == sgd.head  # and is said once
    assert f"[default: lr if that is given, else {adam.head:g}]" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "Missing argument 'PHOTOS'; only --resume needs none."),
        ("photos --size 64", "--size: needs --network"),
        ("photos --method last", "--method: needs --network"),
        ("photos --kit a --network resnet18", "cannot be combined with --kit"),
        ("photos --device cuda", "--device: needs --engine torch"),
        ("photos --device cuda --engine onnx", "--device: needs --engine torch"),
        ("--resume runs/a --lr 1", "--lr: cannot be combined with --resume"),
        ("photos --checkpoint-every 0", "'--checkpoint-every': 0 is not in the range"),
        ("photos --epochs many", "'many' is not a valid int"),
        ("photos --optimizer lion", "'adam', 'adam8', 'adamw', 'sgd'"),
        ("photos --nonsense", "--nonsense"),
    ],
)
def test_what_train_cannot_mean_is_a_usage_error(run, arguments, said):
    result = run("train", *arguments.split())
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize("command", ["evaluate", "kit build", "prune", "retrain"])
def test_the_reading_of_masks_follows_a_run_where_there_is_one(run, command):
    said = " ".join(run(*command.split(), "--help").stdout.replace("│", " ").split())
    assert "[default: 255" in said
    assert ("for a run, as in its training" in said) == (command == "evaluate")


@pytest.mark.parametrize("arguments", ["predict", "predict run", "evaluate", "export", "kit show"])
def test_missing_arguments_are_usage_errors(run, arguments):
    result = run(*arguments.split())
    assert result.exit_code == 2
    assert "Missing argument" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("fly", "No such command 'fly'."),
        ("trian", "No such command 'trian'. Did you mean 'train'?"),
        ("kit biuld", "No such command 'biuld'. Did you mean 'build'?"),
        ("train photos --epoch 1", "'--epochs'?"),
    ],
)
def test_what_is_unknown_names_the_nearest(run, arguments, said):
    result = run(*arguments.split())
    assert result.exit_code == 2
    assert said in result.stderr


def test_networks(run):
    result = run("networks")
    assert result.exit_code == 0
    heading, *lines = result.stdout.splitlines()
    assert heading.split() == [
        "network",
        "parameters",
        "classes",
        "license",
        "of",
        "the",
        "weights",
    ]
    assert len(lines) == len(pocketune.list_networks())
    assert max(map(len, lines)) <= 80
    assert "mobilenet_v2            3.5 M      1,000 classes  BSD-3-Clause (torchvision)" in lines
    assert (
        "lraspp                  3.2 M      21 classes of pixels, over mobilenet_v3_large" in lines
    )


def test_networks_and_methods_as_json(run):
    networks = json.loads(run("networks", "--json").stdout)
    assert [each["name"] for each in networks] == [
        name for dense in (False, True) for name in pocketune.networks.list_networks(dense=dense)
    ]
    found = next(each for each in networks if each["name"] == "lraspp")
    assert (found["backbone"], found["license"]) == ("mobilenet_v3_large", None)
    methods = json.loads(run("methods", "--json").stdout)
    assert [each["name"] for each in methods] == pocketune.list_methods()
    assert next(each for each in methods if each["name"] == "blocks")["options"] == {"blocks": 3}


@pytest.mark.parametrize("columns", [60, 80])
def test_methods_hold_the_width_of_the_terminal(run, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = run("methods").stdout.splitlines()
    assert max(map(len, lines)) <= columns


def test_methods(run):
    lines = run("methods").stdout.splitlines()
    names = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert names == pocketune.list_methods()
    first = next(i for i, line in enumerate(lines) if line.startswith("blocks "))
    assert lines[first + 2].split() == ["blocks=3"]
