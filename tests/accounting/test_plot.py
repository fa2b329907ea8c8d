"""What is drawn of a report: heights and words, on axes that only take notes."""

from __future__ import annotations

import itertools
from dataclasses import fields
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from pocketune.accounting import Memory, Report, plot
from pocketune.errors import PocketuneError


@pytest.fixture
def axes() -> MagicMock:
    return MagicMock()


def test_every_category_of_memory_is_drawn_once() -> None:
    drawn = [name for _, *names in plot._LAYERED.values() for name in names]
    assert sorted(drawn) == sorted(field.name for field in fields(Memory))


def test_the_layers_of_a_step_reach_up_to_its_total(report: Report, axes: MagicMock) -> None:
    plot._along_the_step(axes, report)
    layers = [call.args for call in axes.fill_between.call_args_list]
    assert set(layers[0][1]) == {0.0}
    for (_, _, top), (_, bottom, _) in itertools.pairwise(layers):
        assert top == bottom
    totals = [snapshot.memory.total / 1e6 for snapshot in report.timeline]
    assert layers[-1][2] == pytest.approx([*totals, totals[-1]])


def test_the_mark_of_the_step_is_at_its_peak(report: Report, axes: MagicMock) -> None:
    plot._along_the_step(axes, report)
    (place,), (height,), *_ = axes.plot.call_args.args
    assert report.timeline[int(place)] == report.peak
    assert height == pytest.approx(report.total_bytes / 1e6)
    title = axes.set_title.call_args.args[0]
    assert f"{report.total_bytes / 1e6:,.1f} MB" in title
    assert title.endswith(report.peak.phase)


def test_the_line_between_the_passes_is_where_the_backward_pass_begins(
    report: Report, axes: MagicMock
) -> None:
    plot._along_the_step(axes, report)
    place = axes.axvline.call_args.args[0]
    assert report.timeline[place].phase == "backward"
    assert {snapshot.phase for snapshot in report.timeline[:place]} == {"forward"}


def test_a_block_has_its_two_bars_and_its_peak(report: Report, axes: MagicMock) -> None:
    plot._by_block(axes, report)
    bars = {call.kwargs["label"]: call.args[1] for call in axes.bar.call_args_list}
    blocks = [block for block in report.blocks if block.peak_bytes]
    assert bars["temporary"] == [block.temporary_bytes / 1e6 for block in blocks]
    assert bars["kept so far"] == [block.cumulative_kept_bytes / 1e6 for block in blocks]
    assert axes.plot.call_args.args[1] == [block.peak_bytes / 1e6 for block in blocks]
    names = axes.set_xticks.call_args.args[1]
    assert names == [block.name or "(network)" for block in blocks]


def test_the_worst_block_is_labeled_with_its_peak(axes: MagicMock) -> None:
    plot.draw_blocks(
        axes,
        "A",
        names=["a", "b", "c"],
        temporary=[1, 2, 3],
        kept=[1, 2, 3],
        peaks=[10**6, 7_250_000, 2 * 10**6],
    )
    text, place, *_ = axes.annotate.call_args.args
    assert (text, place) == ("7.2 MB", (1, 7.25))


def test_the_vertical_axis_begins_at_zero_and_leaves_room(axes: MagicMock) -> None:
    plot.finish(axes, "A title", 100.0, unit="GB")
    low, high = axes.set_ylim.call_args.args
    assert low == 0
    assert 100 < high < 150
    assert axes.set_ylabel.call_args.args == ("GB",)


@pytest.mark.parametrize("name", ["figure.jpg", "figure", "figure.svg.txt"])
def test_other_endings_are_refused_before_anything_is_drawn(
    report: Report, tmp_path: Path, name: str
) -> None:
    with pytest.raises(PocketuneError, match=r"its name must end in \.svg, \.png, \.pdf"):
        plot.save_figure(report, tmp_path / name)
    assert not list(tmp_path.iterdir())
