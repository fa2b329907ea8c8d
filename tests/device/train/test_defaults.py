"""The defaults of a run: how they follow the batch and the number of photos."""

import math
import re
from dataclasses import astuple
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.device.train.defaults import (
    ENOUGH_TO_STOP,
    EPOCHS,
    FEW_PHOTOS,
    FEW_STEPS,
    MEASURED_IMAGES,
    OPTIMIZERS,
    RATES,
    SMALL_SET_EPOCHS,
    STEPS,
    TOO_FEW_TO_DIVIDE,
    default_epochs,
    default_patience,
    default_rates,
    kind_of,
)
from pocketune.device.train.settings import TrainSettings
from pocketune.kit.manifest import ParameterSpec
from pocketune.options import option_fields


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rates_of_the_measured_batch_are_those_of_the_table(optimizer: str) -> None:
    assert default_rates(optimizer, MEASURED_IMAGES) == RATES[optimizer]


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ("`lr`", "main"),
        ("`bias_lr`", "bias"),
        ("`side_lr`", "side"),
        ("`decode_lr`", "decode"),
        ("`head_lr`", "head"),
    ],
)
def test_the_rates_are_the_documented_ones(row: str, kind: str) -> None:
    page = Path(__file__).parents[3] / "docs" / "defaults.md"
    (line,) = (line for line in page.read_text("utf-8").splitlines() if line.startswith(f"| {row}"))
    adam, sgd = map(float, re.findall(r"\d+e-\d+", line))
    assert getattr(RATES["adam"], kind) == adam
    assert getattr(RATES["sgd"], kind) == sgd
    assert RATES["adamw"] == RATES["adam8"] == RATES["adam"]


def test_the_lengths_are_the_documented_ones() -> None:
    page = Path(__file__).parents[3] / "docs" / "defaults.md"
    (row,) = (
        line for line in page.read_text("utf-8").splitlines() if line.startswith("| `epochs`")
    )
    (option,) = (each.option for each in option_fields(TrainSettings) if each.name == "epochs")
    for told in (row.replace("uneven.md#few-photos", ""), option.unset or ""):
        numbers = {int(each.replace(",", "")) for each in re.findall(r"[\d,]*\d", told)}
        expected = {*EPOCHS, SMALL_SET_EPOCHS, STEPS, FEW_STEPS, TOO_FEW_TO_DIVIDE}
        assert numbers - {0} == expected


@given(images=st.integers(1, 4096))
def test_larger_steps_have_larger_rates(images: int) -> None:
    for optimizer, power in {"adam": 0.5, "adamw": 0.5, "sgd": 1.0}.items():
        factor = (images / MEASURED_IMAGES) ** power
        expected = [rate * factor for rate in astuple(RATES[optimizer])]
        assert astuple(default_rates(optimizer, images)) == pytest.approx(expected)


@given(photos=st.integers(1, 10_000))
def test_few_photos_are_learned_at_lower_rates(photos: int) -> None:
    for optimizer in OPTIMIZERS:
        factor = math.sqrt(min(1, photos / FEW_PHOTOS))
        *network, head = astuple(RATES[optimizer])
        expected = [*(rate * factor for rate in network), head]
        assert astuple(default_rates(optimizer, MEASURED_IMAGES, photos)) == pytest.approx(expected)


@given(steps=st.integers(1, 100_000))
def test_small_sets_get_enough_steps_and_large_ones_few_epochs(steps: int) -> None:
    fewest, most = EPOCHS
    epochs = default_epochs(steps)
    assert fewest <= epochs <= most
    assert epochs >= min(most, SMALL_SET_EPOCHS) or epochs * steps >= STEPS
    assert epochs == most or epochs * steps >= FEW_STEPS
    assert epochs <= max(fewest, SMALL_SET_EPOCHS) or (epochs - 1) * steps < FEW_STEPS
    assert epochs == fewest or (epochs - 1) * steps < STEPS
    assert default_epochs(steps + 1) <= epochs


@given(epochs=st.integers(1, 1000), validation=st.integers(0, 1000))
def test_patience_reaches_into_the_second_half(epochs: int, validation: int) -> None:
    patience = default_patience(epochs, validation)
    if validation < ENOUGH_TO_STOP:
        assert patience == 0
    else:
        assert epochs / 2 <= patience <= max(1, epochs)


def test_a_run_may_stop_early_from_so_many_validation_photos_on() -> None:
    assert default_patience(20, ENOUGH_TO_STOP) == 10
    assert default_patience(20, ENOUGH_TO_STOP - 1) == 0


@pytest.mark.parametrize(
    ("group", "vector", "others"),
    [
        ("main", "bias", "main"),
        ("decode_head", "bias", "decode"),
        ("branch", "side", "side"),
        ("head", "head", "head"),
    ],
)
def test_vectors_of_the_network_and_of_its_decode_head_follow_the_rate_of_biases(
    group: str, vector: str, others: str
) -> None:
    for shape, kind in (((8,), vector), ((8, 4, 1, 1), others)):
        assert kind_of(ParameterSpec("a", shape, group)) == kind
