"""Settings: a JSON round trip, and values that make no sense."""

import doctest
import json

import numpy as np
import pytest

from pocketune.device.train import settings as module
from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.kit.manifest import ParameterSpec

from ..runs import make_settings


def test_docstring() -> None:
    assert doctest.testmod(module).failed == 0


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
        ({"steps": 5}, "give either epochs or steps"),
        ({"epochs": None, "steps": -1}, "steps must be at least 1, not -1"),
        ({"lr": 0.0}, "lr must be above 0, not 0.0"),
        ({"lr": float("nan")}, "lr must be above 0, not nan"),
        ({"lr": float("inf")}, "lr must be above 0, not inf"),
        ({"side_lr": 0.0}, "side_lr must be above 0, not 0.0"),
        ({"clip": 0.0}, "clip must be above 0"),
        ({"optimizer": "sgd", "momentum": 1.0}, "momentum must be at least 0 and below 1, not 1.0"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0"),
        ({"warmup": -1}, "warmup must be at least 0"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"val_fraction": 1.0}, "val_fraction must be at least 0 and below 1"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        ({"checkpoint_seconds": 0}, "checkpoint_seconds must be above 0"),
        ({"epochs": 1.5}, "epochs must be a whole number, not 1.5"),
        ({"seed": "1"}, "seed must be a whole number, not '1'"),
        ({"lr": "0.1"}, "lr must be a number, not '0.1'"),
        ({"seed": True}, "seed must be a whole number, not True"),
        ({"lr": True}, "lr must be a number, not True"),
        ({"budget": "much"}, "'much' is not a size"),
        ({"optimizer": "lion"}, "unknown optimizer 'lion': choose one of adam, adamw, sgd"),
    ],
)
def test_values_without_sense(changes: dict[str, object], message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        make_settings(**changes)


def test_numbers_of_numpy_are_stored_as_pythons_own() -> None:
    settings = TrainSettings(epochs=np.int64(3), lr=np.float32(0.5), warmup=np.uint8(2), clip=1)
    assert settings == TrainSettings(epochs=3, lr=0.5, warmup=2, clip=1.0)
    assert json.loads(json.dumps(settings.to_dict()))["epochs"] == 3
    with pytest.raises(PocketuneError, match="epochs must be a whole number"):
        TrainSettings(epochs=np.bool_(True))


def test_what_is_left_out_is_filled_in() -> None:
    adam, sgd = TrainSettings().resolved(), TrainSettings(optimizer="sgd", steps=5).resolved()
    assert (adam.epochs, adam.steps, adam.lr, adam.momentum) == (20, None, 3e-4, None)
    assert (sgd.epochs, sgd.steps, sgd.lr, sgd.momentum) == (None, 5, 1e-2, 0.9)
    assert TrainSettings(budget="96MB").resolved().budget == 96_000_000
    assert adam.resolved() == adam
    assert sgd.resolved() == sgd


def test_length_of_a_run() -> None:
    assert make_settings(epochs=3).total_steps(7) == 21
    assert make_settings(epochs=None, steps=10).total_steps(7) == 10


def test_rates_of_side_branches() -> None:
    """Only the group counts, not the name of the module."""
    groups = {"features.2.side.weight": "branch", "branch.weight": "main", "fc.weight": "head"}
    parameters = [ParameterSpec(name, (1,), group) for name, group in groups.items()]
    assert make_settings().rates(parameters) == {}
    assert make_settings(lr=0.002, side_lr=0.01).rates(parameters) == {parameters[0].name: 5.0}


def test_a_budget_of_nothing_is_no_budget() -> None:
    assert TrainSettings().budget_bytes is None
    assert TrainSettings(budget=5_000_000).budget_bytes == 5_000_000
    assert TrainSettings(budget="5 MB").budget_bytes == 5_000_000


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_momentum_that_has_no_effect_is_refused(optimizer: str, momentum: float) -> None:
    with pytest.raises(PocketuneError, match=f"momentum={momentum} has no effect with {optimizer}"):
        TrainSettings(optimizer=optimizer, momentum=momentum)
    assert TrainSettings(optimizer="sgd", momentum=momentum).sgd_momentum == momentum


def test_resolved_settings_are_what_a_checkpoint_restores() -> None:
    for settings in (TrainSettings(), TrainSettings(optimizer="sgd", steps=3, budget="1GB")):
        resolved = settings.resolved()
        stored = json.loads(json.dumps(resolved.to_dict()))
        assert TrainSettings.from_dict(stored) == resolved


def test_a_side_branch_at_the_peak_rate_has_the_factor_one() -> None:
    branch = [ParameterSpec("side", (1,), "branch")]
    assert TrainSettings(lr=0.01, side_lr=0.01).rates(branch) == {"side": 1.0}
    assert TrainSettings(optimizer="sgd", side_lr=0.02).rates(branch) == {"side": 2.0}
    assert TrainSettings(side_lr=0.02).rates([]) == {}
