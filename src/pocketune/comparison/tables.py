"""The rows of a comparison as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pocketune.comparison.row import Row
from pocketune.device.memory.sizes import format_size
from pocketune.device.train.start import KEPT, RANDOM


class Column(NamedTuple):
    """A column of the printed tables.

    Attributes:
        title: Its title.
        text: The text of a row; empty for what is not known.
        is_number: Whether it is aligned to the right.
    """

    title: str
    text: Callable[[Row], str]
    is_number: bool = True


def to_markdown(rows: Sequence[Row]) -> str:
    """A table in Markdown with a note on what it shows."""
    columns = columns_of(rows)
    lines = [
        [_markdown(column.title) for column in columns],
        ["---:" if column.is_number else "---" for column in columns],
        *([_markdown(column.text(row)) for column in columns] for row in rows),
    ]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{table}\n\n{note_on(rows)}\n"


def to_latex(rows: Sequence[Row]) -> str:
    """A `tabular` for the package booktabs, with the note as a comment."""
    columns = columns_of(rows)
    alignment = "".join("r" if column.is_number else "l" for column in columns)
    body = [" & ".join(_latex(column.text(row)) for column in columns) for row in rows]
    return "\n".join(
        (
            f"% {note_on(rows)}",
            f"\\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            " & ".join(_latex(column.title) for column in columns) + r" \\",
            r"\midrule",
            *(f"{line} \\\\" for line in body),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        )
    )


FIELDS: dict[str, Callable[[Row], object]] = {
    "photos": lambda row: row.photos,
    "model": lambda row: row.model,
    "method": lambda row: row.method,
    "part": lambda row: row.part,
    "metric": lambda row: row.metric,
    "mean": lambda row: row.mean,
    "standard_deviation": lambda row: row.spread,
    "runs": lambda row: len(row.scores),
    "failed": lambda row: row.failed,
    "improved": lambda row: row.improved,
    "peak_memory": lambda row: row.peak_memory,
    "step_seconds": lambda row: row.step_seconds,
    "seconds": lambda row: row.seconds,
    "step_flops": lambda row: row.record and row.record.step_flops,
    "parameters": lambda row: row.record and row.record.parameters,
    "result_bytes": lambda row: row.record and row.record.result_bytes,
    "lr": lambda row: row.record and row.record.settings.get("lr"),
    "head_lr": lambda row: row.record and row.record.settings.get("head_lr"),
}
"""The columns of the CSV, in units of one."""


def to_csv(rows: Sequence[Row]) -> str:
    """A CSV with unrounded numbers; what is not known is empty."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(FIELDS)
    writer.writerows([value(row) for value in FIELDS.values()] for row in rows)
    return text.getvalue()


def columns_of(rows: Sequence[Row]) -> list[Column]:
    """The columns of a printed table of these rows."""
    metrics = {(row.metric, row.style) for row in rows if row.scores}
    title = "score"
    if len(metrics) == 1:
        ((metric, style),) = metrics
        title = f"{metric}, %" if style.endswith("%") else metric
    several = len({row.part for row in rows}) > 1
    return [
        Column("photos", lambda row: row.photos, False),
        Column("model", lambda row: row.model, False),
        Column("method", lambda row: row.method, False),
        *([Column("scored on", lambda row: row.part, False)] if several else []),
        Column(title, _score),
        Column("runs", lambda row: row.runs),
        Column("improved", lambda row: "" if row.improved is None else str(row.improved)),
        Column("peak MB", lambda row: _scaled(row.peak_memory, 1e6, ".0f")),
        Column("step ms", lambda row: _scaled(row.step_seconds, 1e-3, ".3g")),
        Column(
            "step MFLOP",
            lambda row: _scaled(row.record.step_flops, 1e6, ".3g") if row.record else "",
        ),
        Column("parameters", lambda row: f"{row.record.parameters:,}" if row.record else ""),
        Column("result", lambda row: format_size(row.record.result_bytes) if row.record else ""),
    ]


def _score(row: Row) -> str:
    """Mean and spread, in percent without the sign where the metric is a fraction."""
    if row.mean is None:
        return "failed"
    mean, *rest = (
        f"{value:{row.style}}".removesuffix("%")
        for value in (row.mean, row.spread)
        if value is not None
    )
    return " ± ".join((mean, *rest))


def _scaled(value: float | None, unit: float, style: str) -> str:
    """A number in a unit, without an exponent."""
    if value is None:
        return ""
    text = f"{value / unit:{style}}"
    return f"{float(text):.0f}" if "e" in text else text


def without_gain(rows: Sequence[Row]) -> str | None:
    """What the scores are of where no run became better than its start; None where one did."""
    if not any(row.records for row in rows) or any(
        row.improved != 0 for row in rows if row.records
    ):
        return None
    heads = {record.head for row in rows for record in row.records}
    start = "its start" if heads & {KEPT, RANDOM} else "the classifier computed from the photos"
    return f"No run was better than its start: each score is that of {start}."


def note_on(rows: Sequence[Row]) -> str:
    """What the figures are."""
    parts = sorted({row.part for row in rows})
    of = " or ".join(f"the {part} photos" for part in parts) or "no photos"
    chosen = ", which chose the step" if "validation" in parts else ""
    told = without_gain(rows)
    return (
        (f"{told} " if told else "")
        + f"Mean ± standard deviation over the runs, on {of}{chosen}. Improved: runs that became "
        "better than their start. Peak: the largest resident memory of a training process. Step: "
        "median time, with the wait for its photos. Result: the file of trained values."
    )


_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~&$])")


def _markdown(text: str) -> str:
    """Text without Markdown's meanings, on one line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def _latex(text: str) -> str:
    """Text without LaTeX's meanings, on one line."""
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))
