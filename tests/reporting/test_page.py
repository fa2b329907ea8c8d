"""Tables and paragraphs of a page."""

from dataclasses import replace

import pytest

from pocketune.reporting.page import Page, Section, Tile, render, write
from pocketune.tasks.results import Table

from .html import check_alone

TABLE = Table(
    ("name", "method", "score", "reason"),
    (("a", "last", "70.0% ± 1.0", "-"), ("b", "full", "failed", "it does not fit the budget")),
)


def page(**changes) -> Page:
    section = Section(title="A", tables=(("T", TABLE),), **changes)
    tiles = (Tile("x", "1"),)
    return Page(
        title="&lt;", subtitle="s", summary=("p",), tiles=tiles, sections=(section,), version="1"
    )


@pytest.mark.parametrize(
    ("table", "words"),
    [(TABLE, [True, True, False, True]), (Table(("a",), ()), [True])],
)
def test_numbers_end_and_text_begins_at_one_line(table, words):
    told = Section(title="A", tables=(("T", table),))
    read = check_alone(render(replace(page(), sections=(told,))))
    titles = [each for each in read.all("th") if each["scope"] == "col"]
    assert [each.get("class") == "words" for each in titles] == words


@pytest.mark.parametrize("unfolded", [True, False])
def test_tables_are_folded_unless_asked(unfolded):
    read = check_alone(render(page(unfolded=unfolded)))
    ((details),) = read.all("details")
    assert ("open" in details) == unfolded
    assert "&lt;" in read.text  # as it was written, not as markup


def test_file_names_that_are_not_text_are_written(tmp_path):
    odd = page(text=("photo\udcff.jpg",))
    write(odd, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "photo?.jpg" in text
    assert text.count("\n") > 20  # only what cannot be written is replaced


def test_a_page_replaces_the_one_before(tmp_path):
    file = tmp_path / "page.html"
    file.write_text("old")
    write(page(), file)
    assert file.read_text().startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [file]


def test_the_folder_of_the_file_is_made(tmp_path):
    file = tmp_path / "deep" / "report.html"
    write(page(), file)
    assert file.is_file()
