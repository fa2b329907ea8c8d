"""An account as people read it: tables and bars for a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from pocketune.accounting.costs import Account, Cost

LABELS = {
    "trained_parameters": "parameters, trained",
    "frozen_parameters": "parameters, frozen",
    "statistics": "statistics of norms",
    "optimizer": "optimizer state",
    "images": "images",
    "kept": "kept for the backward pass",
    "residual": "waiting (residuals, callers)",
    "temporaries": "temporaries",
    "workspace": "workspace of kernels",
    "gradients": "gradients",
}
"""The categories of `Memory` in words."""

_BAR, _SHORT = 20, 8
_SPARKS = "▁▂▃▄▅▆▇█"
_LINE = 72


def render(account: Account, *, by: str = "block") -> str:
    """The account as text, without colors."""
    console = Console(width=100)
    with console.capture() as captured:
        console.print(report(account, by=by))
    return captured.get().rstrip()


def print_account(account: Account, *, by: str, as_json: bool) -> None:
    """Print an account to the terminal, as tables or as one JSON object."""
    if as_json:
        print(json.dumps(account.to_dict()))
    else:
        Console().print(report(account, by=by))


def report(account: Account, *, by: str = "block") -> RenderableType:
    """Categories and total, the course of the step, and costs by `block` or `layer`."""
    rows = account.blocks if by == "block" else account.layers
    return Group(
        _categories(account), Text(), *_course(account), Text(), _costs(rows, by), _work(account)
    )


def _categories(account: Account) -> Table:
    peak = account.peak
    table = Table(title=f"{account.network}: a step of {account.batch} at {account.size} px")
    table.add_column("memory")
    table.add_column("at the peak", justify="right")
    table.add_column("", width=_BAR)
    table.add_column("at most", justify="right", style="dim")
    largest = account.largest()
    for name, size in peak.memory.by_category().items():
        if largest[name]:
            bar = _bar(size, account.total_bytes)
            table.add_row(LABELS[name], megabytes(size), bar, megabytes(largest[name]))
    table.add_section()
    table.add_row("total", megabytes(account.total_bytes), "", "", style="bold")
    return table


def _course(account: Account) -> list[Text]:
    """Where the peak is, and a sparkline of the whole step."""
    peak = account.peak
    totals = [moment.memory.total for moment in account.timeline]
    backward = next(i for i, m in enumerate(account.timeline) if m.phase == "backward")
    turn = round(backward / len(totals) * _LINE)
    return [
        Text(f"The peak is in the {peak.phase} pass at {_place(peak.layer)} ({peak.operator});"),
        Text.assemble("the worst block is ", (_place(account.worst_block.name), "bold"), "."),
        Text(sparkline(totals, _LINE), style="cyan"),
        Text("forward".ljust(turn) + "backward", style="dim"),
    ]


def _costs(costs: Sequence[Cost], by: str) -> Table:
    table = Table(title=f"MB and MFLOP by {by}")
    table.add_column(by, no_wrap=True)
    for header in ("params", "kept", "so far", "temp.", "peak"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("", width=_SHORT)
    table.add_column("MFLOP", justify="right", no_wrap=True)
    highest = max(cost.peak_bytes for cost in costs)
    for cost in costs:
        table.add_row(
            _place(cost.name),
            _number(cost.parameter_bytes),
            _number(cost.kept_bytes),
            _number(cost.cumulative_kept_bytes),
            _number(cost.temporary_bytes),
            _number(cost.peak_bytes),
            _bar(cost.peak_bytes, highest, _SHORT),
            f"{cost.work.total / 1e6:,.1f}",
            style="bold" if cost.peak_bytes == highest else None,
        )
    return table


def _work(account: Account) -> Text:
    work = account.work
    parts = ((name, getattr(work, name)) for name in ("forward", "backward", "optimizer"))
    flops = ", ".join(f"{name} {count / 1e6:,.1f}" for name, count in parts)
    macs = f"{work.forward_macs / 1e6:,.1f} and {work.backward_macs / 1e6:,.1f}"
    return Text(
        f"MB are 10^6 bytes. MFLOP a step: {flops}; multiply-accumulates forward and "
        f"backward: {macs} million."
    )


def megabytes(size: int) -> str:
    """Megabytes (10^6 bytes) with two digits behind the point."""
    return f"{_number(size)} MB"


def _number(size: int) -> str:
    """The same where the unit is told elsewhere."""
    return f"{size / 1e6:,.2f}"


def sparkline(values: Sequence[int], width: int) -> str:
    """A line of `width` bars, each the largest of its share of the values.

    >>> sparkline([0, 1, 2, 3, 4, 5, 6, 7], 4)
    '▂▄▆█'
    """
    highest = max(1, *values)
    edges = [round(i * len(values) / width) for i in range(width + 1)]
    parts = [values[a : max(a + 1, b)] for a, b in pairwise(edges)]
    return "".join(_SPARKS[round(max(part) / highest * (len(_SPARKS) - 1))] for part in parts)


def _bar(size: int, whole: int, width: int = _BAR) -> str:
    return "█" * round(size / max(1, whole) * width)


def _place(path: str) -> str:
    return path or "(network)"
