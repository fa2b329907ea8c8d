"""`pocketune adapt-extractor` prints what was found, and refuses in a sentence."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import pocketune.extractor
from pocketune.extractor.record import Asked, Finalist, Forecast, Pair, Ranking, Record
from pocketune.supernet import Space

from .conftest import Run

FORECAST = Forecast(
    config=Space(sizes=(64,)).smallest,
    memory=70_000_000,
    step_seconds=0.1,
    macs=5_000_000,
    training_macs=10_000_000,
)
FOUND = Record(
    asked=Asked(version="1", photos="a", supernet="b", method={}, settings={}),
    ranking=Ranking(predictor="ridge", correlations={"ridge": 0.8}, memory_error=0.01),
    front=(Finalist(forecast=FORECAST, predicted=0.6),),
    finalists=(Finalist(forecast=FORECAST, predicted=0.6, accuracy=0.65),),
    seconds={"adaptation": 60.0},
    macs={"adaptation": 2e12},
)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of a search that is not made."""
    seen: dict[str, Any] = {}

    def adapt(photos: object, out: object, settings: object, **options: Any) -> Record:
        seen.update(options, photos=photos, out=out, settings=settings)
        return FOUND

    monkeypatch.setattr(pocketune.extractor, "adapt_extractor", adapt)
    return seen


def test_it_prints_what_was_chosen(run: Run, given: dict[str, Any]) -> None:
    result = run(
        *("adapt-extractor", "photos", "--supernet", "s.safetensors", "--out", "kit"),
        *("--budget", "96MB", "--time", "1h", "--method-option", "kernel=3"),
    )
    assert result.exit_code == 0, result.output
    assert "chosen: 64 px, depths 2 2 2 2 2" in result.output
    assert "65.0% on the held-out photos (60.0% predicted), 70 MB" in result.output
    assert "built kit" in result.output
    assert given["settings"].budget == "96MB"
    assert 0 < given["settings"].seconds <= 3600  # without the import of PyTorch
    assert (given["out"], given["method"].kernel) == (Path("kit"), 3)


def test_predictions_that_are_no_better_than_chance_are_told(
    run: Run, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = (Pair(config=FORECAST.config, accuracy=0.5, loss=1.0),) * 20
    for correlation, told in ((0.8, False), (0.3, True), (-0.38, True)):
        ranking = Ranking(predictor="ridge", correlations={"ridge": correlation}, memory_error=0)
        found = replace(FOUND, pairs=pairs, ranking=ranking)
        monkeypatch.setattr(pocketune.extractor, "adapt_extractor", lambda *_, f=found, **__: f)
        said = run("adapt-extractor", "photos", "--supernet", "s.safetensors", "--out", "k").stdout
        assert ("predictions from 20 sub-networks are no better than chance" in said) == told


def test_json_is_the_record(run: Run, given: dict[str, Any]) -> None:
    result = run(
        *("adapt-extractor", "photos", "--supernet", "s.safetensors", "--out", "kit", "--json")
    )
    assert json.loads(result.stdout) == json.loads(json.dumps(asdict(FOUND)))
    assert given["run"] is None


def test_a_missing_supernet_is_one_sentence(run: Run, photos: Path, tmp_path: Path) -> None:
    result = run("adapt-extractor", photos, "--supernet", "none.safetensors", "--out", "kit")
    assert result.exit_code == 1
    assert result.output == (
        "error: there is no supernet none.safetensors; give a file that pocketune "
        "pretrain-supernet has written\n"
    )
    assert not list(tmp_path.glob("kit*"))
