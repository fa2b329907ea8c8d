"""Photos of each class."""

import re

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from pocketune.reporting.charts.balance import balance_chart


def chart(*training: int):
    names, held = [f"class {i}" for i in range(len(training))], np.full(len(training), 4)
    return balance_chart(names, np.array(training), held, "classes")


def test_the_classes_are_balanced_or_named():
    assert chart(16, 16).text == "The classes are balanced: 16 training photos each."
    assert chart(16, 12).text == "The classes are balanced: 12 to 16 training photos each."
    assert chart(30, 10).text.startswith("class 0 has 3.0 times as many training photos as class 1")


def test_ticks_are_whole_photos():
    ticks = [int(each) for each in re.findall(r">\s*(\d+)\s*</text>", chart(16, 16).svg)]
    assert len(ticks) > 3
    assert len(set(np.diff(ticks))) == 1, "rounded ticks are not evenly spaced"
