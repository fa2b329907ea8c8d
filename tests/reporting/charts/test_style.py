"""Pictures of matplotlib inside of a page."""

import re
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from pocketune.reporting.charts.style import FIRST, INK, drawing, tick

NASTY = ["<script>alert(1)</script>", "a & b", "$x_1$", 'id="x" url(#y)', "#010101", "größe 花"]


def picture(label: str) -> str:
    with drawing() as made:
        made.axes.plot([1, 2, 3], [1, 3, 2], "o-", color=FIRST, label=label)
        made.axes.set_title(label)
        made.axes.legend()
    return made.svg


@pytest.mark.parametrize("label", NASTY)
def test_any_name_is_text(label):
    root = ElementTree.fromstring(picture(label))
    texts = [element.text for element in root.iter("text")]
    assert texts.count(label) == 2
    assert not list(root.iter("script"))


def test_a_picture_refers_to_nothing_outside_and_has_no_color_of_its_own():
    svg = picture("x")
    assert "http" not in svg and "xmlns" not in svg and "<style" not in svg
    assert not re.search(r"#[0-9a-f]{6}\b(?![^<]*</text>)", svg)
    assert "var(--series-1)" in svg and "font-family" not in svg
    assert INK not in svg
    root = ElementTree.fromstring(svg)
    assert "viewBox" in root.attrib and "width" not in root.attrib


def test_names_of_two_pictures_differ_and_each_reference_has_its_target():
    first, second = picture("a"), picture("b")
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in (first, second)]
    assert ids[0] and not ids[0] & ids[1]
    used = set(re.findall(r"#([\w-]+)", first))
    assert used and used <= ids[0]


def test_the_same_picture_is_drawn_the_same_each_time():
    assert picture("a") == picture("a")


def test_ticks_of_half_percents_are_not_rounded():
    assert [tick(value, ".1%") for value in (0.85, 0.875, 0.9)] == ["85%", "87.5%", "90%"]
    assert tick(0.125, ".3f") == "0.125"
