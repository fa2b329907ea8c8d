"""`pocketune tables`."""

from __future__ import annotations

import json

from pocketune.papers.tables import About, Cell, Row, Table, list_tables


def test_tables_are_listed(run):
    lines = run("tables").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [about.name for about in list_tables()]
    listed = json.loads(run("tables", "--json").stdout)
    assert [about["name"] for about in listed] == [about.name for about in list_tables()]


def test_a_table_compares_each_figure_with_the_papers(run):
    text = run("tables", "mobiletl-1").stdout
    assert text.startswith("MobileTL, table 1")
    rows = [line.split()[1:] for line in text.splitlines() if " MBV2 " in line]
    assert rows == [
        ["21,408", "21,408", "0.00%"],
        ["51.56", "51.563", "+0.01%"],
        ["0.913", "0.9126", "-0.05%"],
    ]
    assert "fitted" in text


def test_no_figure_is_cut_off_on_a_narrow_terminal(run, monkeypatch):
    columns = ("trained parameters", "stored activations (MB)", "FLOPs (millions)")
    cells = dict(
        zip(
            columns,
            (Cell(2_927_612, 2_927_612), Cell(0.306, 0.3061), Cell(16_205.25, 16_205)),
            strict=True,
        )
    )
    wide = Table(
        About("wide", "A table", columns), (Row("patches, their blocks frozen", cells),) * 2
    )
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("pocketune.papers.tables.published_table", {"wide": wide}.__getitem__)
    text = run("tables", "wide").stdout
    assert "…" not in text
    for figure in ("2,927,612", "0.3061", "16,205.25", "+0.03%", "patches, their blocks frozen"):
        assert figure in text


def test_as_json(run):
    table = json.loads(run("tables", "mobiletl-1", "--json").stdout)
    assert table["name"] == "mobiletl-1"
    first = table["rows"][0]
    assert first["label"] == "Conv"
    assert first["cells"]["parameters"] == {"paper": 230592, "ours": 230592, "difference": 0}
    assert set(first["cells"]) == set(table["columns"])


def test_an_unknown_one(run):
    result = run("tables", "mobiletl-9")
    assert result.exit_code == 1
    assert "error: there is no table 'mobiletl-9'; choose from" in result.stderr
