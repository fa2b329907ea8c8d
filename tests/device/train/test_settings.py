"""Settings: a JSON round trip, and values that make no sense."""

import json
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest

from pocketune.cli.app import app
from pocketune.data.dataset import FEWEST, VAL_FRACTION
from pocketune.device.train.defaults import BALANCE, OPTIMIZERS, RATES, UNEVEN, kind_of
from pocketune.device.train.settings import TrainSettings, command_options
from pocketune.errors import PocketuneError
from pocketune.kit.manifest import ParameterSpec
from pocketune.options import option_fields

from ..runs import make_settings


def resolved(**options: Any) -> TrainSettings:
    """Settings for steps of 8 images, 100 in an epoch, and 200 validation photos."""
    return TrainSettings(**options).resolved(images=8, steps_per_epoch=100, validation=200)


def rates_of(optimizer: str) -> tuple[float, ...]:
    return astuple(RATES[optimizer])


def rates_in(settings: TrainSettings) -> tuple[float | None, ...]:
    return settings.lr, settings.bias_lr, settings.side_lr, settings.decode_lr, settings.head_lr


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
        ({"epochs": -1}, "epochs must be at least 0, not -1"),
        ({"steps": 5}, "epochs and steps must not be given together"),
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
        ({"patience": -1}, "patience must be at least 0"),
        ({"head_lr": 0.0}, "head_lr must be above 0"),
        ({"bias_lr": 0.0}, "bias_lr must be above 0"),
        ({"val_fraction": 1.0}, "val_fraction must be at least 0 and below 1"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        ({"checkpoint_seconds": 0}, "checkpoint_seconds must be above 0"),
        ({"epochs": 1.5}, "epochs must be a whole number, not 1.5"),
        ({"seed": "1"}, "seed must be a whole number, not '1'"),
        ({"lr": "0.1"}, "lr must be a number, not '0.1'"),
        ({"seed": True}, "seed must be a whole number, not True"),
        ({"lr": True}, "lr must be a number, not True"),
        ({"budget": "much"}, "'much' is not a size"),
        ({"optimizer": "lion"}, "unknown optimizer 'lion': choose one of adam, adam8, adamw, sgd"),
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
    adam, sgd = resolved(), resolved(optimizer="sgd", steps=5)
    assert (adam.epochs, adam.steps, adam.patience, adam.momentum) == (10, None, 5, None)
    assert rates_in(adam) == rates_of("adam")
    assert (sgd.epochs, sgd.steps, sgd.patience, sgd.momentum) == (None, 5, 0, 0.9)
    assert rates_in(sgd) == rates_of("sgd")
    assert resolved(budget="96MB").budget == 96_000_000
    for settings in (adam, sgd):
        assert settings.resolved(images=64, steps_per_epoch=9, validation=0) == settings


def test_a_given_rate_is_that_of_every_group_without_one_of_its_own() -> None:
    assert rates_in(resolved(lr=0.02)) == (0.02,) * 5
    every = resolved(lr=0.02, bias_lr=0.01, side_lr=0.03, decode_lr=0.05, head_lr=0.04)
    assert rates_in(every) == (0.02, 0.01, 0.03, 0.05, 0.04)
    assert rates_in(resolved(head_lr=0.04)) == (*rates_of("adam")[:4], 0.04)


def test_rates_that_are_given_do_not_depend_on_the_batch() -> None:
    given = TrainSettings(lr=0.02, head_lr=0.04).resolved(
        images=64, steps_per_epoch=9, validation=0
    )
    assert (given.lr, given.head_lr) == (0.02, 0.04)
    larger = TrainSettings().resolved(images=32, steps_per_epoch=9, validation=0)
    assert larger.lr == pytest.approx(2 * rates_of("adam")[0])


def test_a_rate_that_is_given_does_not_depend_on_the_number_of_photos() -> None:
    few = TrainSettings(lr=0.02).resolved(images=8, steps_per_epoch=1, validation=0, photos=8)
    assert rates_in(few) == (0.02,) * 5


@pytest.mark.parametrize(
    ("options", "patience"),
    [({}, 5), ({"epochs": 10}, 0), ({"steps": 70}, 0), ({"patience": 3}, 3), ({"patience": 0}, 0)],
)
def test_a_run_stops_early_unless_its_length_is_given(
    options: dict[str, int], patience: int
) -> None:
    assert resolved(**options).patience == patience


def test_few_validation_photos_stop_no_run_early() -> None:
    few = TrainSettings().resolved(images=8, steps_per_epoch=100, validation=199)
    assert few.patience == 0


@pytest.mark.parametrize(
    ("balance", "imbalance", "filled_in"),
    [(None, 1.0, 0.0), (None, UNEVEN, 0.0), (None, UNEVEN + 1, BALANCE), (0.0, 99.0, 0.0)],
)
def test_uneven_classes_are_drawn_more_alike_unless_told_otherwise(
    balance: float | None, imbalance: float, filled_in: float
) -> None:
    settings = TrainSettings(balance=balance).resolved(
        images=8, steps_per_epoch=9, validation=0, imbalance=imbalance
    )
    assert settings.balance == filled_in


def test_length_of_a_run() -> None:
    assert make_settings(epochs=3).total_steps(7) == 21
    assert make_settings(epochs=None, steps=10).total_steps(7) == 10
    assert TrainSettings().total_steps(100) == 1000


def test_rates_by_group_and_dimensions() -> None:
    """The name of the module does not count."""
    weight, bias, side, decode, head = parameters = [
        ParameterSpec("branch.weight", (2, 3), "main"),
        ParameterSpec("norm.weight", (2,), "main"),
        ParameterSpec("features.2.side.bias", (2,), "branch"),
        ParameterSpec("pyramid.weight", (2, 3, 1, 1), "decode_head"),
        ParameterSpec("fc.bias", (2,), "head"),
    ]
    assert set(make_settings().rates(parameters).values()) == {1.0}
    rates = {"bias_lr": 0.004, "side_lr": 0.01, "decode_lr": 0.008, "head_lr": 0.001}
    given = make_settings(lr=0.002, **rates)
    factors = {weight.name: 1.0, bias.name: 2.0, side.name: 5.0, decode.name: 4.0, head.name: 0.5}
    assert kind_of(ParameterSpec("pyramid.norm.weight", (2,), "decode_head")) == "bias"
    assert given.rates(parameters) == factors
    default = TrainSettings().rates(parameters)
    found = [RATES["adam"].main * default[spec.name] for spec in parameters]
    assert found == pytest.approx(rates_of("adam"))


def test_a_budget_of_nothing_is_no_budget() -> None:
    assert TrainSettings().budget_bytes is None
    assert TrainSettings(budget=5_000_000).budget_bytes == 5_000_000
    assert TrainSettings(budget="5 MB").budget_bytes == 5_000_000


@pytest.mark.parametrize(
    ("options", "asks"),
    [
        *(
            ({"cache": each}, each in ("disk", "memory"))
            for each in ("auto", "off", "disk", "memory")
        ),
        *(({"optimizer": each}, each in ("adamw", "sgd")) for each in OPTIMIZERS),
        *(({each: 1}, True) for each in ("warmup", "draws", "balance", "epochs")),
        *(({each: 2}, False) for each in ("accumulate", "checkpoint_every")),
    ],
)
def test_settings_that_ask_for_steps(options: dict[str, Any], asks: bool) -> None:
    assert TrainSettings(**options).asks_for_steps == asks


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_momentum_that_has_no_effect_is_refused(optimizer: str, momentum: float) -> None:
    with pytest.raises(PocketuneError, match=f"momentum={momentum} has no effect with {optimizer}"):
        TrainSettings(optimizer=optimizer, momentum=momentum)
    assert TrainSettings(optimizer="sgd", momentum=momentum).sgd_momentum == momentum


def test_resolved_settings_are_what_a_checkpoint_restores() -> None:
    for settings in (resolved(), resolved(optimizer="sgd", steps=3, budget="1GB")):
        stored = json.loads(json.dumps(settings.to_dict()))
        assert TrainSettings.from_dict(stored) == settings


def test_the_help_names_the_fraction_that_the_division_takes():
    option = next(each for each in option_fields(TrainSettings) if each.name == "val_fraction")
    told = f"{VAL_FRACTION} of each class of {FEWEST} or more photos; 0 without steps"
    assert option.default_text == told


def test_settings_become_options_and_back() -> None:
    settings = TrainSettings(budget=96_000_000, steps=5, lr=0.01, optimizer="sgd", seed=3)
    words = command_options(settings)
    assert command_options(TrainSettings()) == []
    context = app.get_command(None, "train").make_context(  # type: ignore[union-attr, arg-type]
        "train", ["photos", *words]
    )
    given = {name: context.params[name] for name in settings.to_dict()}
    assert replace(TrainSettings(**given), budget=settings.budget) == settings
    assert int(given["budget"]) == settings.budget
