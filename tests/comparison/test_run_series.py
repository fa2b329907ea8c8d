"""The kit of a series, which is built once, and the rates that are chosen before its runs."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.comparison import compare
from pocketune.comparison.run_series import _SeriesRunner
from pocketune.comparison.series import all_series
from pocketune.device.train import RunRecord
from pocketune.processes.job import run_job
from pocketune.tasks import Classification, Score

from .grids import NETWORK, do_here, grid, quiet


@pytest.mark.usefixtures("in_process")
def test_rates_are_chosen_on_a_fifth_of_the_training_photos(
    photos: Path, tiny: str, tmp_path: Path
) -> None:
    lines: list[str] = []
    chosen = grid(
        photos,
        kits=[tiny],
        rates=[1e-2, 1e-9],
        seeds=2,
        settings={"steps": 6, "head_start": "random"},
    )
    result = compare(chosen, tmp_path, show=lines.append)
    assert lines[0] == "2 runs, 2 to make, with rates to choose"
    assert lines[1].startswith("rates  colors, tiny, last with lr 0.01, seed 100: accuracy ")
    assert "(validation)" in lines[1] and lines[2].startswith("rates  ")
    assert all(line.endswith(" left") for line in lines[1:])
    assert lines[-1].endswith("; 0:00 left")
    (series,) = all_series(chosen)
    tried = [series.trial({"lr": lr}).cell for lr in (1e-9, 1e-2)]
    records = [RunRecord.read(tmp_path / "runs" / cell.key) for cell in tried]
    assert [record.settings["lr"] for record in records] == [1e-9, 1e-2]
    assert all((r.photos.training, r.photos.validation) == (18, 6) for r in records)
    best = max(records, key=lambda r: (r.best.value, -r.best.loss))
    assert [cell.record.settings["lr"] for cell in result.cells] == [best.settings["lr"]] * 2
    assert compare(chosen, tmp_path, show=quiet) == result


@given(scores=st.lists(st.integers(0, 9) | st.none(), min_size=5, max_size=5))
def test_rates_are_climbed_from_the_middle(scores: list[int | None]) -> None:
    (runner, rates, tried) = (_SeriesRunner.__new__(_SeriesRunner), [1.0, 2.0, 3.0, 4.0, 5.0], [])
    runner._problem, runner._manifest = None, SimpleNamespace(task=Classification(("a",)))

    def attempt(choice: dict[str, float]) -> Iterator[str]:
        tried.append(choice["lr"])
        yield "cell"
        value = scores[rates.index(choice["lr"])]
        if value is None:
            return SimpleNamespace(record=None, error="diverged")
        return SimpleNamespace(record=SimpleNamespace(best=Score("a", value, 0.0)), error=None)

    runner._try = attempt  # type: ignore[method-assign]
    climb = runner._climb("lr", rates, {})
    while (ended := step(climb)) is None:
        pass
    known = [-1 if score is None else score for score in scores]
    place = rates.index(ended)
    assert known[place] >= known[2]
    assert known[place] >= max(known[max(place - 1, 0) : place + 2])  # nothing beside it is better
    assert (runner._problem is None) == (known[place] >= 0)
    assert tried[0] == 3.0 and len(tried) == len(set(tried))


def step(climb: Any) -> float | None:
    """The rate once the climb has ended."""
    try:
        next(climb)
    except StopIteration as ended:
        return ended.value
    return None


@pytest.mark.usefixtures("in_process")
def test_the_classifiers_rate_is_chosen_after_the_others(
    photos: Path, tiny: str, tmp_path: Path
) -> None:
    lines: list[str] = []
    values = {"kits": ["last", tiny], "rates": [1e-3], "head_rates": [1e-4]}
    result = compare(grid(photos, **values), tmp_path, show=lines.append)
    tried = [line.split("seed")[0] for line in lines if line.startswith("rates")]
    assert tried == [
        "rates  colors, last with lr 0.001, ",  # its classifier is all that it trains
        "rates  colors, tiny, last with lr 0.001, ",
        "rates  colors, tiny, last with lr 0.001, head_lr 0.0001, ",
    ]
    last, whole = (cell.record.settings for cell in result.cells)
    assert (last["lr"], whole["lr"], whole["head_lr"]) == (1e-3, 1e-3, 1e-4)


@pytest.mark.parametrize(
    ("method", "error"),
    [("last", None), ("signed", "SignedBackward() trains nothing by itself")],
)
def test_a_network_is_built_once(
    method: str, error: str | None, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[str] = []

    def counted(module: str, job: Any, **options: Any) -> None:
        jobs.append(module.rpartition(".")[2])
        done = run_job if jobs == ["build"] and error is None else do_here
        done(module, job, **options)

    monkeypatch.setattr("pocketune.comparison.run_series.run_job", counted)
    monkeypatch.setattr("pocketune.comparison.names.run_job", do_here)
    wanted = grid(photos, kits=[], networks=[NETWORK], methods=[method], seeds=2)
    if error is None:  # a stopped comparison has left a damaged kit, which is built again
        left = tmp_path / "kits" / all_series(wanted)[0].identity
        left.mkdir(parents=True)
        (left / "manifest.json").write_text("{}")
    result = compare(wanted, tmp_path, show=quiet)
    if error is None:
        assert jobs == ["build", "worker", "worker"]
        assert [row.model for row in result.rows] == ["mobilenet_v2 0.1"]
        assert not result.failed
    else:
        assert jobs == ["build"]
        assert all(cell.error and cell.error.startswith(error) for cell in result.cells)
    assert not (tmp_path / "kits").exists()
