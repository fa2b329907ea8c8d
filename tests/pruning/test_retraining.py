"""Training a whole network again: it learns, follows its teacher, and goes on after a stop."""

import json
from dataclasses import asdict, replace

import pytest
import torch
from safetensors.torch import save_file

from pocketune.data import load_splits
from pocketune.distillation.checkpoint import HEADER
from pocketune.errors import PocketuneError
from pocketune.methods import LastLayer, adapt
from pocketune.networks import about
from pocketune.pruning import Recipe, retrain
from pocketune.surgery import prune
from pocketune.weights import create_network, load_network, save_network

from .examples import network

SHORT = Recipe(epochs=2, lr=0.01, batch=4, size=64)


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


def test_goes_on_only_with_the_same_network(photos, tmp_path, monkeypatch):
    pytest.importorskip("lightning_fabric")
    out, other = tmp_path / "out.safetensors", network()
    stop_after_an_epoch(monkeypatch, network(), photos, out)
    torch.nn.init.ones_(other.classifier[1].bias)
    with pytest.raises(PocketuneError, match="a run with another network, or one of other values"):
        retrain(other, photos, out, recipe=SHORT, accelerator="cpu")
    of_the_run = load_network(out)  # a file may be retrained in place
    assert len(retrain(of_the_run, photos, out, recipe=SHORT, accelerator="cpu")) == 1


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


@pytest.mark.parametrize("follow", ["predictions", "blocks"])
def test_a_teacher_stays_as_it_is(follow, photos, tmp_path):
    pytest.importorskip("lightning_fabric")
    teacher = create_network("mobilenet_v2", width=0.1, classes=7)
    recipe = Recipe(epochs=1, batch=4, size=32, follow=follow)
    values = {name: value.clone() for name, value in teacher.state_dict().items()}
    out = tmp_path / "out.safetensors"
    retrain(network(7), photos, out, recipe=recipe, teacher=teacher, accelerator="cpu")
    assert all(torch.equal(value, values[name]) for name, value in teacher.state_dict().items())
    assert all(module.training for module in teacher.modules())
    assert all(p.requires_grad and p.grad is None for p in teacher.parameters())


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


def test_progress_of_another_version(photos, tmp_path):
    pytest.importorskip("lightning_fabric")
    out = tmp_path / "out.safetensors"
    facts = {"epochs": 1, "recipe": asdict(SHORT), "photos": "", "teacher": None}
    metadata = {HEADER: json.dumps(facts)}
    save_file({"values": torch.ones(1)}, out.with_suffix(".progress.safetensors"), metadata)
    with pytest.raises(PocketuneError, match=r"by another version of Pocketune; remove it to"):
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
    (tmp_path / "file").touch()
    with pytest.raises(PocketuneError, match="cannot be written"):
        retrain(network(), photos, tmp_path / "file" / "out.safetensors")
    with pytest.raises(PocketuneError, match=r"is adapted to LastLayer\(\)"):
        retrain(adapt(network(), LastLayer()), photos, tmp_path / "out.safetensors")


def test_frozen_parameters_are_refused(photos, tmp_path):
    pytest.importorskip("lightning_fabric")
    frozen = network()
    frozen.features.requires_grad_(False)
    with pytest.raises(PocketuneError, match=r"features\.\S+ is frozen"):
        retrain(frozen, photos, tmp_path / "out.safetensors", recipe=SHORT)


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
