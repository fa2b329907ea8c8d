"""Retraining a pruned network: it learns, follows its teacher, and goes on after a stop."""

import numpy as np
import pytest
import torch
from PIL import Image

from pocketune.data import load_splits
from pocketune.errors import PocketuneError
from pocketune.networks import create_network, load_network, save_network
from pocketune.pruning.retraining import Recipe, retrain

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
    assert again.config == pruned.config
    assert all(map(torch.equal, again.state_dict().values(), pruned.state_dict().values()))
    assert not list(tmp_path.glob("*.progress.*"))


def test_goes_on_as_if_it_had_not_been_stopped(photos, tmp_path, monkeypatch):
    pytest.importorskip("lightning_fabric")
    whole, stopped = network(), network()
    expected = retrain(whole, photos, tmp_path / "a.safetensors", recipe=SHORT, accelerator="cpu")

    def stop(*args):
        save_network(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr("pocketune.pruning.retraining.save_network", stop)
    out = tmp_path / "b.safetensors"
    with pytest.raises(KeyboardInterrupt):
        retrain(stopped, photos, out, recipe=SHORT, accelerator="cpu")
    monkeypatch.undo()
    fresh = network()
    rest = retrain(fresh, photos, out, recipe=SHORT, accelerator="cpu")
    assert rest == pytest.approx(expected[1:], rel=1e-5)
    for mine, theirs in zip(fresh.state_dict().values(), whole.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs)


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


def test_progress_of_another_recipe(photos, tmp_path):
    pytest.importorskip("lightning_fabric")
    out = tmp_path / "out.safetensors"
    out.with_suffix(".progress.safetensors").write_bytes(b"torn")
    with pytest.raises(PocketuneError, match="is damaged; remove it"):
        retrain(network(), photos, out, recipe=SHORT, accelerator="cpu")


def test_classes_that_do_not_fit(photos, tmp_path):
    out = tmp_path / "out.safetensors"
    with pytest.raises(PocketuneError, match="photos have 2 classes and the network 7"):
        retrain(network(7), photos, out)
    with pytest.raises(PocketuneError, match="teacher has 3 classes and the network 2"):
        retrain(network(), photos, out, teacher=network(3))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, "epochs=0 must be at least 1"),
        ({"lr": float("nan")}, "lr=nan must be above 0"),
        ({"distillation": 1.5}, r"distillation=1.5 must lie in \[0, 1\]"),
    ],
)
def test_recipes_that_make_no_sense(values, message):
    with pytest.raises(PocketuneError, match=message):
        Recipe(**values)
