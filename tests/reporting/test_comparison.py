"""The report of a comparison."""

from dataclasses import replace

import pytest

import pocketune
from pocketune.comparison import Cell, Comparison
from pocketune.errors import PocketuneError
from pocketune.reporting.charts.bubbles import Bubble, bubble_chart
from pocketune.reporting.comparison import comparison_page

from ..device.train.test_record import RECORD
from .html import check_alone

NASTY = '<b>"a"</b> & $x$'


def cell(model: str, method: str, seed: int, score: float | None, peak: int, photos=NASTY) -> Cell:
    record = replace(RECORD, peak_memory=peak, step_flops=peak * 4, task="classification")
    return Cell(
        photos=photos,
        model=model,
        method=method,
        seed=seed,
        key="k",
        part="test",
        images=100,
        score=score,
        metric="accuracy",
        style=".1%",
        record=None if score is None else record,
        error="no memory" if score is None else None,
    )


@pytest.fixture
def folder(tmp_path):
    cells = [
        cell("small", "last", 0, 0.70, 60_000_000),
        cell("small", "last", 1, 0.72, 62_000_000),
        cell("small", "blocks", 0, 0.80, 75_000_000),
        cell("small", "blocks", 1, 0.84, 74_000_000),
        cell("large", "blocks", 0, 0.78, 99_000_000),
        cell("large", "blocks", 1, None, 0),
        cell("large", "full", 0, None, 0),
        cell("small", "last", 0, 0.5, 61_000_000, photos="other"),
    ]
    Comparison(tuple(cells)).write(tmp_path)
    return tmp_path


def test_each_set_names_its_best_and_its_smallest(folder):
    page = comparison_page(folder)
    said = " ".join(page.summary)
    assert f"On {NASTY}, small, blocks is best: accuracy 82.0% ± 2.8 on the test photos" in said
    assert "By these runs, as good as the best may be: large, blocks. " in said
    assert "small, last takes least, 62 MB, and reaches 71.0% ± 1.4" in said
    assert "On other, small, last is best: accuracy 50.0%" in said and "the least of all" in said
    assert "2 runs failed" in said


@pytest.mark.parametrize(
    ("scores", "equal"),
    [
        (((0.90, 0.92), (0.89, 0.91)), True),
        (((0.90, 0.91), (0.80, 0.81)), False),
        (((0.90,), (0.85,)), True),  # of 100 photos
        (((0.90,), (0.60,)), False),
    ],
)
def test_what_may_be_chance_is_no_lead(tmp_path, scores, equal):
    cells = [
        cell("small", method, seed, score, 60_000_000)
        for method, own in zip(("blocks", "last"), scores, strict=True)
        for seed, score in enumerate(own)
    ]
    Comparison(tuple(cells)).write(tmp_path)
    said = " ".join(comparison_page(tmp_path).summary)
    assert ("as good as the best may be: small, last." in said) == equal


def test_rows_come_best_first_and_failures_have_their_reasons(folder):
    page = comparison_page(folder)
    first, other, failed, _ = page.sections
    ((_, table),) = first.tables
    assert [row[:5] for row in table.rows] == [
        ("small", "blocks", "82.0% ± 2.8", "2", "2"),
        ("large", "blocks", "78.0%", "1 of 2", "1"),
        ("small", "last", "71.0% ± 1.4", "2", "2"),
        ("large", "full", "failed", "0 of 1", "-"),
    ]
    assert len(first.charts[0].table.rows) == 3
    assert other.title == "other"
    assert {row[1] for row in failed.tables[0][1].rows} == {"no memory"}


def test_a_comparison_where_no_run_gained_says_so(folder, tmp_path):
    assert "No run was better" not in " ".join(comparison_page(folder).summary)
    start = cell("small", "last", 0, 0.7, 60_000_000)
    record = replace(start.record, best_step=0, head="LDA")
    Comparison((replace(start, record=record),)).write(tmp_path)
    said = " ".join(comparison_page(tmp_path).summary)
    assert "each score is that of the classifier computed from the photos." in said


def test_a_comparison_without_a_finished_run_has_no_bubbles(tmp_path):
    Comparison((cell("a", "b", 0, None, 0),)).write(tmp_path)
    page = comparison_page(tmp_path)
    assert "no run was finished" in " ".join(page.summary)
    assert not page.sections[0].charts


def test_kits_with_the_names_of_their_methods_are_named_once(tmp_path):
    cells = [cell(name, name, 0, score, 60_000_000) for name, score in (("a", 0.5), ("b", 0.4))]
    Comparison(tuple(cells)).write(tmp_path)
    said = comparison_page(tmp_path).summary
    assert said[0].startswith(f"2 kits (a and b) on {NASTY}: 2 runs")
    assert said[1].startswith(f"On {NASTY}, a is best")
    assert cells[0].name == f"{NASTY}, a, seed 0"


@pytest.mark.parametrize("whole", [True, False], ids=["folder", "file"])
def test_the_page_needs_nothing_else(folder, whole):
    written = pocketune.report(folder if whole else folder / "compare.json")
    assert written == folder / "report.html"
    read = check_alone(written.read_text(encoding="utf-8"))
    assert NASTY in " ".join(read.text)


def test_a_comparison_has_no_photos_that_could_move(folder):
    with pytest.raises(PocketuneError, match="is not a run, which photos are of"):
        pocketune.report(folder, photos=folder)


def test_of_many_bubbles_only_the_front_is_named():
    few = [Bubble(f"x{number}", 60 + number, 0.9 - number / 100, 1.0) for number in range(5)]
    many = [*few, Bubble("y", 99, 0.1, 1.0), Bubble("z", 98, 0.1, 1.0)]
    assert all(f">x{number}<" in bubble_chart(few, metric="accuracy").svg for number in range(5))
    svg = bubble_chart(many, metric="accuracy").svg
    assert ">x0<" in svg and ">x1<" not in svg
    losses = bubble_chart(many, metric="loss", larger_is_better=False).svg
    assert ">x4<" in losses and ">z<" in losses and ">y<" not in losses
