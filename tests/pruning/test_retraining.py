"""Training a whole network again: it learns, follows its teacher, and goes on after a stop."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch.nn import functional

from pocketune.cli import app
from pocketune.data import load_splits
from pocketune.distillation.predictions import Predictions
from pocketune.errors import PocketuneError
from pocketune.methods import LastLayer, RepNet, TinyTL, adapt
from pocketune.networks import NetworkConfig, about
from pocketune.pruning import Recipe, retrain
from pocketune.surgery import prune
from pocketune.weights import create_network, load_network, save_network

from ..device.pixel_kit import write_scenes

SHORT = Recipe(epochs=2, lr=0.01, batch=4, size=64)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for label, name in enumerate(("dark", "light")):
        (folder / name).mkdir()
        for number in range(8):
            pixels = rng.integers(0, 100, (32, 32, 3), np.uint8) + np.uint8(150 * label)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return load_splits(folder, val_fraction=0.0).train


def network(classes=2):
    torch.manual_seed(0)
    return create_network(
        "mobilenet_v2", width=0.1, classes=classes, hidden={"features.2": 20, "features.3": 30}
    )


def test_without_the_package_says_what_to_install(photos, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "lightning_fabric", None)
    with pytest.raises(PocketuneError, match=r"pip install \"pocketune\[retrain\]\""):
        retrain(network(), photos, tmp_path / "out.safetensors", recipe=SHORT)


def test_learns_and_writes_the_network(photos, tmp_path):
    pytest.importorskip("lightning_fabric")
    out, pruned = tmp_path / "out.safetensors", network()
    recipe = Recipe(epochs=8, lr=0.01, batch=4, size=64)
    losses = retrain(pruned, photos, out, recipe=recipe, accelerator="cpu")
    assert losses[-1] < losses[0]
    again = load_network(out)
    assert about(again).config == about(pruned).config
    assert all(map(torch.equal, again.state_dict().values(), pruned.state_dict().values()))
    assert not list(tmp_path.glob("*.progress.*"))


def test_photos_are_named_or_given(photos, tmp_path):
    pytest.importorskip("lightning_fabric")
    folder, out = photos.root, tmp_path / "out.safetensors"
    given = load_splits(folder, val_fraction=None).train  # as a path is divided
    losses = [
        retrain(network(), which, out, recipe=SHORT, accelerator="cpu") for which in (folder, given)
    ]
    assert losses[0] == losses[1]


def test_the_callers_random_numbers_go_on_as_before(photos, tmp_path):
    pytest.importorskip("lightning_fabric")
    pruned = network()
    before = torch.get_rng_state()
    retrain(pruned, photos, tmp_path / "out.safetensors", recipe=SHORT, accelerator="cpu")
    assert torch.equal(torch.get_rng_state(), before)


def stop_after_an_epoch(monkeypatch, stopped, photos, out, **options):
    def stop(*args):
        save_network(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pocketune.pruning.retraining.save_network", stop)
        with pytest.raises(KeyboardInterrupt):
            retrain(stopped, photos, out, recipe=SHORT, accelerator="cpu", **options)


def test_goes_on_as_if_it_had_not_been_stopped(photos, tmp_path, monkeypatch):
    pytest.importorskip("lightning_fabric")
    whole, stopped = network(), network()
    expected = retrain(whole, photos, tmp_path / "a.safetensors", recipe=SHORT, accelerator="cpu")
    out = tmp_path / "b.safetensors"
    stop_after_an_epoch(monkeypatch, stopped, photos, out)
    fresh = network()
    rest = retrain(fresh, photos, out, recipe=SHORT, accelerator="cpu")
    assert rest == pytest.approx(expected[1:], rel=1e-5)
    for mine, theirs in zip(fresh.state_dict().values(), whole.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_goes_on_only_with_the_same_photos_and_teacher(photos, tmp_path, monkeypatch):
    pytest.importorskip("lightning_fabric")
    out, (teacher, other) = tmp_path / "out.safetensors", (network(), network())
    torch.nn.init.ones_(other.classifier[1].bias)
    stop_after_an_epoch(monkeypatch, network(), photos, out, teacher=teacher)
    fewer = photos.subset(range(1, len(photos)))
    relabeled = replace(photos, labels=1 - photos.labels)
    for some, by, message in (
        (
            fewer,
            teacher,
            "a run with other photos; remove it to start over, or continue with the",
        ),
        (relabeled, teacher, "a run with other photos"),
        (photos, other, "a run with another teacher or none"),
        (photos, None, "a run with another teacher or none"),
    ):
        with pytest.raises(PocketuneError, match=message):
            retrain(network(), some, out, recipe=SHORT, teacher=by, accelerator="cpu")
    with pytest.raises(PocketuneError, match="a run with another recipe"):
        retrain(network(), photos, out, recipe=replace(SHORT, seed=1), accelerator="cpu")
    assert len(retrain(network(), photos, out, recipe=SHORT, teacher=teacher)) == 1


def test_follows_a_teacher_where_labels_mean_nothing(photos, tmp_path):
    pytest.importorskip("lightning_fabric")
    teacher = create_network("mobilenet_v2", width=0.1, classes=7)
    losses = retrain(
        network(7),
        photos,
        tmp_path / "out.safetensors",
        recipe=Recipe(epochs=4, lr=0.02, batch=4, size=64),
        teacher=teacher,
        accelerator="cpu",
    )
    assert losses[-1] < losses[0]


def test_follows_the_blocks_of_a_teacher_and_trains_no_further(photos, tmp_path):
    pytest.importorskip("lightning_fabric")
    torch.manual_seed(0)
    teacher = create_network("mobilenet_v2", width=0.1, classes=7)
    pruned = prune(teacher, {"features.2": 0.5, "features.3": 0.5}, importance="weight")
    before = {name: value.clone() for name, value in pruned.state_dict().items()}
    recipe = Recipe(epochs=4, lr=0.02, batch=4, size=64, follow="blocks")
    losses = retrain(
        pruned,
        photos,
        tmp_path / "out.safetensors",
        recipe=recipe,
        teacher=teacher,
        accelerator="cpu",
    )
    assert losses[-1] < losses[0]
    changed = {n for n, value in pruned.state_dict().items() if not torch.equal(value, before[n])}
    start = ("features.0.", "features.1.", "features.2.", "features.3.")
    assert changed == {name for name in before if name.startswith(start)}


def test_blocks_that_cannot_be_followed(photos, tmp_path):
    recipe, out = Recipe(follow="blocks"), tmp_path / "out.safetensors"
    with pytest.raises(PocketuneError, match="give the unpruned network as teacher"):
        retrain(network(), photos, out, recipe=recipe)
    whole = create_network("mobilenet_v2", width=0.1)
    with pytest.raises(PocketuneError, match="no block of this network was pruned"):
        retrain(whole, photos, out, recipe=recipe, teacher=whole)


def test_damaged_progress(photos, tmp_path):
    pytest.importorskip("lightning_fabric")
    out = tmp_path / "out.safetensors"
    out.with_suffix(".progress.safetensors").write_bytes(b"torn")
    with pytest.raises(PocketuneError, match=r"is damaged: .*; remove it"):
        retrain(network(), photos, out, recipe=SHORT, accelerator="cpu")


def test_classes_that_do_not_fit(photos, tmp_path):
    out = tmp_path / "out.safetensors"
    with pytest.raises(PocketuneError, match="photos have 2 classes and the network 7"):
        retrain(network(7), photos, out)
    with pytest.raises(PocketuneError, match="teacher has 3 classes and the network 2"):
        retrain(network(), photos, out, teacher=network(3))


def test_what_could_not_be_saved_is_not_trained(photos, tmp_path, monkeypatch):
    monkeypatch.setattr("pocketune.pruning.retraining.make_fabric", pytest.fail)
    with pytest.raises(PocketuneError, match=r"must end in \.safetensors"):
        retrain(network(), photos, tmp_path / "out.pth")
    with pytest.raises(PocketuneError, match="cannot be written"):
        retrain(network(), photos, tmp_path / "nowhere" / "out.safetensors")
    with pytest.raises(PocketuneError, match=r"is adapted to LastLayer\(\)"):
        retrain(adapt(network(), LastLayer()), photos, tmp_path / "out.safetensors")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"lr": float("nan")}, "lr must be above 0, not nan"),
        ({"follow": "maps"}, "unknown follow 'maps': choose one of predictions, blocks"),
        ({"follow": "blocks", "lr": 0.0}, "lr must be above 0, not 0.0"),
        ({"distillation": 1.5}, "distillation must be at least 0 and at most 1, not 1.5"),
    ],
)
def test_recipes_that_make_no_sense(values, message):
    with pytest.raises(PocketuneError, match=message):
        Recipe(**values)


def test_lite_residual_modules_are_pretrained_with_the_network(photos, tmp_path):
    """What is written is what `TinyTL` starts from."""
    pytest.importorskip("lightning_fabric")
    plain, out = network(), tmp_path / "out.safetensors"
    complete = TinyTL().insert_modules(plain)
    recipe = Recipe(epochs=1, lr=0.01, batch=4, size=32)
    retrain(complete, photos, out, recipe=recipe, accelerator="cpu")
    again = create_network("mobilenet_v2", width=0.1, classes=2, weights=out)
    assert about(again).config == about(complete).config
    # a pruned network may have them, too
    assert about(again).config.hidden == about(plain).config.hidden
    adapted = adapt(again, TinyTL())
    trained = {name: p for name, p in adapted.named_parameters() if ".branch." in name}
    assert len(trained) == 6 * 16
    for name, parameter in trained.items():
        assert torch.equal(parameter, complete.get_parameter(name))
    scales = [p for name, p in trained.items() if name.endswith("norm2.weight")]
    assert all(scale.abs().max() > 0 for scale in scales)  # they began at 0
    manifest = json.loads(json.dumps(about(adapted).config.to_dict()))  # where a kit keeps it
    assert NetworkConfig.from_dict(manifest) == about(again).config


def test_other_methods_keep_the_modules_of_a_network(tmp_path):
    complete = TinyTL().insert_modules(network()).eval()
    for name, parameter in complete.named_parameters():
        if name.endswith("branch.norm2.weight"):
            torch.nn.init.normal_(parameter)
    images = torch.randn(2, 3, 32, 32)
    adapted = adapt(complete, LastLayer()).eval()
    torch.testing.assert_close(adapted(images), complete(images))
    with pytest.raises(PocketuneError, match="has a side branch already"):
        adapt(complete, RepNet())
    with pytest.raises(PocketuneError, match="has lite residual modules already"):
        TinyTL().insert_modules(complete)
    with pytest.raises(PocketuneError, match="Linear has no config"):
        TinyTL().insert_modules(torch.nn.Linear(1, 1))


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
        (["--accelerator", "abacus"], "accelerator='abacus' with devices=1 is not available here"),
        (["--width", "1.0"], "small.safetensors already holds a network and its weights"),
        (["--padding", "symmetric"], "--padding cannot be used here"),
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


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """Photos with masks."""
    return write_scenes(tmp_path_factory.mktemp("scenes"), 8)


def dense_network(**options):
    torch.manual_seed(0)
    return create_network(
        "deeplabv3", backbone="mobilenet_v2", width=0.1, head_channels=8, classes=3, **options
    )


@pytest.mark.parametrize("taught", [False, True])
def test_a_pruned_network_of_pixels_learns_from_masks(scenes, tmp_path, taught):
    pytest.importorskip("lightning_fabric")
    teacher = dense_network()
    pruned = prune(teacher, {"backbone.2": 0.5}, importance="weight")
    out = tmp_path / "out.safetensors"
    losses = retrain(
        pruned,
        scenes,
        out,
        recipe=Recipe(epochs=3, lr=0.05, batch=3, size=32, class_weights="balanced"),
        teacher=teacher if taught else None,
        accelerator="cpu",
    )
    assert losses[-1] < losses[0]
    again = load_network(out)
    assert about(again).config.hidden == about(pruned).config.hidden
    assert not about(again).random_decode_head


def test_the_parts_of_the_loss_of_masks(scenes):
    photos = load_splits(scenes, val_fraction=0.0).train
    weighted = replace(photos, task=photos.labeled.balanced(photos.labels))
    network, teacher = dense_network(), dense_network()
    kept = Predictions(network, weighted, teacher, share=0.25, temperature=2.0, label_smoothing=0.0)
    labels = torch.randint(0, 3, (2, 32, 32), dtype=torch.uint8)
    labels[0, 0] = 255
    logits, wanted = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4).log_softmax(1)
    weights = torch.tensor(weighted.labeled.class_weights, dtype=torch.float32)
    larger = functional.interpolate(logits, (32, 32), mode="bilinear")
    own = functional.cross_entropy(larger, labels.long(), weights, ignore_index=255)
    given = (logits / 2).log_softmax(1)
    apart = (wanted.exp() * (wanted - given)).sum(1).mean()
    expected = 0.75 * own + 0.25 * 4 * apart
    torch.testing.assert_close(kept.loss_to(wanted, logits, labels), expected)


def test_labels_of_another_kind_need_a_teacher(photos, scenes, tmp_path):
    out, masks = tmp_path / "out.safetensors", load_splits(scenes).train
    with pytest.raises(PocketuneError, match="have masks, and the network classifies images"):
        retrain(network(3), masks, out)
    with pytest.raises(PocketuneError, match="have classes, and the network classifies pixels"):
        retrain(dense_network(), photos, out)
    with pytest.raises(PocketuneError, match="has no weights of its classes"):
        retrain(network(), photos, out, recipe=Recipe(class_weights="balanced"))


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
