"""Settings: a JSON round trip, and values that make no sense."""

import json

import pytest

from pocketune.device.train.optimizer import OPTIMIZERS
from pocketune.device.train.settings import LEARNING_RATES, SIDE, TrainSettings
from pocketune.errors import PocketuneError

from ..train_settings import make_settings


def test_json_round_trip() -> None:
    settings = make_settings(clip=0.1, budget=96_000_000, steps=10, epochs=None)
    assert TrainSettings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


@pytest.mark.parametrize("change", [{"color": 1}, {"lr": None}])
def test_fields_of_another_version(change: dict[str, object]) -> None:
    values = make_settings().to_dict() | change
    if values["lr"] is None:
        del values["lr"]
    with pytest.raises(PocketuneError, match="another version"):
        TrainSettings.from_dict(values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"epochs": None}, "give either epochs or steps"),
        ({"steps": 5}, "give either epochs or steps"),
        ({"epochs": None, "steps": -1}, "steps must be at least 1, not -1"),
        ({"lr": 0.0}, "lr must be above 0, not 0.0"),
        ({"lr": float("nan")}, "lr must be above 0, not nan"),
        ({"lr": float("inf")}, "lr must be above 0, not inf"),
        ({"side_lr": 0.0}, "side_lr must be above 0, not 0.0"),
        ({"clip": 0.0}, "clip must be above 0"),
        ({"momentum": 1.0}, "momentum must be from 0 up to, but not including, 1, not 1.0"),
        ({"weight_decay": -0.1}, "weight_decay must be 0 or more"),
        ({"warmup": -1}, "warmup must be 0 or more"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"val_fraction": 1.0}, "val_fraction must be from 0"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        ({"checkpoint_seconds": 0}, "checkpoint_seconds must be above 0"),
        ({"epochs": 1.5}, "epochs must be a whole number, not 1.5"),
        ({"seed": "1"}, "seed must be a whole number, not '1'"),
        ({"lr": "0.1"}, "lr must be a number, not '0.1'"),
        ({"optimizer": "lion"}, "unknown optimizer 'lion': choose one of adam, adamw, sgd"),
    ],
)
def test_values_without_sense(changes: dict[str, object], message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        make_settings(**changes)


def test_length_of_a_run() -> None:
    assert make_settings(epochs=3).total_steps(7) == 21
    assert make_settings(epochs=None, steps=10).total_steps(7) == 10


def test_every_optimizer_has_a_learning_rate() -> None:
    assert set(LEARNING_RATES) == set(OPTIMIZERS)


def test_rates_of_side_branches() -> None:
    names = ["features.2.branch.conv1.weight", "classifier.1.weight", "branches.0.weight"]
    assert make_settings().rates(names) == {}
    assert make_settings(lr=0.002, side_lr=0.01).rates(names) == {names[0]: 5.0}


def test_side_branches_are_called_as_surgery_calls_them() -> None:
    pytest.importorskip("torch")
    from pocketune.surgery import BRANCH

    assert SIDE == BRANCH
