"""Reading the log of a run as curves."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.errors import PocketuneError
from pocketune.reporting.metrics import Curve, Metrics

LINES = [
    {"kind": "start", "step": 0, "validation_accuracy": 0.2, "validation_loss": 1.7},
    {"kind": "step", "step": 1, "loss": 2.0, "lr": 0.1},
    {"kind": "step", "step": 2, "loss": None, "lr": 0.05},
    {"kind": "epoch", "step": 2, "loss": 1.5, "validation_accuracy": 0.5},
    {"kind": "end", "step": 2, "reason": "steps"},
]


def test_a_log_is_read_by_kind_and_a_torn_line_is_ignored(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join(map(json.dumps, LINES)) + '\n[1]\n{"kind": "step", "st')
    found = Metrics.read(path)
    assert found.of_steps("lr") == Curve((1, 2), (0.1, 0.05))
    assert found.of_epochs("validation_accuracy") == Curve((0, 2), (0.2, 0.5))
    assert found.of_epochs("loss") == Curve((2,), (1.5,))
    assert math.isnan(found.of_steps("loss").values[1])


def test_a_start_without_validation_is_not_a_point(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps({"kind": "start", "step": 0, "estimated_accuracy": 0.5}))
    assert not Metrics.read(path).epochs


def test_a_missing_log_is_an_error(tmp_path):
    with pytest.raises(PocketuneError, match="cannot be read"):
        Metrics.read(tmp_path / "metrics.jsonl")


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=300), st.integers(1, 40))
def test_thinning_keeps_the_range_and_no_more_points_than_asked(values, limit):
    curve = Curve(tuple(map(float, range(len(values)))), tuple(values))
    thin = curve.thinned(limit)
    assert len(thin.steps) == min(limit, len(values)) == len(thin.values)
    assert list(thin.steps) == sorted(thin.steps)
    assert min(values) - 1e-9 <= min(thin.values) and max(thin.values) <= max(values) + 1e-9


def test_values_that_are_not_numbers_do_not_spoil_their_neighbors():
    thin = Curve((1, 2, 3, 4), (math.nan, 2.0, math.nan, math.nan)).thinned(2)
    assert thin.values[0] == 2 and math.isnan(thin.values[1])
