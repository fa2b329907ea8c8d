"""Tables and bars of a report, also where there is little room."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from torch import nn

from pocketune.accounting import LayerCost, Memory, Report, Snapshot, account, render
from pocketune.accounting.costs import Flops
from pocketune.accounting.render import LABELS, draw_bar, draw_step, megabytes, sparkline


def drawn(report: Report, width: int, by: str = "block") -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(report.draw(by=by))
    return captured.get()


class TestSparkline:
    @given(st.lists(st.integers(0, 10**9), min_size=1, max_size=200), st.integers(1, 80))
    def test_it_has_its_width_and_shows_the_highest(self, values: list[int], width: int) -> None:
        line = sparkline(values, width)
        assert len(line) == width
        if max(values):
            assert "█" in line
        else:
            assert set(line) == {"▁"}

    @given(st.integers(1, 80))
    def test_more_memory_is_never_lower(self, width: int) -> None:
        line = sparkline(list(range(100)), width)
        assert sorted(line, key="▁▂▃▄▅▆▇█".index) == list(line)

    def test_fewer_values_than_bars_are_repeated(self) -> None:
        assert sparkline([1, 7], 4) == "▂▂██"
        assert sparkline([7], 3) == "███"


class TestBar:
    @given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 40))
    def test_it_is_never_longer_than_its_room(self, part: int, more: int, width: int) -> None:
        assert len(draw_bar(part, part + more, width)) <= width

    def test_lengths(self) -> None:
        assert draw_bar(0, 10) == ""
        assert draw_bar(10, 10, 8) == "█" * 8
        assert draw_bar(5, 10, 8) == "█" * 4
        assert draw_bar(0, 0) == ""


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0.00 MB"),
        (4_999, "0.00 MB"),
        (5_001, "0.01 MB"),
        (1_234_567_890, "1,234.57 MB"),
    ],
)
def test_megabytes_are_millions(size: int, text: str) -> None:
    assert megabytes(size) == text


def test_every_category_has_words() -> None:
    assert list(LABELS) == [field.name for field in fields(Memory)]


def test_a_network_of_a_few_operators_can_be_shown() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 1, bias=False))
    report = account(network, batch=1, size=2, loss=lambda output: output.mean())
    assert len(report.timeline) < 20
    assert megabytes(report.total_bytes) in str(report)


class TestReport:
    @pytest.mark.parametrize("by", ["block", "layer"])
    @pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
    def test_no_line_is_wider_than_the_terminal(self, report, width: int, by: str) -> None:
        assert all(len(line) <= width for line in drawn(report, width, by).splitlines())

    @pytest.mark.parametrize(
        ("by", "name"), [("block", "features.18"), ("layer", "blocks.9.conv" * 3)]
    )
    def test_on_80_columns_no_figure_and_no_name_is_cut(self, by: str, name: str) -> None:
        moments = [Snapshot(p, "a", "aten.op", Memory(kept=1)) for p in ("forward", "backward")]
        figures = ("parameter", "kept", "cumulative_kept", "temporary", "peak")
        sizes = {f"{figure}_bytes": 123_456_789 for figure in figures}
        cost = LayerCost(name=name, kind="Conv2d", block="a", flops=Flops(forward=10**10), **sizes)
        console = Console(width=80)
        with console.capture() as captured:
            console.print(draw_step("A", moments, [cost], by=by, worst_block="a"))
        rows = captured.get().partition(f"MFLOP by {by}")[2].splitlines()[4:-2]
        cells = [[cell.strip() for cell in row.split("│")[1:-1]] for row in rows if "│" in row]
        assert "".join(row[0] for row in cells) == name
        assert cells[0][1:7] == [*["123.46"] * 5, "10,000.0"]

    def test_a_row_for_each_block_or_layer(self, report) -> None:
        for by, costs in (("block", report.blocks), ("layer", report.layers)):
            text = drawn(report, 100, by)
            assert f"MB and MFLOP by {by}" in text
            for cost in costs:
                name = cost.name or "(network)"
                row = next(r for r in text.splitlines() if r.startswith(f"│ {name} "))
                assert f" {cost.peak_bytes / 1e6:,.2f} " in row

    def test_as_text_it_has_no_colors_and_a_title(self, report) -> None:
        text = str(report)
        assert "\x1b" not in text
        assert "Sequential: a step of 2 at 9 px" in text
        assert text == text.rstrip()

    def test_categories_that_never_occur_are_left_out(self, report) -> None:
        assert LABELS["statistics"] not in str(report)
        assert LABELS["gradients"] in str(report)

    def test_a_category_that_is_empty_at_the_peak_shows_its_most(self) -> None:
        timeline = [
            Snapshot("forward", "a", "aten.op", Memory(temporaries=9_000_000)),
            Snapshot("backward", "", "aten.op", Memory(gradients=2_000_000)),
        ]
        cost = LayerCost(name="a", kind="Conv2d", block="a", peak_bytes=9_000_000)
        text = render.as_text(draw_step("A", timeline, [cost], by="layer", worst_block="a"))
        row = next(line for line in text.splitlines() if "gradients" in line)
        assert "0.00 MB" in row and "2.00 MB" in row
        assert "The peak is in the forward pass at a,\nin aten.op; the worst block is a." in text

    def test_the_network_itself_has_words(self) -> None:
        timeline = [Snapshot("backward", "", "aten.op", Memory(kept=1))]
        cost = LayerCost(name="", kind="Net", block="", peak_bytes=1)
        text = render.as_text(draw_step("A", timeline, [cost], by="block", worst_block=""))
        assert "in the backward pass at (network)" in text
        assert "the worst block is (network)." in text
