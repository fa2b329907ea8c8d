"""Tables: the right figures, and names that mean nothing to Markdown and LaTeX."""

import csv
import io
import json
import math
import re
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.comparison import Cell, Comparison
from pocketune.comparison.tables import to_csv, to_latex, to_markdown
from pocketune.errors import PocketuneError

from ..device.train.test_record import RECORD

SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=6)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1).map(
    lambda name: f"x{name}x"
)
CELL = Cell(
    photos="photos",
    model="network",
    method="last",
    seed=0,
    key="k",
    part="test",
    images=10,
    score=0.5,
    metric="accuracy",
    style=".1%",
    record=RECORD,
)


def comparison(scores: list[float], **names: str) -> Comparison:
    cells = (replace(CELL, seed=n, score=score, **names) for n, score in enumerate(scores))
    return Comparison(tuple(cells))


def test_rows_say_what_they_were_scored_on_if_it_is_not_the_same() -> None:
    test = comparison([0.5])
    assert "scored on" not in to_markdown(test.rows)
    both = Comparison((*test.cells, replace(CELL, photos="others", part="validation")))
    header, _, *lines = to_markdown(both.rows).splitlines()
    place = header.split(" | ").index("scored on")
    assert [line.split(" | ")[place] for line in lines[:2]] == ["test", "validation"]
    assert "validation photos, which chose the step" in to_markdown(both.rows)


@given(SCORES)
def test_mean_and_spread(scores: list[float]) -> None:
    (row,) = comparison(scores).rows
    assert row.mean == pytest.approx(sum(scores) / len(scores))
    if len(scores) == 1:
        assert row.spread is None
    else:
        variance = sum((s - row.mean) ** 2 for s in scores) / (len(scores) - 1)
        assert row.spread == pytest.approx(math.sqrt(variance), abs=1e-9)
    (line,) = csv.DictReader(io.StringIO(to_csv([row])))
    assert float(line["mean"]) == row.mean
    assert line["standard_deviation"] == ("" if row.spread is None else str(row.spread))
    printed = to_markdown([row]).splitlines()[2].split(" | ")[3]
    assert printed.split(" ± ")[0] == f"{100 * row.mean:.1f}"


def test_the_other_figures() -> None:
    records = [
        replace(RECORD, peak_memory=peak, step_seconds=step, step_flops=2_500_000)
        for peak, step in ((60_000_000, 0.02), (70_000_000, None), (65_000_000, 0.04))
    ]
    cells = [replace(CELL, seed=n, record=record) for n, record in enumerate(records)]
    (row,) = Comparison((*cells, replace(CELL, seed=9, score=None, record=None, error="no"))).rows
    assert (row.peak_memory, row.step_seconds, row.failed) == (70_000_000, 0.03, 1)
    cells = to_markdown([row]).splitlines()[2].split(" | ")[3:]
    assert cells == ["50.0 ± 0.0", "3 of 4", "3", "70", "30", "2.5", "20", "30 bytes |"]


@pytest.mark.parametrize(
    ("heads", "start"),
    [
        (("LDA", "class means"), "the classifier computed from the photos"),
        (("LDA", "random"), "its start"),
    ],
)
def test_rows_tell_where_no_run_was_better_than_its_start(heads, start) -> None:
    kept = [
        replace(CELL, method=head, record=replace(RECORD, best_step=0, head=head)) for head in heads
    ]
    told = f"No run was better than its start: each score is that of {start}."
    rows = Comparison(tuple(kept)).rows
    assert [row.improved for row in rows] == [0, 0]
    assert told in to_markdown(rows) and told in to_latex(rows)
    assert [line["improved"] for line in csv.DictReader(io.StringIO(to_csv(rows)))] == ["0", "0"]

    rows = Comparison((*kept, replace(CELL, seed=1, method=heads[0]))).rows
    assert [row.improved for row in rows] == [1, 0]
    assert "No run was better" not in to_markdown(rows)


def test_without_validation_photos_only_a_run_without_steps_is_known_to_be_its_start() -> None:
    unjudged = replace(RECORD, best=None)
    for best_step, improved in ((4, None), (0, 0)):
        record = replace(unjudged, best_step=best_step)
        (row,) = Comparison((replace(CELL, record=record),)).rows
        assert row.improved == improved


def test_a_row_that_failed() -> None:
    failed = replace(CELL, score=None, record=None, error="no memory", metric="score")
    table = to_markdown(Comparison((CELL, replace(failed, method="full"))).rows)
    assert "accuracy, %" in table
    assert "| full | failed | 0 of 1 |  |  |  |  |  |  |" in table
    assert to_latex(Comparison((failed,)).rows).count("failed") == 1


def test_two_metrics_have_one_title() -> None:
    other = replace(CELL, method="x", metric="error", style=".3f", score=1.5)
    table = to_markdown(Comparison((CELL, other)).rows)
    assert "| score |" in table and "| 1.500 |" in table


def test_rows_keep_the_order_of_the_cells() -> None:
    cells = [replace(CELL, method=name, seed=seed) for name in "ba" for seed in (0, 1)]
    rows = Comparison(tuple(cells)).rows
    assert [(row.method, len(row.scores)) for row in rows] == [("b", 2), ("a", 2)]


@given(NAMES, NAMES)
def test_markdown_keeps_its_columns(photos: str, method: str) -> None:
    table = to_markdown(comparison([0.5], photos=photos, method=method).rows)
    header, line, row, *_ = table.split("\n")
    counts = {len(re.findall(r"(?<!\\)(?:\\\\)*\|", each)) for each in (header, line, row)}
    assert counts == {12}
    cell = re.split(r"(?<!\\)(?:\\\\)* \| ", row)[2]
    assert re.sub(r"\\(.)", r"\1", cell) == " ".join(method.split())


@given(NAMES)
def test_latex_has_no_command_of_a_name(name: str) -> None:
    table = to_latex(comparison([0.5], model=name).rows)
    row = table.split("\n")[5]
    escaped = r"\\text(backslash|asciitilde|asciicircum|less|greater|bar)\{\}|\$\\pm\$|\\[&%$#_{}]"
    plain = re.sub(escaped, "", row)
    assert plain.endswith(r" \\")
    assert not set(plain.removesuffix(r" \\")) & set("\\%$#_{}~^<>|")
    assert plain.count("&") == 10


def test_the_file_is_the_comparison(tmp_path) -> None:
    whole = comparison([0.5, 0.25])
    whole.write(tmp_path)
    assert Comparison.read(tmp_path) == whole == Comparison.read(tmp_path / "compare.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "compare.csv",
        "compare.json",
        "compare.md",
        "compare.tex",
    ]
    assert statistics.fmean(whole.rows[0].scores) == 0.375


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 9}, "written by another version"),
        ({"cells": [{}]}, r"'cells\[0\]' lacks the field 'photos'"),
    ],
)
def test_a_file_that_is_no_comparison(change, message, tmp_path) -> None:
    (tmp_path / "compare.json").write_text(json.dumps({**comparison([1]).to_dict(), **change}))
    with pytest.raises(PocketuneError, match=message):
        Comparison.read(tmp_path)
    (tmp_path / "compare.json").unlink()
    with pytest.raises(PocketuneError, match=r"it has no compare\.json"):
        Comparison.read(tmp_path)
