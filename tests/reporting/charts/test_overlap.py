"""The overlap of each class, with classes that do not occur, and with many."""

import pytest

pytest.importorskip("matplotlib")

from pocketune.reporting.charts.overlap import overlap_chart

NAN = float("nan")


def test_the_best_and_the_worst_are_named_and_every_value_is_said():
    chart = overlap_chart(["sky", "$x$ < y", "car"], [0.5, 0.125, NAN])
    assert chart.text.startswith(
        "sky overlaps best with what is predicted, 50.0%, and $x$ < y least"
    )
    for said in ("50.0%", "12.5%", "does not occur", "#800000", "#008000"):
        assert said in chart.svg


def test_of_many_classes_the_first_are_drawn():
    chart = overlap_chart([f"class {i}" for i in range(60)], [0.5] * 60)
    assert chart.text.endswith("The first 40 classes are drawn.")
    assert "class 39" in chart.svg
    assert "class 40" not in chart.svg


def test_without_any_class_that_occurs():
    assert overlap_chart(["a"], [NAN]).text == "The colors are those of the masks."
