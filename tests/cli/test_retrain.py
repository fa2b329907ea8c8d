"""`pocketune prune` and `pocketune retrain`."""

import pytest
import torch
from click.testing import CliRunner

from pocketune.cli import app
from pocketune.distillation.checkpoint import hash_values
from pocketune.networks import about
from pocketune.surgery import prune
from pocketune.weights import create_network, load_network, save_network

from ..device.pixel_kit import write_scenes
from ..pruning.examples import dark_and_light, dense_network, network


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return dark_and_light(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """Photos with masks."""
    return write_scenes(tmp_path_factory.mktemp("scenes"), 8)


def test_the_command(photos, tmp_path):
    pytest.importorskip("lightning_fabric")
    out = tmp_path / "out.safetensors"
    arguments = ["retrain", "mobilenet_v2", "--width", "0.1", "--lite-residual", "--size", "32"]
    arguments += ["--photos", str(photos.root), "--out", str(out), "--epochs", "1", "--batch", "4"]
    done = CliRunner().invoke(app, [*arguments, "--accelerator", "cpu"])
    assert done.exit_code == 0, done.output
    assert about(load_network(out)).config.branches["features.2"]["stride"] == 2
    done = CliRunner().invoke(app, ["retrain", str(out), "--weights", "imagenet", *arguments[5:]])
    assert "--weights cannot be used here" in done.stderr


def test_a_repeated_command_begins_with_the_same_values(photos, tmp_path, monkeypatch):
    pytest.importorskip("lightning_fabric")
    begun = []
    monkeypatch.setattr("pocketune.pruning.retrain", lambda made, *_, **__: begun.append(made))
    arguments = ["retrain", "mobilenet_v2", "--width", "0.1", "--lite-residual", "--size", "32"]
    arguments += ["--photos", str(photos.root), "--out", str(tmp_path / "out.safetensors")]
    for seed in ("0", "0", "1"):
        done = CliRunner().invoke(app, [*arguments, "--seed", seed])
        assert done.exit_code == 0, done.output
    first, again, other = map(hash_values, begun)
    assert first == again != other


def test_the_command_makes_group_norms_of_batch_norms(photos, tmp_path):
    """With modules of the asked kernel and groups, taught by the network of batch norms."""
    pytest.importorskip("lightning_fabric")
    plain, out = tmp_path / "plain.safetensors", tmp_path / "group.safetensors"
    save_network(create_network("mobilenet_v2", width=0.1, classes=3), plain)
    named = ["retrain", "mobilenet_v2", "--width", "0.1", "--photos", str(photos.root)]
    named += ["--out", str(out), "--epochs", "1", "--batch", "4", "--size", "32"]
    named += ["--norm", "group", "--standardized", "--accelerator", "cpu"]
    modules = ["--lite-kernel", "3", "--lite-groups", "4"]
    taught = ["--weights", str(plain), "--teacher", str(plain), "--lite-residual"]
    done = CliRunner().invoke(app, [*named, *taught, *modules])
    assert done.exit_code == 0, done.output
    config = about(load_network(out)).config
    assert (config.norm, config.standardized, config.classes) == ("group", True, 3)
    assert {(a["kernel"], a["groups"]) for a in config.branches.values()} == {(3, 4)}
    done = CliRunner().invoke(app, [*named, *modules])
    assert "--lite-kernel and --lite-groups need --lite-residual" in done.stderr


def test_the_command_follows_blocks(photos, tmp_path):
    pytest.importorskip("lightning_fabric")
    whole, out = tmp_path / "whole.safetensors", tmp_path / "out.safetensors"
    torch.manual_seed(0)
    teacher = create_network("mobilenet_v2", width=0.1, classes=2)
    save_network(teacher, whole)
    save_network(prune(teacher, {"features.2": 0.5}, importance="weight"), out)
    arguments = ["retrain", str(out), "--photos", str(photos.root), "--teacher", str(whole)]
    arguments += ["--follow", "blocks", "--epochs", "1", "--batch", "4", "--size", "32"]
    done = CliRunner().invoke(app, [*arguments, "--accelerator", "cpu", "--out", str(out)])
    assert done.exit_code == 0, done.output
    end = load_network(out).state_dict()
    assert torch.equal(end["features.4.conv.0.0.weight"], teacher.features[4].conv[0][0].weight)
    assert not torch.equal(end["features.1.conv.1.weight"], teacher.features[1].conv[1].weight)


def test_the_command_names_a_file_that_is_missing(photos, tmp_path):
    arguments = ["retrain", "nothing.safetensors", "--photos", str(photos.root)]
    done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out.safetensors")])
    assert done.exit_code == 1
    assert "there is no file nothing.safetensors; give a file that pocketune prune" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--distillation", "2"], "distillation must be at least 0 and at most 1, not 2.0"),
        (
            ["--accelerator", "abacus"],
            "--accelerator abacus with --devices 1 is not available here",
        ),
        (["--width", "1.0"], "small.safetensors already holds a network and its weights"),
        (["--padding", "symmetric"], "--padding cannot be used here"),
        (["--temperature", "3"], "--distillation and --temperature need --teacher; add it"),
        (
            ["--follow", "blocks", "--label-smoothing", "0.1"],
            "--label-smoothing has no effect with --follow blocks; leave it out",
        ),
        (["--teacher", "TEACHER"], "the teacher has 5 classes and the network 2"),
    ],
)
def test_the_command_refuses(photos, tmp_path, arguments, said):
    pytest.importorskip("lightning_fabric")
    small, teacher = tmp_path / "small.safetensors", tmp_path / "teacher.safetensors"
    save_network(network(), small)
    save_network(create_network("mobilenet_v2", width=0.1, classes=5), teacher)
    arguments = [str(teacher) if word == "TEACHER" else word for word in arguments]
    command = ["retrain", str(small), "--photos", str(photos.root), "--out", str(small)]
    done = CliRunner().invoke(app, [*command, "--size", "32", "--accelerator", "cpu", *arguments])
    assert done.exit_code == 1
    assert said in done.stderr


def test_pruning_keeps_the_classes_of_the_weights(tmp_path):
    weights, out = tmp_path / "weights.safetensors", tmp_path / "small.safetensors"
    save_network(create_network("mobilenet_v2", width=0.1, classes=5), weights)
    arguments = ["prune", "mobilenet_v2", "--width", "0.1", "--weights", str(weights)]
    arguments += ["--importance", "weight", "--target", "110KB", "--size", "64", "--out", str(out)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert about(load_network(out)).config.classes == 5
    done = CliRunner().invoke(
        app, ["profile", "mobilenet_v2", "--width", "0.1", "--weights", str(out), "--size", "64"]
    )
    assert done.exit_code == 0, done.output


def test_masks_are_pruned_for_and_retrained_by_the_commands(scenes, tmp_path):
    pytest.importorskip("lightning_fabric")
    whole, small, again = (tmp_path / f"{name}.safetensors" for name in ("a", "b", "c"))
    save_network(dense_network(), whole)
    options = ["--photos", str(scenes), "--size", "32", "--ignore", "255"]
    target = ["--target", "90KB", "--method", "blocks"]
    shape = ["--backbone", "mobilenet_v2", "--width", "0.1", "--head-channels", "8"]
    pruning = ["prune", "deeplabv3", "--weights", str(whole), *shape, *options, *target]
    done = CliRunner().invoke(app, [*pruning, "--out", str(small)])
    assert done.exit_code == 0, done.output
    training = ["retrain", str(small), "--teacher", str(whole), "--epochs", "1", "--batch", "4"]
    arguments = [*training, "--accelerator", "cpu", *options, "--out", str(again)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert about(load_network(again)).config == about(load_network(small)).config
