"""A record is read as it was written, and only goes on with what it was made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pocketune.errors import PocketuneError
from pocketune.extractor.record import (
    ADAPTED,
    RECORD,
    Asked,
    Finalist,
    Forecast,
    Journal,
    Pair,
    Record,
)
from pocketune.extractor.settings import ExtractorSettings
from pocketune.methods import TinyTL, method_to_dict

from .small import space

ASKED = Asked(
    version="1",
    photos="a",
    supernet="b",
    method=method_to_dict(TinyTL()),
    settings=ExtractorSettings().evidence,
)
PAIR = Pair(config=space(module_groups=(2, 4), module_kernels=(3,)).largest, accuracy=0.5, loss=1)


def test_a_record_goes_on_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "search", ASKED)
    journal.spend("measurement", 2.0)
    journal.spend("measurement", 1.5)
    journal.write(pairs=(PAIR,), steps=3)
    again = Journal(tmp_path / "search", ASKED)
    assert again.record == journal.record
    assert again.record.seconds == {"measurement": 3.5}
    with pytest.raises(PocketuneError, match="has not finished"):
        _ = again.record.chosen


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": "2"}, "another version of Pocketune"),
        ({"photos": "c"}, "other photos"),
        ({"supernet": "c"}, "another supernet"),
        ({"method": {"name": "last"}}, "another method"),
        ({"settings": ExtractorSettings(seed=3).evidence}, "seed 3"),
        ({"settings": {**ExtractorSettings().evidence, "seed": None}}, "no seed"),
    ],
)
def test_what_it_was_made_with_is_named(
    changed: dict[str, object], said: str, tmp_path: Path
) -> None:
    Journal(tmp_path, replace(ASKED, **changed)).write()  # type: ignore[arg-type]
    with pytest.raises(PocketuneError, match=f"was made with {said}; name another folder"):
        Journal(tmp_path, ASKED)


def test_without_the_record_a_search_starts_over(tmp_path: Path) -> None:
    Journal(tmp_path, ASKED).write()
    (tmp_path / ADAPTED).write_bytes(b"state")
    Journal(tmp_path, ASKED)
    assert (tmp_path / ADAPTED).exists()
    (tmp_path / RECORD).unlink()
    Journal(tmp_path, replace(ASKED, photos="c"))
    assert not (tmp_path / ADAPTED).exists()


def test_limits_are_no_part_of_what_was_measured() -> None:
    limited = ExtractorSettings(budget="90MB", step_seconds=1, macs=3, time="1h")
    assert limited.evidence == ExtractorSettings().evidence


@pytest.mark.parametrize(
    ("content", "said"),
    [("{", "not valid JSON"), ('{"schema": 99}', "another version"), ('{"schema": 2}', "lacks")],
)
def test_a_damaged_record_is_named(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text(content)
    with pytest.raises(PocketuneError, match=said):
        Record.read(tmp_path / RECORD)
    with pytest.raises(PocketuneError, match=RECORD):
        Journal(tmp_path, ASKED)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pairs": 5}, "pairs must be at least 20"),
        ({"budget": "much"}, "not a size"),
        ({"time": "soon"}, "not a time"),
        ({"macs": 0}, "macs must be above 0"),
    ],
)
def test_settings_out_of_range(options: dict[str, object], said: str) -> None:
    with pytest.raises(PocketuneError, match=said):
        ExtractorSettings(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("predicted", "recorded"), [(1.07, 1.0), (0.6, 0.6), (-0.1, 0.0)])
def test_a_recorded_prediction_is_an_accuracy(predicted: float, recorded: float) -> None:
    forecast = Forecast(config=PAIR.config, memory=1, step_seconds=1, macs=1, training_macs=1)
    assert Finalist(forecast=forecast, predicted=predicted).bounded.predicted == recorded
