"""Which values a path stands for: a run's best, its last, or a kit's own."""

from pathlib import Path

import numpy as np
import pytest

from pocketune.device.use.model import Model, as_model
from pocketune.errors import PocketuneError
from pocketune.kit.manifest import KitError

from ..runs import State, trained_state, write_best, write_last
from ..tiny_kit import CLASSES, TinyKit


def same(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("name", ["kit", "kit.zip"])
def test_a_kit_brings_the_values_it_starts_from(tmp_path: Path, name: str) -> None:
    kit = TinyKit().write(tmp_path / name)
    model = Model.open(kit.path)
    assert model.classes == CLASSES
    assert same(model.state, TinyKit().state())


def test_a_run_brings_its_best_values_and_its_own_classes(tmp_path: Path) -> None:
    tiny = TinyKit(classes=("a", "b"))
    kit = TinyKit().write(tmp_path / "run")
    write_last(tmp_path / "run", kit, trained_state(tiny, 1), tiny.classes, tmp_path)
    write_best(tmp_path / "run", kit, trained_state(tiny, 2), tiny.classes)
    model = Model.open(str(tmp_path / "run"))
    assert model.classes == ("a", "b")
    assert same(model.state, trained_state(tiny, 2))


def test_a_run_without_an_evaluation_brings_its_last_values(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "run")
    write_last(tmp_path / "run", kit, trained_state(TinyKit()), CLASSES, tmp_path)
    assert same(Model.open(tmp_path / "run").state, trained_state(TinyKit()))


def test_values_of_another_kit(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "run")
    other = TinyKit(frozen_part=False).write(tmp_path / "other")
    write_best(kit.path, other, trained_state(TinyKit()), CLASSES)
    with pytest.raises(KitError, match=r"best.safetensors does not belong to the kit next to it"):
        Model.open(kit.path)


def test_a_checkpoint_of_another_kit(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "run")
    other = TinyKit(frozen_part=False).write(tmp_path / "other")
    write_last(kit.path, other, trained_state(TinyKit()), CLASSES, tmp_path)
    with pytest.raises(PocketuneError, match="checkpoint of another kit"):
        Model.open(kit.path)


def test_values_that_do_not_fit_their_classes(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "run")
    write_best(kit.path, kit, trained_state(TinyKit()), ("a", "b"))
    with pytest.raises(KitError, match=r"best.safetensors holds fc.weight as .* shape \(3, 6\)"):
        Model.open(kit.path)


def test_damaged_values(tmp_path: Path) -> None:
    kit = TinyKit().write(tmp_path / "run")
    (kit.path / "best.safetensors").write_bytes(b"damaged")
    with pytest.raises(PocketuneError, match=r"best.safetensors is damaged"):
        Model.open(kit.path)


def test_as_model(tmp_path: Path) -> None:
    model = as_model(TinyKit().write(tmp_path / "kit").path)
    assert as_model(model) is model
