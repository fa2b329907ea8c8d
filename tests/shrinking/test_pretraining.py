"""Pretraining a supernet: it learns, follows its teacher, and goes on after a stop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

from pocketune.data import ImageDataset, Loader, load_splits
from pocketune.data.streams import Purpose, random_stream
from pocketune.errors import PocketuneError
from pocketune.networks import normalize
from pocketune.shrinking import ShrinkingRecipe, pretrain_supernet
from pocketune.shrinking.phases import phases
from pocketune.shrinking.pretraining import _average_gradients, _size
from pocketune.supernet import Space, Supernet, load_supernet

pytest.importorskip("lightning_fabric")

SPACE = Space(
    width=0.1, classes=2, depths=(1, 2), kernels=(3, 5), expansions=(3, 4, 6), sizes=(24, 32)
)
SHORT = ShrinkingRecipe(epochs=1, batch=8, start="depth")  # 1 epoch of depth and 2 of width
ONE = {"recipe": SHORT, "accelerator": "cpu"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for label, name in enumerate(("dark", "light")):
        (made / name).mkdir()
        for number in range(8):
            pixels = rng.integers(0, 100, (32, 32, 3), np.uint8) + np.uint8(150 * label)
            Image.fromarray(pixels).save(made / name / f"{number}.png")
    return made


@pytest.fixture(scope="module")
def photos(folder: Path) -> ImageDataset:
    return load_splits(folder, val_fraction=0.0).train


def supernet(classes: int = 2) -> Supernet:
    torch.manual_seed(0)
    return Supernet(Space.from_dict({**SPACE.to_dict(), "classes": classes}))


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))


def test_every_phase_trains_and_every_sub_network_changes(
    photos: ImageDataset, tmp_path: Path
) -> None:
    made, out = supernet(), tmp_path / "supernet.safetensors"
    recipe = ShrinkingRecipe(epochs=2, batch=8, lr=0.1)  # 2 steps an epoch
    losses = pretrain_supernet(made, photos, out, recipe=recipe, accelerator="cpu")
    assert len(losses) == 3 + 2 + 2 + 1 + 2  # two phases of width
    saved = load_supernet(out)
    assert same(saved, made)
    # Twenty steps on sixteen photos teach little, and that depends on the processor's rounding.
    untrained = supernet()
    for config in (saved.smallest, saved.largest):
        before = dict(untrained.subnet(config).named_parameters())
        for name, parameter in saved.subnet(config).named_parameters():
            assert not torch.equal(parameter, before[name]), name
    assert [file.name for file in tmp_path.iterdir()] == ["supernet.safetensors"]


def _stop_after(epochs: int, patch: pytest.MonkeyPatch) -> None:
    done: list[None] = []

    def stop(*_: object) -> None:
        done.append(None)
        if len(done) == epochs:
            raise KeyboardInterrupt

    patch.setattr("pocketune.shrinking.pretraining.save_supernet", stop)


def test_goes_on_as_if_it_had_not_been_stopped(
    photos: ImageDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before each of the two phases that sort the channels, and before the last file."""
    whole, again = supernet(), supernet()
    assert len(pretrain_supernet(whole, photos, tmp_path / "whole.safetensors", **ONE)) == 3
    out = tmp_path / "stopped.safetensors"
    for _ in range(3):
        with monkeypatch.context() as patch:
            _stop_after(1, patch)
            with pytest.raises(KeyboardInterrupt):
                pretrain_supernet(supernet(), photos, out, **ONE)
    assert pretrain_supernet(again, photos, out, **ONE) == []
    assert same(again, whole)
    assert same(load_supernet(out), whole)


def test_goes_on_only_with_the_same_recipe_and_supernet(
    photos: ImageDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.safetensors"
    with monkeypatch.context() as patch:
        _stop_after(1, patch)
        with pytest.raises(KeyboardInterrupt):
            pretrain_supernet(supernet(), photos, out, **ONE)
    other = ShrinkingRecipe(epochs=1, batch=4, start="depth", lr=0.1)
    with pytest.raises(PocketuneError, match="by a run with another recipe"):
        pretrain_supernet(supernet(), photos, out, recipe=other, accelerator="cpu")
    changed = supernet()
    nn.init.ones_(changed.network.get_parameter("classifier.1.bias"))
    with pytest.raises(PocketuneError, match="by a run with another network, or one of other"):
        pretrain_supernet(changed, photos, out, **ONE)


def test_photos_of_other_classes_need_a_teacher(photos: ImageDataset, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    recipe = ShrinkingRecipe(epochs=1, batch=4)
    with pytest.raises(PocketuneError, match="the photos have 2 classes and the network 5"):
        pretrain_supernet(supernet(5), photos, out, recipe=recipe, accelerator="cpu")
    made = supernet(5)
    teacher = made.subnet(made.largest)
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    pretrain_supernet(made, photos, out, recipe=SHORT, teacher=teacher, accelerator="cpu")
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())


def test_a_space_without_choices_from_a_phase_on_is_refused(
    photos: ImageDataset, tmp_path: Path
) -> None:
    made = Supernet(Space.from_dict({**SPACE.to_dict(), "expansions": [6]}))
    recipe, out = ShrinkingRecipe(start="width"), tmp_path / "out.safetensors"
    with pytest.raises(PocketuneError, match="no smaller choices that the phase width or a later"):
        pretrain_supernet(made, photos, out, recipe=recipe, accelerator="cpu")


def test_a_step_adds_the_gradients_of_its_sub_networks(
    photos: ImageDataset, tmp_path: Path
) -> None:
    """The first step of the last phase, against a plain loop."""
    trained, plain = supernet(), supernet()
    space = SPACE
    teacher = supernet().subnet(space.largest)
    recipe = ShrinkingRecipe(epochs=1, batch=16, start="width", weight_decay=0.01)
    (*_, last) = phases(space, 1, "width")
    assert last.stage.subnets == 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pocketune.shrinking.pretraining.phases", lambda *_: [last])
        out = tmp_path / "out.safetensors"
        (loss,) = pretrain_supernet(
            trained, photos, out, recipe=recipe, teacher=teacher, accelerator="cpu"
        )
    plain.sort_channels(4)
    rng = random_stream(0, Purpose.SUBNET, 0, 0)
    (batch,) = Loader(photos, size=32, batch=16, train=True).epoch(0)
    size = int(rng.choice([24, 28, 32]))
    images = normalize(plain, batch.images)
    if size < 32:
        images = F.interpolate(images, (size, size), mode="bilinear", antialias=True)
    labels, losses = torch.from_numpy(batch.labels), []
    torch.manual_seed(hash((0, 0, 0)))
    wanted = teacher.eval()(images).softmax(1).detach()
    for _ in range(4):
        plain.activate(space.sample(rng))
        output = plain.train()(images)
        apart = F.cross_entropy(output, wanted) - F.cross_entropy(wanted.log(), wanted)
        losses.append(F.cross_entropy(output, labels, label_smoothing=0.1) + apart)
        losses[-1].backward()
    assert loss == pytest.approx(sum(each.item() for each in losses) / 4, rel=1e-4)
    rate = 0.03 / 4 * 16 / 64
    for (name, ours), theirs in zip(trained.named_parameters(), plain.parameters(), strict=True):
        if theirs.grad is None:
            continue
        decay = 0.01 if theirs.ndim > 1 else 0.0
        step = 1.9 * (theirs.grad + decay * theirs)  # Nesterov's first
        torch.testing.assert_close(ours, theirs - rate * step, msg=name, rtol=1e-4, atol=1e-6)


class Two:
    """Two processes, of which the other one has three times the gradients."""

    world_size = 2

    def all_reduce(self, value: torch.Tensor, reduce_op: str) -> torch.Tensor:
        assert reduce_op == "mean"
        return (value + 3 * value) / 2


@pytest.mark.parametrize(
    ("sizes", "drawn"),
    [((24, 32), {24, 28, 32}), ((26, 28, 37), {26, 28, 32, 36, 37}), ((30,), {30})],
)
def test_sizes_are_drawn_from_the_smallest_to_the_largest(
    sizes: tuple[int, ...], drawn: set[int]
) -> None:
    space = Space.from_dict({**SPACE.to_dict(), "sizes": list(sizes)})
    rng = np.random.default_rng(0)
    assert {_size(space, rng) for _ in range(100)} == drawn


def test_gradients_are_averaged_over_processes() -> None:
    network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
    network[0](torch.ones(1, 2)).sum().backward()
    before = [p.grad.clone() for p in network[0].parameters() if p.grad is not None]
    _average_gradients(network, Two())
    for parameter, grad in zip(network[0].parameters(), before, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, 2 * grad)
    assert network[1].weight.grad is None


def test_what_cannot_be_saved_is_not_trained(photos: ImageDataset, tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match=r"must end in \.safetensors"):
        pretrain_supernet(supernet(), photos, tmp_path / "out.pth", **ONE)


SCRIPT = f"""
import os, sys, torch
from pocketune.shrinking import ShrinkingRecipe, pretrain_supernet
from pocketune.supernet import Space, Supernet

rank = os.environ.get("LOCAL_RANK", "0")
torch.set_num_threads(1)
torch.manual_seed(int(rank))  # each process has drawn values of its own
made = Supernet(Space.from_dict({SPACE.to_dict()}))
recipe = {SHORT}
losses = pretrain_supernet(
    made, sys.argv[1], sys.argv[2], recipe=recipe, accelerator="cpu", devices=2
)
torch.save((dict(made.named_parameters()), losses), sys.argv[2] + rank)
"""


def test_two_processes_train_one_supernet(folder: Path, tmp_path: Path) -> None:
    script, out = tmp_path / "script.py", tmp_path / "supernet.safetensors"
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, script, folder, out], check=True, timeout=300)
    (first, seen), (second, others) = (torch.load(f"{out}{rank}") for rank in (0, 1))
    assert seen != others, "each has photos of its own"
    saved, before = load_supernet(out), dict(supernet().named_parameters())
    assert saved.space == SPACE
    assert first.keys() == before.keys()
    for name, value in saved.named_parameters():
        assert torch.equal(first[name], second[name]), name
        assert torch.equal(first[name], value), name
    moved = {name for name, value in first.items() if not torch.equal(value, before[name])}
    assert {"network.classifier.1.weight", "network.features.0.0.weight"} <= moved
